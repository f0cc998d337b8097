import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { GROUPS, listOf } from '../src/settings.js';

test('the bounds of the page are those the server checks', () => {
  const go = readFileSync(new URL('../../../steer.go', import.meta.url), 'utf8');
  const want = {};
  // num("capture_fps", v.CaptureFPS, 0.1, 30) and whole("max_tokens", v.MaxTokens, 1, 8192)
  for (const [, key, lo, hi] of go.matchAll(/\bnum\("(\w+)", v\.\w+, ([\d.]+), ([\d.]+)\)/g)) want[key] = [+lo, +hi, 'any'];
  want.voice_gain = [-24, 12, 'any']; // by name: minGain and maxGain
  for (const [, key, least, most] of go.matchAll(/\bwhole\("(\w+)", v\.\w+, (\d+), (\d+)\)/g)) want[key] = [+least, +most, 1];
  assert.equal(Object.keys(want).length, 20);
  const got = GROUPS.flatMap((g) => g.fields).filter((f) => !f.type).map((f) => [f.key, [f.min, f.max, f.step]]);
  assert.deepEqual(Object.fromEntries(got), want);
  const [, values] = /isRepeats\(s string\) bool { return (.*) }/.exec(go);
  assert.equal(GROUPS.flatMap((g) => g.fields).find((f) => f.key === 'repeats').options.length, values.split('||').length);
});

test('the choices of hearing are those of the server', () => {
  const go = readFileSync(new URL('../../../hearing.go', import.meta.url), 'utf8');
  const fields = GROUPS.flatMap((g) => g.fields);
  for (const [key, rule] of [['hearing', 'hearingRule'], ['manners', 'mannersRule']]) {
    const [, words] = new RegExp(`${rule} += "(.*)"`).exec(go);
    assert.deepEqual(fields.find((f) => f.key === key).options.map(([value]) => value), words.split(/, | or /));
  }
});

test('a list is read with its commas', () => {
  assert.deepEqual(listOf(' hey touchline,  oye comentarista , ,'), ['hey touchline', 'oye comentarista']);
  assert.deepEqual(listOf(' '), []);
});
