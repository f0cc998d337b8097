import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deletion, HeardLines, became, deleteWords, hearingTitle, hearingWords, mayDelete } from '../src/heard.js';
import { Hold, microphoneSentence, talkState } from '../src/talk.js';
import { RoomError } from '../src/room.js';
import { State } from '../src/state.js';

const said = (segment, text, final = false, more = {}) => ({ segment, identity: 'ann', text, final, caption: true, ...more });

test('a line for each utterance, whose texts replace each other', () => {
  const lines = new HeardLines();
  const texts = () => lines.list.map((l) => l.text);
  lines.take(said('a', 'who'), 0);
  lines.take(said('b', 'the', false, { identity: 'ben' }), 10);
  lines.take(said('a', 'who has the ball?', true), 20);
  lines.take(said('a', 'who has'), 30); // late
  assert.deepEqual(texts(), ['who has the ball?', 'the']);
  lines.take(said('b', '', true), 40); // taken back
  assert.deepEqual(texts(), ['who has the ball?']);
  lines.take(said('c', 'never ended'), 50);
  lines.take(said('d', 'later', true), 60_000);
  assert.deepEqual(texts(), ['who has the ball?', 'later']);
  lines.take(said('e', 'and I', true, { identity: 'ben' }), 60_000);
  lines.forget('ann');
  assert.deepEqual(texts(), ['and I']);
  for (let i = 0; i < 50; i++) lines.take(said(`s${i}`, `line ${i}`, true), 60_000);
  assert.equal(lines.list.length, 20);
  assert.equal(lines.list.at(-1).text, 'line 49');
});

test('an order without its words is a line of its effect', () => {
  const lines = new HeardLines();
  const order = { text: '', command: 'shorter', effect: 'Comments are shorter.' };
  lines.take(said('a', '', true, { order }), 0);
  assert.deepEqual(lines.list.map((l) => [l.identity, l.text, became(l.order)?.words]), [['ann', '', 'Comments are shorter.']]);
  lines.take(said('a', '', true), 10); // deleted
  assert.deepEqual(lines.list, []);
});

test('the page reads the results of orders from the room', () => {
  const state = new State();
  const got = [];
  state.on('order', (heard) => got.push(heard.segment));
  for (const text of ['{"type": "heard", "segment": "a", "order": {"text": ""}}', '{"type": "order", "phase": "acts"}', '{"type": "heard", "segment": "b"}', 'none']) {
    state.spokenOrder(new TextEncoder().encode(text));
  }
  assert.deepEqual(got, ['a']);
});

test('what was said is deleted after a second click', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  assert.ok(mayDelete(['watch', 'transcribe', 'instruct']));
  assert.ok(!mayDelete(['watch', 'transcribe']));
  assert.ok(!mayDelete(['watch', 'instruct']));
  const log = [];
  let sent = 0;
  let answer = async () => {};
  const d = new Deletion(() => (sent++, answer()), (stage, err, done) => log.push(stage + (err ? `: ${err.message}` : '') + (done ? ', done' : '')));
  d.press();
  t.mock.timers.tick(4999);
  assert.equal(d.stage, 'asked');
  t.mock.timers.tick(1); // no second click
  assert.equal(d.stage, 'off');
  d.press();
  d.reset(); // the focus goes elsewhere
  assert.equal(d.stage, 'off');
  assert.equal(sent, 0);
  d.press();
  const end = d.press();
  d.press(); // while it is sent
  await end;
  assert.equal(sent, 1);
  answer = async () => {
    throw new Error('the store is full');
  };
  d.press();
  await d.press();
  assert.equal(d.stage, 'failed');
  answer = async () => {};
  await d.press(); // again
  assert.equal(sent, 3);
  assert.deepEqual(log, [
    'asked', 'off', 'asked', 'off', 'asked', 'sent', 'off, done', 'asked', 'sent', 'failed: the store is full', 'sent', 'off, done',
  ]);
  for (const stage of ['off', 'asked', 'sent', 'failed']) assert.ok(deleteWords(stage) && deleteWords(stage, true), stage);
});

test('what became of an order', () => {
  assert.equal(became(undefined), null);
  assert.deepEqual(became({ text: 'stop', command: 'stop', effect: 'Commenting has stopped.' }), { tone: 'on', words: 'Commenting has stopped.' });
  assert.deepEqual(became({ text: 'stop', refused: 'commenting is off' }), { tone: 'bad', words: 'not done: commenting is off' });
});

test('the words of a mode', () => {
  assert.equal(hearingWords(undefined), '');
  for (const mode of ['orders', 'captions', 'all']) assert.ok(hearingWords(mode) && hearingTitle(mode), mode);
});

test('why the button does not work, the first reason first', () => {
  const all = ['watch', 'instruct', 'settings'];
  const here = { secure: true, microphone: true, rights: all };
  const k = (more = {}, hearing = 'orders') => ({ link: 'open', status: { hearing }, room: 'joined', agent: true, mayTalk: true, ...more });
  assert.deepEqual(talkState(k(), here), { able: true, reason: '', offer: '' });
  assert.match(talkState(k({}, ''), { ...here, secure: false }).reason, /https/);
  assert.match(talkState(k(), { ...here, microphone: false }).reason, /no microphone/);
  assert.match(talkState(k({ link: 'lost' }), here).reason, /server/);
  assert.match(talkState(k(), { ...here, rights: ['watch'] }).reason, /does not allow orders/);
  assert.match(talkState(k({ room: 'lost' }), here).reason, /not in the room/);
  assert.match(talkState(k({ agent: false }), here).reason, /not in the room/);
  assert.match(talkState(k({ mayTalk: false }), here).reason, /does not allow a microphone/);
  assert.equal(talkState(k({}, ''), here).offer, 'orders');
  assert.equal(talkState(k({}, 'captions'), here).offer, 'all');
  assert.deepEqual(talkState(k({}, ''), { ...here, rights: ['watch', 'instruct'] }), { able: false, reason: 'The commentator does not listen for orders.', offer: '' });
});

test('refusals of the microphone', () => {
  assert.match(microphoneSentence(Object.assign(new Error('x'), { name: 'NotAllowedError' })), /not allowed/);
  assert.match(microphoneSentence(Object.assign(new Error('x'), { name: 'NotFoundError' })), /no microphone/);
  assert.match(microphoneSentence(Object.assign(new Error('x'), { name: 'NotReadableError' })), /in use/);
  assert.equal(microphoneSentence(new RoomError('talk: nobody is heard')), 'talk: nobody is heard');
  assert.match(microphoneSentence(new TypeError('x')), /could not be used/);
});

/** A room that says what is done to it; gate delays the microphone. */
function stand(gate = Promise.resolve()) {
  const log = [];
  const room = {
    async open() {
      await gate;
      log.push('open');
      return { stop: () => log.push('stop') };
    },
    async publish() {
      log.push('held');
      return { heard: Promise.resolve(), end: async () => void log.push('let go') };
    },
  };
  const hold = new Hold(room, (stage, err) => log.push(err ? `${stage}: ${err.message}` : stage));
  return { log, room, hold };
}
const settle = () => new Promise((done) => setTimeout(done));

test('a hold publishes the microphone until it is let go', async () => {
  const { log, hold } = stand();
  hold.press();
  hold.press(); // a second finger
  await settle();
  assert.deepEqual(log, ['opening', 'open', 'held', 'on']);
  hold.release();
  await hold.over;
  assert.deepEqual(log.slice(4), ['let go', 'off', 'stop']);
  hold.release();
  hold.press();
  await settle();
  assert.ok(hold.held);
  hold.release();
  await hold.over;
  assert.equal(log.filter((l) => l === 'let go').length, 2);
});

test('a hold that ends before the microphone opens publishes nothing', async () => {
  let open;
  const { log, hold } = stand(new Promise((done) => (open = done)));
  hold.press();
  await settle();
  hold.release();
  open();
  await hold.over;
  assert.deepEqual(log, ['opening', 'open', 'off', 'stop']);
});

test('a refused microphone ends the hold', async () => {
  const { log, room, hold } = stand();
  room.publish = async () => {
    throw new Error('nobody is heard');
  };
  hold.press();
  await hold.over;
  assert.deepEqual(log, ['opening', 'open', 'failed: nobody is heard', 'stop']);
  assert.ok(!hold.held);
});
