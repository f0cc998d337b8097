import test from 'node:test';
import assert from 'node:assert/strict';
import { engineState, engineWords, sample, voiceChoices } from '../src/engines.js';

const remote = { engine: 'remote', model: 'qwen2.5-vl', server: 'http://127.0.0.1:8000/v1', program: 'vLLM', in_force: false };

test('an engine has a name and words', () => {
  assert.deepEqual(engineWords(remote), { title: 'qwen2.5-vl', words: 'vLLM at 127.0.0.1:8000.' });
  assert.equal(engineWords({ engine: 'minicpmo', program: 'MiniCPM-o-4_5', in_force: false }).title, 'MiniCPM-o-4_5');
  assert.equal(engineWords({ engine: 'remote', server: 'https://models.example/v1', in_force: false }).title, 'The only model of the server');
  assert.equal(engineWords({ engine: 'nano', in_force: true }).title, 'Nano');
  assert.equal(engineWords({ engine: 'sight', in_force: true }).title, 'Sight');
  assert.equal(engineWords({ ...remote, notes: 'no temperature, one picture a request' }).words, 'vLLM at 127.0.0.1:8000. Learnt: no temperature, one picture a request.');
  assert.deepEqual(engineWords({ engine: 'parrot', in_force: true }), { title: 'Parrot', words: 'An engine in this program.' });
});

test('the state of an engine', () => {
  const scene = { engine: 'scene', in_force: true };
  assert.deepEqual(engineState(scene), { words: 'in force', tone: 'on' });
  assert.deepEqual(engineState(remote), { words: '', tone: '' });
  const change = { engine: 'remote', model: 'qwen2.5-vl', server: 'http://127.0.0.1:8000/v1', percent: 40 };
  assert.deepEqual(engineState(remote, change), { words: 'loading 40 %', tone: 'wait' });
  assert.deepEqual(engineState({ ...remote, model: 'other' }, change), { words: '', tone: '' });
  assert.deepEqual(engineState(scene, change), { words: 'in force', tone: 'on' }, 'it goes on');
  assert.match(engineState(remote, { ...change, pauses: true }).words, /loading 40 %; comments pause/);
  assert.match(engineState(scene, { ...change, pauses: true }).words, /not loaded/);
  assert.deepEqual(engineState({ engine: 'minicpmo', in_force: false, refused: 'no model is installed' }), { words: 'no model is installed.', tone: 'bad' });
});

test('the voices of the language, and the one in force', () => {
  const voices = [{ id: 'flite:slt', language: 'en', speaks: true }, { id: 'espeak-ng:nl', language: 'nl', speaks: false }];
  assert.deepEqual(voiceChoices(voices, 'auto'), [['auto', 'automatic'], ['flite:slt', 'flite slt']]);
  assert.deepEqual(voiceChoices(voices, 'espeak-ng:nl')[2], ['espeak-ng:nl', 'espeak-ng nl']);
});

test('a voice is tried in its language', () => {
  assert.equal(sample('en'), sample(undefined));
  assert.match(sample('pt-BR'), /gol/);
  assert.equal(sample('zh-HK'), '1, 2, 3.');
});
