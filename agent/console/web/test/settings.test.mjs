import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { GROUPS } from '../src/settings.js';

test('the bounds of the page are those the server checks', () => {
  const go = readFileSync(new URL('../../../steer.go', import.meta.url), 'utf8');
  const want = {};
  // num("capture_fps", v.CaptureFPS, 0.1, 30) and whole("max_tokens", v.MaxTokens, 1, 8192)
  for (const [, key, lo, hi] of go.matchAll(/\bnum\("(\w+)", v\.\w+, ([\d.]+), ([\d.]+)\)/g)) want[key] = [+lo, +hi, 'any'];
  want.voice_gain = [-24, 12, 'any']; // by name: minGain and maxGain
  for (const [, key, least, most] of go.matchAll(/\bwhole\("(\w+)", v\.\w+, (\d+), (\d+)\)/g)) want[key] = [+least, +most, 1];
  assert.equal(Object.keys(want).length, 19);
  const got = GROUPS.flatMap((g) => g.fields).filter((f) => !f.type).map((f) => [f.key, [f.min, f.max, f.step]]);
  assert.deepEqual(Object.fromEntries(got), want);
  const [, values] = /isRepeats\(s string\) bool { return (.*) }/.exec(go);
  assert.equal(GROUPS.flatMap((g) => g.fields).find((f) => f.key === 'repeats').options.length, values.split('||').length);
});
