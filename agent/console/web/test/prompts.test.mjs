import test from 'node:test';
import assert from 'node:assert/strict';
import { copyName, importName, keptNote, sheetState } from '../src/prompts.js';

test('the name of an imported profile', () => {
  assert.equal(importName('name: cup\nlabel: Cup', 'x.yaml'), 'cup');
  assert.equal(importName('label: Cup\nname: "final-2"\n', 'x.yaml'), 'final-2');
  assert.equal(importName('{"name": "cup", "label": "Cup"}', 'x.json'), 'cup');
  assert.equal(importName('label: Cup\nprompt: |\n  name: no', 'Derby.yml'), 'derby');
});

test('the name of a copy is free', () => {
  assert.equal(copyName('sports', ['sports']), 'sports-copy');
  assert.equal(copyName('sports', ['sports', 'sports-copy']), 'sports-copy2');
  assert.ok(copyName('a'.repeat(40), []).length <= 40);
});

test('the state of a sheet', () => {
  assert.equal(sheetState({ prompt: '' }), 'No sheet.');
  assert.equal(sheetState({ prompt: 'Señor' }), 'In force: 7 of 1500 letters of the prompt.');
});

test('whether changes last', () => {
  assert.match(keptNote({ kept: true }), /last across restarts/);
  assert.match(keptNote({ kept: false }), /--state DIR/);
  assert.equal(keptNote({ kept: true, state_problem: 'the disk is full' }), 'Not kept at present: the disk is full');
});
