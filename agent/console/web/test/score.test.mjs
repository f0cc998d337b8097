import test from 'node:test';
import assert from 'node:assert/strict';
import { Underway, cycleOf, hit, layout, placed, rowCount } from '../src/score-layout.js';

const NOW = Date.parse('2026-01-01T12:00:00Z');
const iso = (ms) => new Date(ms).toISOString();

/** A record whose newest frame came `ago` ms before NOW. */
function record(ago, over = {}) {
  const base = NOW - ago;
  const delay = over.delay ?? 2.4;
  const error = over.alignment_error ?? 0;
  return {
    cycle: 7, outcome: 'spoken', text: 'Goal.', frame_ids: [1, 2, 3, 4], frame_at: [600, 400, 200, 0].map((d) => iso(base - d)),
    oldest_frame_at: iso(base - 600), newest_frame_at: iso(base), inference_start: iso(base), inference_end: iso(base + 1000), inference_sec: 1,
    delay, target_delay: delay, shown_at: iso(base + delay * 1000), started_at: iso(base + (delay + error) * 1000), ended_at: iso(base + (delay + error) * 1000 + 3000),
    alignment_error: error, aligned: true, late: error > 0.1, ...over,
  };
}

const view = (over = {}) => ({ now: NOW, delay: 2400, width: 600, height: 142, ...over }); // 10 px a second

test('live is the right edge, the picture is D to its left', () => {
  const l = layout([], view());
  assert.equal(l.liveX, 600);
  assert.equal(l.nowX, 576);
});

test('frames sit where they were seen, an aligned comment begins on its newest frame', () => {
  const { marks } = layout([cycleOf(record(20_000), 0, 0)], view());
  const [m] = marks;
  assert.deepEqual(m.dots, [394, 396, 398, 400]);
  assert.equal(m.speech[0], 400);
  assert.equal(m.speech[1], 430);
  assert.deepEqual(m.think, [376, 386], 'thinking happened while the picture was D behind');
  assert.equal(m.tail, null);
});

test('what happens now happens on the line of the picture', () => {
  assert.equal(placed(NOW, 2400), NOW - 2400);
  const u = new Underway();
  u.status({ state: 'thinking', chip: 'thinking', percent: 100 }, NOW - 1000, { capture_fps: 5, frames_per_look: 4, frame_stride: 1 });
  const { marks, nowX } = layout(u.cycles(NOW, 2400, 0), view());
  assert.equal(marks[0].think[1], nowX);
  assert.equal(marks[0].dots.at(-1), 590);
});

test('a late comment has a tail from where it should have begun, an early one too', () => {
  const late = layout([cycleOf(record(20_000, { alignment_error: 0.9 }), 0, 0)], view()).marks[0];
  assert.deepEqual(late.tail, [400, 409]);
  assert.equal(late.speech[0], 409);
  const early = layout([cycleOf(record(20_000, { alignment_error: -0.5 }), 0, 0)], view()).marks[0];
  assert.deepEqual(early.tail, [400, 395]);
  const fine = layout([cycleOf(record(20_000, { alignment_error: 0.099 }), 0, 0)], view()).marks[0];
  assert.equal(fine.tail, null);
  const unmeasured = layout([cycleOf(record(20_000, { alignment_error: 0.9, aligned: false }), 0, 0)], view()).marks[0];
  assert.equal(unmeasured.tail, null);
});

test('cycles without words lie in the lane at the bottom, with the delay of now', () => {
  const r = record(20_000, { outcome: 'silent', text: '', delay: 0, started_at: undefined, ended_at: '0001-01-01T00:00:00Z' });
  const m = layout([cycleOf(r, -1, 2.4)], view()).marks[0];
  assert.equal(m.quiet, true);
  assert.equal(m.speech, null);
  assert.deepEqual(m.think, [376, 386]);
  assert.ok(m.y > 110);
});

test('a comment keeps its row for life and neighbours have different ones', () => {
  const rows = rowCount(142);
  assert.ok(rows >= 5);
  const all = Array.from({ length: 14 }, (_, i) => cycleOf(record(58_000 - i * 4000), i, 0));
  const ys = layout(all, view()).marks.map((m) => m.y);
  for (let i = 1; i < ys.length; i++) assert.notEqual(ys[i], ys[i - 1]);
  const later = layout(all.slice(3), view({ now: NOW + 12_000 })).marks.map((m) => m.y);
  assert.deepEqual(later, ys.slice(3));
});

test('what has left the sheet is not laid out', () => {
  assert.equal(layout([cycleOf(record(90_000), 0, 0)], view()).marks.length, 0);
  assert.equal(layout([cycleOf({ cycle: 1, outcome: 'failed', frame_ids: [] }, -1, 0)], view()).marks.length, 0);
});

test('a point finds its cycle', () => {
  const { marks } = layout([cycleOf(record(20_000), 0, 0), cycleOf(record(10_000), 1, 0)], view());
  assert.equal(hit(marks, 410, marks[0].y).cycle.seq, 0);
  assert.equal(hit(marks, 510, marks[1].y).cycle.seq, 1);
  assert.equal(hit(marks, 200, marks[0].y), null);
});

test('a cycle under way grows, speaks, and is closed by its record', () => {
  const u = new Underway();
  const status = (state) => ({ state, chip: state, percent: 100 });
  u.status(status('thinking'), NOW, undefined);
  u.status(status('thinking'), NOW + 100, undefined);
  u.status(status('listening'), NOW + 900, undefined);
  assert.deepEqual(u.cycles(NOW + 1500, 2400, 3).map((c) => [c.seq, c.think, c.speech]), [[3, [NOW, NOW + 900], null]]);
  u.caption({ segment: 'a', cycle: 7, delta: 'Goal', text: 'Goal', final: false }, NOW + 2400);
  u.status(status('thinking'), NOW + 2500, undefined);
  u.caption({ segment: 'a', cycle: 7, delta: '', text: 'Goal.', final: true }, NOW + 3400);
  const [first, second] = u.cycles(NOW + 4000, 2400, 3);
  assert.deepEqual(first.speech, [NOW + 2400, NOW + 3400]);
  assert.deepEqual(second.think, [NOW + 2500, NOW + 4000]);
  u.record(cycleOf(record(0, { cycle: 7, inference_start: iso(NOW) }), 3, 0));
  assert.equal(u.cycles(NOW + 4000, 2400, 4).length, 1);
  u.clear();
  assert.equal(u.cycles(NOW + 4000, 2400, 4).length, 0);
});

test('frames may be missing from a record', () => {
  const c = cycleOf({ cycle: 1, outcome: 'spoken', frame_ids: [], oldest_frame_at: iso(NOW - 1000), newest_frame_at: iso(NOW) }, 0, 0);
  assert.deepEqual(c.frames, [NOW - 1000, NOW]);
  assert.equal(c.anchor, NOW);
});
