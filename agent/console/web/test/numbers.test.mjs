import test from 'node:test';
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { frameAges, gpuMemory, gradeWords, load, noLoadWords, reading, stages, steps, tokenRate } from '../src/numbers-series.js';

test('axis steps are round and reach the top', () => {
  assert.deepEqual(steps(3), [0, 1, 2, 3]);
  assert.deepEqual(steps(2.6), [0, 1, 2, 3]);
  assert.deepEqual(steps(0.5), [0, 0.2, 0.4, 0.6]);
  assert.deepEqual(steps(100), [0, 25, 50, 75, 100]);
  assert.deepEqual(steps(0), [0, 1]);
});

const record = {
  newest_frame_at: '2026-01-01T12:00:00Z', inference_start: '2026-01-01T12:00:00.1Z', started_at: '2026-01-01T12:00:02.4Z',
  first_word_sec: 0.6, first_audio_sec: 0.9, latency_sec: 1.2, tokens: 24, inference_sec: 1.2,
};

test('the stages add up to the moment it is shown', () => {
  const s = stages(record);
  assert.deepEqual(s.map((p) => p.name), ['pick up', 'first word', 'voice', 'hold']);
  assert.ok(Math.abs(s.reduce((a, p) => a + p.sec, 0) - 2.4) < 1e-9);
  assert.ok(s.every((p) => p.sec >= 0));
  const bare = stages({ newest_frame_at: record.newest_frame_at, latency_sec: 0, first_word_sec: 0, first_audio_sec: 0 });
  assert.ok(bare.every((p) => p.sec === 0));
});

test('ages and rates', () => {
  const a = frameAges(record);
  assert.equal(a.shown, 2.4);
  assert.equal(a.word, 0.6);
  assert.ok(Number.isNaN(frameAges({ ...record, first_audio_sec: 0 }).audio));
  assert.equal(tokenRate(record), 20);
  assert.ok(Number.isNaN(tokenRate({ inference_sec: 1 })));
});

const metrics = (name) => readFile(new URL(`metrics/${name}.txt`, import.meta.url), 'utf8');

test('load and memory out of the metrics of a GPU', async () => {
  const before = reading(await metrics('gpu-1'), 0);
  const after = reading(await metrics('gpu-2'), 2000);
  assert.equal(load(before, after, 'cpu').toFixed(1), '42.5');
  assert.equal(load(before, after, 'device').toFixed(1), '63.0');
  assert.equal(gpuMemory(after), '18.5 of 139.8 GiB');
  assert.ok(Number.isNaN(load(null, after, 'cpu')));
  assert.ok(Number.isNaN(load(after, { ...before, at: 4000 }, 'device')), 'the program was restarted');
});

test('an engine without a device has no line of its own', async () => {
  const before = reading(await metrics('scene'), 0);
  const after = reading((await metrics('scene')).replace('process_cpu_seconds_total 12.5', 'process_cpu_seconds_total 13'), 2000);
  assert.equal(load(before, after, 'cpu'), 25);
  assert.ok(Number.isNaN(load(before, after, 'device')));
  assert.equal(gpuMemory(after), '');
});

test('a shared link is told why it has no load', () => {
  assert.equal(noLoadWords(0), 'Collecting data.');
  assert.equal(noLoadWords(200), 'Collecting data.');
  assert.match(noLoadWords(403), /A shared link does not show them; open the page with its own token/);
  assert.match(noLoadWords(401), /shared link/);
  assert.equal(noLoadWords(500), 'The server answers 500.');
});

test('a generated world grades the comments', () => {
  const words = (name, grade) => gradeWords({ name, grade });
  assert.equal(words('match', { right: 18, wrong: 1, unjudged: 0, missed: 1 }), 'Last minute: 18 right, 1 wrong, 1 goal missed.');
  assert.equal(words('match', { right: 0, wrong: 0, unjudged: 2, missed: 0 }), 'Last minute: 0 right, 0 wrong, 2 not judged, no goal missed.');
  assert.equal(words('yard', { right: 4, wrong: 0, unjudged: 0, missed: 2 }), 'Last minute: 4 right, 0 wrong, 2 events missed.');
  assert.equal(words('yard', { right: 4, wrong: 0, unjudged: 0 }), 'Last minute: 4 right, 0 wrong.', 'an instruction may leave events out');
  assert.equal(gradeWords({ name: 'match' }), '', 'nothing was said yet');
  assert.equal(gradeWords(undefined), '', 'the truth of a camera is not known');
});
