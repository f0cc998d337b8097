import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { isCut, lookSpan, lookTokens, windowNeeds } from '../src/formulas.js';

test('the presets come to what docs/tuning.md and `touchline check` say', () => {
  const doc = readFileSync(new URL('../../../../docs/tuning.md', import.meta.url), 'utf8');
  // | `sniper` | 5 | 4 | 1 | 48 | 3 x 1 / 5 = 0.6 s | 4 x 66 = 264 | 792 |
  const rows = doc.split('\n').map((l) => l.split('|').slice(1, -1).map((c) => c.trim())).filter((c) => c.length === 8 && c[0].startsWith('`'));
  assert.deepEqual(rows.map((r) => r[0]), ['`sentry`', '`sniper`', '`owl`', '`beast`']);
  for (const [name, fps, frames, stride, size, span, small, large] of rows) {
    const result = (cell) => parseFloat(cell.split('=').at(-1));
    assert.equal(lookSpan(+frames, +stride, +fps), result(span), `${name} span`);
    assert.ok(windowNeeds(+frames, +stride) <= +size, `${name} window`);
    assert.equal(lookTokens(+frames, 448, 1), result(small), `${name} tokens`);
    assert.equal(lookTokens(+frames, 1280, 2), result(large), `${name} tokens at 1280`);
  }
});

test('a picture is cut only when it is larger than a tile', () => {
  assert.equal(lookTokens(1, 597, 9), 66);
  assert.equal(lookTokens(1, 598, 9), 660);
  assert.equal(lookTokens(4, 1280, 1), 264, 'one slice is no cut');
  assert.equal(lookTokens(4, 448, 3), 264);
  assert.deepEqual([isCut(448, 2), isCut(1280, 2), isCut(1280, 1)], [false, true, false]);
});

test('how many pictures a cycle needs', () => {
  assert.equal(windowNeeds(4, 1), 4);
  assert.equal(windowNeeds(10, 2), 19);
});

test('without figures there is no result', () => {
  for (const v of [lookSpan(4, 1, 0), lookSpan(0, 1, 5), lookTokens(4, undefined, 1), lookTokens(4, 448, 0), windowNeeds(0, 1)]) assert.ok(Number.isNaN(v));
});
