import test from 'node:test';
import assert from 'node:assert/strict';
import { Announcer, CaptionTrack, breakLines, linger } from '../src/caption-layout.js';

const chars = (s) => s.length;

test('lines break between words', () => {
  assert.deepEqual(breakLines('Red breaks down the left, two against one.', chars, 16), [['Red', 'breaks', 'down'], ['the', 'left,', 'two'], ['against', 'one.']]);
  assert.deepEqual(breakLines('  spaced   out ', chars, 40), [['spaced', 'out']]);
  assert.deepEqual(breakLines('', chars, 10), []);
});

test('a full line never changes when more words come', () => {
  const words = 'The keeper comes out and gathers it cleanly before the striker can get there at all'.split(' ');
  let before = [];
  for (let n = 1; n <= words.length; n++) {
    const lines = breakLines(words.slice(0, n).join(' '), chars, 20);
    for (let i = 0; i < before.length - 1; i++) assert.deepEqual(lines[i], before[i]);
    assert.ok(lines.every((l) => l.join(' ').length <= 20));
    before = lines;
  }
});

test('a word wider than the line is cut', () => {
  assert.deepEqual(breakLines('a Donaudampfschiff', chars, 6), [['a'], ['Donaud'], ['ampfsc'], ['hiff']]);
});

const event = (segment, text, final = false, cycle = 1) => ({ segment, cycle, delta: '', text, final, spoken: true });

test('the room has precedence, the events stand in', () => {
  const t = new CaptionTrack();
  t.fromEvents(event('a', 'Red breaks'), 0);
  assert.equal(t.current(1).text, 'Red breaks');
  t.fromRoom('a', 'Red', false, 10);
  assert.equal(t.current(11).text, 'Red', 'in step with the voice');
  t.fromEvents(event('a', 'Red breaks down'), 20);
  assert.equal(t.current(21).text, 'Red');
  assert.equal(t.current(1200).text, 'Red breaks down', 'the stream stalled');
  t.fromRoom('a', 'Red breaks down the left', false, 1300);
  assert.equal(t.current(1301).text, 'Red breaks down the left');
});

test('a screen reader says each comment once: not what the voice says, nor with captions off', () => {
  const a = new Announcer();
  const on = { captions: true, voice: false };
  const heard = { captions: true, voice: true };
  const caption = (segment, final, spoken = true) => ({ segment, text: `text ${segment}`, final, spoken });
  assert.equal(a.next(null, on), '');
  assert.equal(a.next(caption('a', false), on), '', 'not whole yet');
  assert.equal(a.next(caption('a', true), on), 'text a');
  assert.equal(a.next(caption('a', true), on), '', 'once');
  assert.equal(a.next(caption('b', true), heard), '', 'the voice says it');
  assert.equal(a.next(caption('b', true), on), '', 'and so it stays when the voice is muted afterwards');
  assert.equal(a.next(caption('c', true, false), heard), 'text c', 'the voice does not say it');
  assert.equal(a.next(caption('d', true), { captions: false, voice: false }), '');
  const t = new CaptionTrack();
  t.fromEvents({ ...event('e', 'Goal kick.', true), spoken: false }, 0);
  assert.equal(a.next(t.current(1), heard), 'Goal kick.');
});

test('a finished caption stays long enough to be read, then goes', () => {
  const t = new CaptionTrack();
  t.fromRoom('a', 'Goal kick.', false, 0);
  assert.equal(t.current(10_000).final, false, 'not finished: stays');
  t.fromRoom('a', 'Goal kick.', true, 10_000);
  assert.ok(t.current(10_000 + linger('Goal kick.') - 1));
  assert.equal(t.current(10_000 + linger('Goal kick.') + 1), null);
});

test('a caption whose speaker is gone does not stay for ever', () => {
  const t = new CaptionTrack();
  t.fromEvents(event('a', 'Throw-in for'), 0);
  assert.ok(t.current(11_000));
  assert.equal(t.current(13_000), null);
});

test('a new segment takes the place of the old one, also when the old one ends late', () => {
  const t = new CaptionTrack();
  t.fromRoom('a', 'First.', false, 0);
  t.fromRoom('b', 'Second', false, 10);
  t.fromRoom('a', 'First.', true, 20);
  assert.equal(t.current(21).segment, 'b');
});

test('whole texts sent again replace, and an empty final keeps the words', () => {
  const t = new CaptionTrack();
  t.fromRoom('a', 'Red scores', false, 0);
  t.fromRoom('a', 'Red scores!', true, 10);
  t.fromRoom('a', '', true, 20);
  assert.equal(t.current(21).text, 'Red scores!');
});

test('many segments do not pile up', () => {
  const t = new CaptionTrack();
  for (let i = 0; i < 1000; i++) t.fromEvents(event(`s${i}`, 'x', true), i);
  assert.equal(t.current(1000).segment, 's999');
  t.clear();
  assert.equal(t.current(1000), null);
});
