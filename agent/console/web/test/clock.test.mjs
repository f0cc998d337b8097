import test from 'node:test';
import assert from 'node:assert/strict';
import { ServerClock, moment } from '../src/clock.js';

/** What a server whose clock runs ahead by `ahead` writes into Date at local time t. */
const dateAt = (t, ahead) => Math.floor((t + ahead) / 1000) * 1000;

test('equal clocks stay equal', () => {
  const c = new ServerClock();
  assert.equal(c.at(5000), 5000);
  c.observeDate(dateAt(10_400, 0), 10_395, 10_405);
  assert.equal(c.offset, 0);
  c.observePast(10_300, 10_310);
  assert.equal(c.offset, 0);
});

test('a clock that is off is found, closer with every look', () => {
  const c = new ServerClock();
  for (let t = 100_000; t < 102_000; t += 270) c.observeDate(dateAt(t, 7340), t - 5, t + 5);
  assert.ok(Math.abs(c.offset - 7340) <= 140, `offset ${c.offset}`);
  assert.ok(c.uncertainty < 300);
  c.observePast(102_100 + 7340, 102_110);
  assert.ok(c.offset >= 7330 && c.offset <= 7480);
});

test('a clock that lags is found too', () => {
  const c = new ServerClock();
  for (let t = 100_000; t < 102_000; t += 270) c.observeDate(dateAt(t, -90_000), t - 5, t + 5);
  assert.ok(Math.abs(c.offset + 90_000) <= 140);
});

test('a clock that was set is followed', () => {
  const c = new ServerClock();
  c.observeDate(dateAt(10_000, 0), 9_990, 10_010);
  c.observeDate(dateAt(20_000, 60_000), 19_990, 20_010);
  assert.ok(Math.abs(c.offset - 60_000) <= 1010);
});

test('what makes no sense is left out', () => {
  const c = new ServerClock();
  c.observeDate(NaN, 0, 1);
  c.observePast(NaN, 1);
  assert.equal(c.offset, 0);
  assert.ok(Number.isNaN(moment(undefined)));
  assert.ok(Number.isNaN(moment('0001-01-01T00:00:00Z')));
  assert.equal(moment('2026-11-21T03:29:29.123456789Z') % 1000, 123);
});
