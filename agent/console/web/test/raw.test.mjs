import assert from 'node:assert/strict';
import { test } from 'node:test';
import { headline, pretty, settings, texts } from '../src/raw.js';

const look = {
  kind: 'comment', at: '2026-05-01T12:00:00Z', engine: 'remote: qwen', system: 'You comment.', text: 'What now?', answer: 'A goal!',
  answer_sec: 0.91, first_word_sec: 0.2, max_tokens: 96, max_slices: 1, language: 'en', spoken: true, sampling: { top_k: 5 },
  pictures: [{ id: 1, width: 448, height: 252 }, { id: 2, width: 448, height: 252 }], outcome: 'spoken',
};

test('a look in one line', () => {
  assert.match(headline(look), /^\d\d:00:00\.0 · comment · spoken · 910 ms$/);
  assert.match(headline({ ...look, kind: 'rules', outcome: undefined, error: 'broken' }), / · alert rules · failed · 910 ms$/);
  assert.equal(headline({ ...look, kind: 'next', outcome: 'skipped', reason: 'the scene did not change' }), 'next comment: skipped now, the scene did not change');
});

test('its settings', () => {
  assert.equal(settings(look), 'remote: qwen, 2 pictures of 448×252, at most 96 tokens, up to 1 slice, language en, spoken, top k 5, first word after 200 ms');
  assert.equal(settings({ engine: 'scene' }), 'scene');
});

test('its texts', () => {
  const titles = (l) => texts(l).map(([title]) => title);
  assert.deepEqual(titles(look), ['Answer', 'System prompt', 'Prompt']);
  const x = { request: '{}', answer: 'A goal!' };
  assert.deepEqual(titles({ ...look, exchanges: [x] }), ['Request', 'Raw answer', 'System prompt', 'Prompt']);
  assert.deepEqual(titles({ ...look, schema: {}, exchanges: [{ request: '{}', answer: '', error: '400' }, { ...x, reasoning: 'hm' }] }),
    ['Request 1', 'Error 1', 'Request 2', 'Reasoning 2', 'Raw answer 2', 'System prompt', 'Prompt', 'Schema of the answer']);
  assert.deepEqual(titles({ ...look, answer: '', error: 'late', exchanges: [{ request: '{}', answer: '', error: 'late' }] }),
    ['Request', 'Error', 'System prompt', 'Prompt']);
});

test('JSON is indented', () => {
  assert.equal(pretty('{"a":[1]}'), '{\n  "a": [\n    1\n  ]\n}');
  for (const text of ['{"a":', '<|im_start|>system', '']) assert.equal(pretty(text), text);
});
