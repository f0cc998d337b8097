import test from 'node:test';
import assert from 'node:assert/strict';
import { ago, count, millis, seconds } from '../src/words.js';

test('figures as people read them', () => {
  assert.equal(seconds(2.44), '2.4 s');
  assert.equal(seconds(120.4), '120 s');
  assert.equal(seconds(NaN), '–');
  assert.equal(millis(0.0314), '31 ms');
  assert.equal(millis(-0.02), '-20 ms');
  assert.equal(millis(1.24), '1.2 s');
  assert.equal(millis(0.9996), '1.0 s');
  assert.equal(ago(0.4), 'just now');
  assert.equal(ago(-3), 'just now');
  assert.equal(ago(12.2), '12 s ago');
  assert.equal(ago(180), '3 min ago');
  assert.equal(ago(7200), '2 h ago');
  assert.equal(count(1, 'comment'), '1 comment');
  assert.equal(count(2, 'comment'), '2 comments');
});
