import test from 'node:test';
import assert from 'node:assert/strict';
import { mending, pause, spread } from '../src/backoff.js';

test('after any outage the next attempt comes soon', () => {
  let total = 0;
  for (let n = 0; n < 1000; n++) {
    const ms = spread(pause(n));
    assert.ok(ms > 300 && ms <= 2200, `attempt ${n} waits ${ms} ms`);
    total += pause(n);
  }
  assert.ok(total > 1900, 'a server that is away for long is not pestered');
  assert.ok(pause(0) < 0.5);
  assert.equal(pause(10), 1);
});

test('a broken connection is mended at once, or given up for a new one', () => {
  assert.equal(mending.nextRetryDelayInMs({ elapsedMs: 0, retryCount: 0 }), 300);
  assert.equal(mending.nextRetryDelayInMs({ elapsedMs: 2999, retryCount: 9 }), 300);
  assert.equal(mending.nextRetryDelayInMs({ elapsedMs: 3000, retryCount: 9 }), null);
});
