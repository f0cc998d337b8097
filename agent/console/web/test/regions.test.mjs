import test from 'node:test';
import assert from 'node:assert/strict';
import { corners, cornersText, inside } from '../src/regions.js';

test('corners are written and read in percent', () => {
  const points = [[0, 0], [0.5, 0.125], [1, 0.3333]];
  assert.equal(cornersText(points), '0 0\n50 12.5\n100 33.3');
  assert.deepEqual(corners(' 0 0\n\n50, 12.5\n100;33.3\n'), [[0, 0], [0.5, 0.125], [1, 0.333]]);
  assert.deepEqual(corners(''), []);
  for (const text of ['1', '1 2 3', 'a b', '101 0', '-1 0']) assert.equal(corners(text), undefined, text);
});

test('a picture has bars at its sides, or above and below', () => {
  assert.deepEqual(inside({ width: 200, height: 100 }, 100, 100), { x: 50, y: 0, width: 100, height: 100 });
  assert.deepEqual(inside({ width: 100, height: 200 }, 1000, 1000), { x: 0, y: 50, width: 100, height: 100 });
});
