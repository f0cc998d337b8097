import test from 'node:test';
import assert from 'node:assert/strict';
import { frameAges, load, metric, stages, steps, tokenRate } from '../src/numbers-series.js';

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

test('load out of Prometheus text', () => {
  const text = '# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 1.5\nfoo_child_cpu_seconds_total{pid="7"} 0.5\nother 3\nbad NaN\n';
  assert.equal(metric(text, /^process_cpu_seconds_total$|_child_cpu_seconds_total$/), 2);
  assert.ok(Number.isNaN(metric(text, /gpu/)));
  assert.equal(load({ at: 0, sec: 1 }, { at: 2000, sec: 1.5 }), 25);
  assert.ok(Number.isNaN(load(null, { at: 1, sec: 1 })));
  assert.ok(Number.isNaN(load({ at: 0, sec: 2 }, { at: 1000, sec: 1 })), 'the server was restarted');
});
