import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { asks } from '../src/ask-words.js';

const PROFILES = [{ name: 'a', label: 'A', suggestion: 'Say what happens.' }, { name: 'b', label: 'B', suggestion: '' }, { name: 'c', label: 'C', suggestion: 'Say what happens.' }];
const at = (over) => ({ engine: 'nano', capabilities: { instructions: true }, profiles: PROFILES, ...over });

test('the list fits the engine and the picture', () => {
  const match = asks(at({ world: { name: 'match', teams: ['White', 'Blue'] } }));
  assert.ok(match.orders.includes('Only talk about White.'), 'the colours of this match');
  assert.ok(!asks(at({ world: { name: 'match' } })).orders.some((o) => /White|Red|Blue/.test(o)), 'no colour when they are not known');
  assert.ok(asks(at({ world: { name: 'yard' } })).questions.includes('Who is at the gate?'));
  assert.deepEqual(asks(at({ engine: 'remote', world: { name: 'yard' } })), asks(at({ world: { name: 'yard' } })));
  assert.equal(asks(at({})), null, 'nano knows no other picture');
  assert.deepEqual(asks(at({ engine: 'remote' })).orders, ['Say what happens.']);
  assert.equal(asks(at({ engine: 'scene', capabilities: { instructions: false }, world: { name: 'match' } })), null);
  assert.equal(asks(null), null);
});

// The words of nano's training: (a|b) is either, {T} a team, {c} a colour.
const SLOTS = { T: '[A-Z][a-z]+', t: '[a-z]+', n: '[a-z]+', N: '[0-9]+', c: '[a-z]+', s: '[a-z]+' };
function trained(world, lang) {
  const lines = readFileSync(new URL(`../../../../worlds/train/words/orders.${world}.${lang}.txt`, import.meta.url), 'utf8').split('\n');
  const patterns = [];
  let held = false;
  for (const line of lines) {
    if (line.startsWith('[')) held = false;
    else if (line.startsWith('= ')) held = true;
    else if (line && !line.startsWith('#') && !held) patterns.push(line);
  }
  return patterns.map((p) => new RegExp(`^${p.replace(/[.?*+^$[\]\\]/g, '\\$&').replace(/\{(\w)\}/g, (_, slot) => SLOTS[slot])}$`));
}

test('nano was trained on all that its lists offer', () => {
  for (const [world, lang] of [['match', 'en'], ['yard', 'en'], ['match', 'es'], ['yard', 'es']]) {
    const known = trained(world, lang);
    const list = asks(at({ world: { name: world, teams: ['Red', 'Blue'] }, settings: { language: lang } }));
    const { orders, questions } = list;
    assert.equal(list.lang, lang);
    for (const text of [...orders, ...questions]) assert.ok(known.some((p) => p.test(text)), `${world}: ${text}`);
    assert.ok(!known.some((p) => p.test('Count the ducks.')), 'not everything is known');
    assert.ok(orders.length + questions.length >= 10);
  }
});
