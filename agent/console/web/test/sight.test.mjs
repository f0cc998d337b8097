import test from 'node:test';
import assert from 'node:assert/strict';
import { colour, due, label, spoken, unit } from '../src/sight.js';

const at = (s) => new Date(Date.UTC(2030, 0, 1) + s * 1000).toISOString();
const ms = (s) => Date.UTC(2030, 0, 1) + s * 1000;

test('boxes are those of the moment that the delayed picture shows', () => {
  const sights = [1, 1.4, 1.8].map((s) => ({ at: at(s), pts: s, things: [], facts: [] }));
  assert.equal(due(sights, ms(0.9)), undefined, 'none is due');
  assert.equal(due(sights, ms(1.4)).pts, 1.4);
  assert.equal(due(sights, ms(1.79)).pts, 1.4);
  assert.equal(due(sights, ms(4)).pts, 1.8);
  assert.equal(due(sights, ms(5)), undefined, 'too old');
  assert.equal(due([], ms(5)), undefined);
});

test('a thing that is followed has its number and its colour', () => {
  const one = { name: 'person', track: 7, score: 0.9, x0: 0, y0: 0, x1: 1, y1: 1 };
  assert.equal(label(one), 'person 7');
  assert.equal(label({ ...one, track: undefined }), 'person');
  assert.equal(colour(one), colour({ ...one, track: 13 }));
  assert.notEqual(colour(one), colour({ ...one, track: 8 }));
});

test('a screen reader has the boxes in words', () => {
  const one = { name: 'person', track: 7, score: 0.9, x0: 0, y0: 0, x1: 1, y1: 1 };
  assert.equal(spoken([one, { ...one, name: 'car', track: undefined }]), 'Found: person 7, car');
  assert.equal(spoken([]), 'The engine found nothing');
});

test('lines and words over a small picture are as large as over a large one', () => {
  assert.equal(unit({ width: 1280, height: 720, clientWidth: 320, clientHeight: 180 }), 4);
  assert.equal(unit({ width: 1280, height: 720, clientWidth: 0, clientHeight: 0 }), 1, 'not laid out yet');
});
