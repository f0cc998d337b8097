import test from 'node:test';
import assert from 'node:assert/strict';
import { windowSpan, windowTokens } from '../src/formulas.js';

test('what a window covers', () => {
  assert.equal(windowSpan(4, 1, 5), 0.6);
  assert.equal(windowSpan(4, 2, 2), 3);
  assert.equal(windowSpan(1, 8, 5), 0);
  assert.ok(Number.isNaN(windowSpan(4, 1, 0)));
  assert.ok(Number.isNaN(windowSpan(0, 1, 5)));
});

test('what a window costs', () => {
  assert.equal(windowTokens(4, 1), 256);
  assert.equal(windowTokens(10, 2), 1280);
  assert.ok(Number.isNaN(windowTokens(4, 0)));
});
