import assert from 'node:assert/strict';
import test from 'node:test';
import { buffer, heardAfterSeen, median, playout, steer, straight } from '../src/sync.js';

test('buffer reads the work between two statistics', () => {
  const before = { jitterBufferDelay: 1, jitterBufferMinimumDelay: 2, jitterBufferEmittedCount: 100, totalProcessingDelay: 3, framesDecoded: 10 };
  const after = { jitterBufferDelay: 1.3, jitterBufferMinimumDelay: 2.6, jitterBufferEmittedCount: 110, totalProcessingDelay: 3.5, framesDecoded: 20 };
  const b = buffer(before, after);
  assert.equal(Math.round(b.delay), 30);
  assert.equal(Math.round(b.least), 60);
  assert.equal(Math.round(b.work), 50);
  assert.ok(Number.isNaN(buffer(undefined, after).delay), 'the first statistics');
  assert.ok(Number.isNaN(buffer(after, after).delay), 'nothing played');
  assert.ok(Number.isNaN(buffer({ jitterBufferDelay: 1, jitterBufferEmittedCount: 1 }, { jitterBufferDelay: 2, jitterBufferEmittedCount: 2 }).least));
});

test('playout is the delay of the loudspeaker', () => {
  assert.equal(Math.round(playout({ totalPlayoutDelay: 0, totalSamplesCount: 0 }, { totalPlayoutDelay: 1440, totalSamplesCount: 48000 })), 30);
  assert.ok(Number.isNaN(playout(undefined, undefined)));
});

test('median leaves out what is no number', () => {
  assert.equal(median([NaN, 3, 1, 2]), 2);
  assert.ok(Number.isNaN(median([])));
});

const voice = { delay: 80, least: 60, work: NaN };
const picture = { delay: 10, least: 12, work: 15 };

test('heardAfterSeen compares the ways from arrival to loudspeaker and screen', () => {
  assert.equal(heardAfterSeen({ voice, picture, output: 30, shown: [20, 35, 36] }), 85);
  assert.equal(heardAfterSeen({ voice, picture, output: 30, shown: [] }), 85, 'decoder and screen where pictures are not told');
  assert.ok(Number.isNaN(heardAfterSeen({ voice: { ...voice, delay: NaN }, picture, output: 30, shown: [20] })));
});

test('heardAfterSeen takes the capture times where the browser knows them', () => {
  const r = { voice, picture, output: 30, shown: [40, 40, 40], voiceAt: 1_000_000, pictureAt: 1_000_090 };
  assert.equal(heardAfterSeen(r), 65, 'less 25 ms from the decoder to the screen');
  assert.equal(heardAfterSeen({ ...r, shown: [] }), 70);
});

/** Players whose buffers follow their targets: the voice is heard, and the picture seen, some ms after arrival. */
function play(s, seconds, { own = 60, extra = 40, picture: work = 30, noise = () => 0, from = 0, frame = 1 } = {}) {
  let changes = 0;
  let off = 0;
  for (let i = 0; i < seconds; i++) {
    const heard = Math.max(own, s.voice) + extra;
    const seen = Math.ceil((Math.max(0, s.picture) + work) / frame) * frame;
    off = heard - seen + noise(i);
    const next = steer(s, off, own, from + i * 1000);
    if (next.picture !== s.picture || next.voice !== s.voice) changes++;
    s = next;
  }
  return { s, off, changes };
}

test('steer brings both together within seconds and then leaves them alone', () => {
  const { s, off } = play(straight(), 15);
  assert.equal(s.voice, 60);
  assert.ok(Math.abs(off) <= 12, `${off} ms apart`);
  const later = play(s, 600, { from: 15_000, noise: (i) => [7, -9, 3, -4, 25, -22][i % 6] });
  assert.equal(later.changes, 0);
});

test('steer follows a voice whose buffer grows, and keeps its target for a minute', () => {
  let { s } = play(straight(), 20);
  ({ s } = play(s, 20, { own: 140, from: 20_000 }));
  assert.equal(s.voice, 140);
  let end = play(s, 30, { own: 60, from: 40_000 });
  assert.equal(end.s.voice, 140);
  assert.ok(Math.abs(end.off) <= 12);
  end = play(end.s, 60, { own: 60, from: 70_000 });
  assert.equal(end.s.voice, 60);
  assert.ok(Math.abs(end.off) <= 12);
});

test('steer delays the voice where the picture is the later one', () => {
  const { s, off } = play(straight(), 30, { own: 20, extra: 10, picture: 180 });
  assert.equal(s.picture, 0);
  assert.ok(Math.abs(off) <= 12, `${off} ms apart`);
  const later = play(s, 200, { own: 20, extra: 10, picture: 180, from: 30_000 });
  assert.ok(Math.abs(later.off) <= 12, `${later.off} ms apart`);
  assert.equal(later.changes, 0, 'the target of its own does not undo it');
});

test('steer keeps the nearer of two frames of the screen', () => {
  for (const extra of [0, 8, 16, 24, 32, 40]) {
    const { s, off } = play(straight(), 90, { extra, frame: 33 });
    assert.ok(Math.abs(off) <= 17, `${off} ms apart`);
    assert.equal(play(s, 300, { extra, frame: 33, from: 90_000 }).changes, 0);
    const later = play(s, 90, { own: 140, extra, frame: 33, from: 90_000 });
    assert.ok(Math.abs(later.off) <= 20, `${later.off} ms apart when the voice's buffer has grown`);
  }
});

test('steer stays within its bounds, whatever it reads', () => {
  let { s } = play(straight(), 120, { own: 5000, extra: 5000 });
  assert.ok(s.voice <= 400 && s.picture <= 800);
  ({ s } = play(straight(), 120, { own: 0, extra: 0, picture: 5000 }));
  assert.ok(s.voice <= 400 && s.picture === 0);
  for (const bad of [NaN, Infinity, -Infinity]) {
    let b = straight();
    for (let i = 0; i < 20; i++) b = steer(b, bad, bad, i * 1000);
    assert.deepEqual([b.voice, b.picture], [0, 0]);
  }
});
