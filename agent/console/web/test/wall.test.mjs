import test from 'node:test';
import assert from 'node:assert/strict';
import { Wall, headline, hrefOf, nobody, tile } from '../src/wall.js';
import { chip, curtain } from '../src/view.js';

const info = (over = {}) => ({
  room: 'final', state: 'listening', chip: 'watching', percent: 100, speech: true, source: { width: 1280 }, viewers: 2,
  delay: 2.41, alignment_last: 0.031, alignment_p95: 0.08, comments: 3, newest: { cycle: 3, text: 'A goal.', at: '2026-05-01T12:00:00Z' }, ...over,
});

test('a tile says what goes on', () => {
  const t = tile(info(), '');
  assert.deepEqual(t.chip, { words: 'watching', tone: 'watch' });
  assert.equal(t.words, 'A goal.');
  assert.equal(t.at, Date.parse('2026-05-01T12:00:00Z'));
  assert.equal(t.behind, '2.4 s behind live');
  assert.equal(t.aligned, 'aligned 31 ms');
  assert.equal(t.viewers, '2 viewers');
  assert.ok(t.picture && !t.late && !t.live);
  assert.ok(tile(info({ alignment_last: 0.4 }), '').late);
  assert.equal(tile(info({ alignment_last: -1 }), '').aligned, '');
  assert.equal(tile(info({ newest: undefined }), '').words, 'No comments yet.');
  assert.equal(tile(info(), 'Offside').words, 'Offside');
});

test('a tile says why there is no picture', () => {
  const none = (over) => tile(info({ source: { width: 0 }, ...over }), '').none;
  assert.equal(none({ chip: 'waiting' }), 'No camera yet.');
  assert.equal(none({ chip: 'loading' }), 'The model is loading.');
  assert.equal(none({ chip: 'failed', reason: 'nothing listens' }), 'The model does not answer: nothing listens.');
  assert.equal(none({ chip: 'reconnecting' }), 'The commentator is joining the room.');
  assert.equal(tile(info(), '').none, '');
});

test('events find their room', () => {
  const w = new Wall();
  w.take('status', { room: 'final', chip: 'speaking' }); // before the list: nothing to change yet
  w.take('rooms', [info({ room: 'a/b' }), info()]);
  w.take('status', { room: 'final', state: 'speaking', chip: 'speaking', percent: 100 });
  w.take('caption', { room: 'final', text: 'Off' });
  assert.deepEqual(w.tiles.map((t) => [t.room, t.chip.words, t.words]), [['a/b', 'watching', 'A goal.'], ['final', 'speaking', 'Off']]);
  w.take('record', { room: 'final', outcome: 'silent', cycle: 4 });
  assert.equal(w.tiles[1].words, 'A goal.');
  w.take('record', { room: 'final', outcome: 'spoken', cycle: 5, text: 'Offside.', started_at: '2026-05-01T12:00:09Z' });
  assert.equal(w.tiles[1].words, 'Offside.');
  assert.ok(w.has('a/b'));
  w.take('room', info({ room: 'zoo', comments: 1 }));
  w.take('room', info({ room: 'b', viewers: 1 }));
  w.take('room', info({ room: 'a/b', viewers: 7 }));
  assert.deepEqual(w.tiles.map((t) => [t.room, t.viewers]), [['a/b', '7 viewers'], ['b', '1 viewer'], ['final', '2 viewers'], ['zoo', '2 viewers']]);
  w.take('caption', { room: 'zoo', text: 'Gone' });
  w.take('gone', { room: 'zoo' });
  w.take('gone', { room: 'zoo' });
  assert.ok(!w.has('zoo'));
  w.take('rooms', []);
  assert.equal(w.tiles.length, 0);
});

test('the address of a room', () => {
  assert.equal(hrefOf('süd/ 2?'), '/rooms/s%C3%BCd%2F%202%3F');
});

test('without rooms the page says how to get one', () => {
  assert.equal(nobody('open', 2), null);
  assert.match(nobody('open', 0).words, /No room has a commentator yet/);
  assert.ok(nobody('open', 0).line);
  assert.ok(nobody('locked', 2).login);
  assert.equal(nobody('locked', 2, 'this link has expired; ask for a new one').words, 'This link has expired; ask for a new one.');
  assert.match(nobody('lost', 0).words, /does not answer/);
  assert.equal(nobody('lost', 1), null, 'the tiles stay');
  assert.equal(headline('open', 1, 0), '1 room');
  assert.equal(headline('open', 0, 0), 'no rooms');
  assert.equal(headline('lost', 3, 2.2), 'retrying in 3 s');
});

test('the page of a room whose commentator has left says so, whatever it showed', () => {
  const known = { link: 'gone', picture: 'playing', http: false, snapshot: null, status: null };
  assert.equal(chip(known).words, 'no commentator');
  assert.equal(curtain(known).acts[0].id, 'rooms');
});
