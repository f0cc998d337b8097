import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { ELSEWHERE, GROUPS, fieldOf, listOf } from '../src/settings.js';

// | `capture_fps` | 0.1 to 30, 1/s | ... and | `manners` | talk, duck, wait or interrupt | ..., written from the server's table
const doc = readFileSync(new URL('../../../../docs/tuning.md', import.meta.url), 'utf8').match(/settings begin -->([^]*)<!-- settings end/)[1];
const table = new Map([...doc.matchAll(/^\| `(\w+)` \| (.*?) \|/gm)].map(([, name, values]) => [name, values]));

test('the page has words for settings of the server only', () => {
  for (const key of [...ELSEWHERE, ...GROUPS.flatMap((g) => g.fields).map((f) => f.key)]) assert.ok(table.has(key), key);
});

test('the page has words for each value', () => {
  for (const { key, type, options } of GROUPS.flatMap((g) => g.fields)) {
    if (type === 'choice' && key !== 'preset' && key !== 'voice') assert.deepEqual(options.map(([v]) => v), table.get(key).split(/, | or /), key);
  }
});

test('a setting without words has a field', () => {
  const f = fieldOf({ name: 'look_twice', kind: 'whole', unit: 's', min: 1, max: 9, about: 'how often' });
  assert.deepEqual(f, { key: 'look_twice', label: 'Look twice', unit: 's', type: undefined, options: undefined, help: 'How often.', own: true });
  assert.equal(fieldOf({ name: 'x', kind: 'switch', about: 'y' }).type, 'switch');
});

test('a list is read with its commas', () => {
  assert.deepEqual(listOf(' hey touchline,  oye comentarista , ,'), ['hey touchline', 'oye comentarista']);
  assert.deepEqual(listOf(' '), []);
});
