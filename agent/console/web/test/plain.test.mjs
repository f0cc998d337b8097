import assert from 'node:assert/strict';
import test from 'node:test';
import { Parts, VoicePlan, join } from '../src/plain-time.js';

const bytes = (text) => new TextEncoder().encode(text);
const part = (data, at) => join(bytes(`--picture\r\nContent-Type: image/jpeg\r\nContent-Length: ${data.length}\r\n${at ? `X-Timestamp: ${at}\r\n` : ''}\r\n`), join(data, bytes('\r\n')));

test('Parts reads pictures in pieces of any size', () => {
  const first = new Uint8Array([255, 216, 13, 10, 13, 10, 1]);
  const second = new Uint8Array([255, 216, 2]);
  const all = join(part(first, '1700000000.250000'), part(second, ''));
  for (const step of [1, 7, 1000]) {
    const parts = new Parts();
    const got = [];
    for (let i = 0; i < all.length; i += step) got.push(...parts.push(all.subarray(i, i + step)));
    assert.equal(got.length, 2);
    assert.deepEqual([...got[0].data], [...first]);
    assert.equal(got[0].at, 1_700_000_000_250);
    assert.deepEqual([...got[1].data], [...second]);
    assert.ok(Number.isNaN(got[1].at));
  }
});

test('Parts refuses what is no stream of pictures', () => {
  assert.throws(() => new Parts().push(new Uint8Array(2000)), /head/);
  assert.throws(() => new Parts().push(bytes('--picture\r\n\r\n')), /length/);
  assert.throws(() => new Parts().push(bytes('--picture\r\nContent-Length: 99999999\r\n\r\n')), /length/);
});

/** Pictures every 100 ms that are late by some ms, and pieces of the voice every 20 ms. */
function watch(plan, seconds, { late = () => 90, arrival = () => 5, output = 30, silent = () => false, from = 0, ahead = 0 } = {}) {
  const heard = [];
  for (let ms = from; ms < from + seconds * 1000; ms += 20) {
    if (ms % 100 === 0) plan.shown(ms, ms + ahead + late(ms));
    heard.push(plan.plan(ms, ms + ahead + arrival(ms), silent(ms), output) - ms - ahead);
  }
  return heard;
}

test('the voice is heard in the middle of its picture', () => {
  const plan = new VoicePlan();
  const heard = watch(plan, 10, { silent: (ms) => ms % 4000 < 500, ahead: 123_456 });
  assert.equal(heard.at(-1), 90 + 50, 'a picture stays for 100 ms; clocks may differ');
  assert.ok(Math.abs(plan.heardAfterSeen) <= 25);
});

test('the voice moves in silence only, unless it is far off', () => {
  const plan = new VoicePlan();
  watch(plan, 5, { silent: (ms) => ms < 4000 });
  let heard = watch(plan, 5, { late: () => 140, from: 5000 });
  assert.equal(heard.at(-1), 140, 'it goes on as it was');
  heard = watch(plan, 5, { late: () => 140, from: 10_000, silent: (ms) => ms < 11_000 });
  assert.equal(heard.at(-1), 190);
  heard = watch(plan, 6, { late: () => 900, from: 15_000 });
  assert.equal(heard.at(-1), 950);
});

test('the voice is not planned before it can be played, and a late piece is left out', () => {
  const plan = new VoicePlan();
  const heard = watch(plan, 5, { late: () => 10, arrival: () => 80, output: 100, silent: (ms) => ms < 1000 });
  assert.equal(heard.at(-1), 80 + 50 + 100);
  assert.ok(Number.isNaN(plan.plan(5000, 5000 + 131, false, 100)));
  assert.equal(plan.plan(5020, 5020 + 129, false, 100), 5020 + 230);
});

test('the voice plays without pictures', () => {
  const plan = new VoicePlan();
  assert.equal(plan.plan(1000, 1010, false, 20), 1000 + 10 + 50 + 20);
  assert.ok(Number.isNaN(plan.heardAfterSeen));
});
