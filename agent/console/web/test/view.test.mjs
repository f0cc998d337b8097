import test from 'node:test';
import assert from 'node:assert/strict';
import { alignment, banner, chip, curtain, engine, instructionState, meanwhile, tally, voiceNote } from '../src/view.js';

const snapshot = (over = {}) => ({ settings: { speech: true }, source: { width: 1280, height: 720, fps: 30 }, delay: 2.4, comments: 0, ...over });
const status = (chip, over = {}) => ({ chip, state: 'listening', percent: 100, ...over });
const known = (over = {}) => ({
  link: 'open', room: 'joined', agent: true, agentVideo: true, picture: 'playing', http: false,
  snapshot: snapshot(), status: status('watching'), failure: null, publishing: false, ...over,
});

test('the chip says it in words', () => {
  const words = (over) => chip(known(over)).words;
  assert.equal(words({ status: status('waiting') }), 'waiting for the camera');
  assert.equal(words({ status: status('loading', { percent: 41.6 }) }), 'loading the model, 42 %');
  assert.equal(words({}), 'watching');
  assert.equal(words({ status: status('thinking') }), 'thinking');
  assert.equal(words({ status: status('speaking') }), 'speaking');
  assert.equal(words({ status: status('speaking'), snapshot: snapshot({ settings: { speech: false } }) }), 'writing, voice off');
  assert.equal(words({ status: status('silent', { detail: 'nothing changed' }) }), 'silent: nothing changed');
  assert.equal(words({ status: status('silent'), snapshot: snapshot({ settings: { speech: false } }) }), 'silent: you switched speech off');
  assert.equal(words({ status: status('idle') }), 'idle: no instruction');
  assert.equal(words({ status: status('reconnecting') }), 'reconnecting');
});

test('without the server the chip does not repeat what was true once', () => {
  assert.equal(chip(known({ link: 'lost', status: status('speaking') })).words, 'reconnecting');
  assert.equal(chip(known({ link: 'connecting', status: null })).words, 'connecting');
  assert.equal(chip(known({ link: 'locked' })).words, 'locked');
});

test('every reason for no picture has its sentence, and a button where one helps', () => {
  const none = (over) => curtain(known({ picture: 'none', ...over }));
  assert.equal(curtain(known()), null);
  assert.equal(curtain(known({ picture: 'stalled' })), null);
  assert.ok(none({ link: 'locked' }).login);
  assert.equal(none({ link: 'locked' }).words, 'A token is required.');
  assert.equal(none({ link: 'locked', why: 'this link was revoked' }).words, 'This link was revoked.');
  const lost = none({ link: 'lost', retryIn: 2.2 });
  assert.match(lost.words, /server does not answer/);
  assert.match(lost.more, /in 3 s/);
  assert.deepEqual(lost.acts.map((a) => a.id), ['retry']);
  assert.equal(none({ status: status('loading', { percent: 12 }) }).percent, 12);
  assert.deepEqual(none({ room: 'lost', roomError: 'The LiveKit server does not answer.' }).acts.map((a) => a.id), ['join', 'http']);
  assert.match(none({ room: 'joining' }).words, /Joining/);
  assert.match(none({ room: 'joining', roomError: 'A firewall may be in the way.' }).more, /firewall/, 'while it is tried again, too');
  assert.match(none({ room: 'replaced' }).words, /open elsewhere/);
  assert.deepEqual(none({ status: status('waiting') }).acts.map((a) => a.id), ['camera', 'scene']);
  assert.deepEqual(none({ status: status('waiting'), publishing: true }).acts, []);
  assert.match(none({ agent: false }).words, /commentator is not in the room/);
  assert.match(none({ agentVideo: false }).words, /not published/);
  assert.match(none({}).more, /delayed by 2\.4 s/);
  const played = (codecs, codec) => none({ codecs, snapshot: snapshot({ source: { width: 1280, height: 720, codec } }) });
  assert.match(played(['VP8', 'AV1'], 'H264').words, /does not play H264/);
  assert.match(played(['VP8', 'AV1'], 'H264').more, /OpenH264/);
  assert.doesNotMatch(played(['VP8', 'H264'], 'H265').more, /OpenH264/);
  assert.deepEqual(played(['VP8'], 'H264').acts.map((a) => a.id), ['http']);
  for (const fine of [played(['VP8', 'H264'], 'H264'), played([], 'H264'), played(['VP8'], '')]) assert.match(fine.words, /Waiting for the picture/);
});

test('what goes wrong over a picture has one sentence', () => {
  assert.match(banner(known({ picture: 'none', http: true, room: 'lost', roomError: 'No media here.' }), 0).words, /frame rate\. No media here/);
  assert.equal(banner(known(), 0), null);
  assert.match(banner(known({ link: 'lost', retryIn: 0.4 }), 0).words, /does not answer\. Retrying in 1 s/);
  assert.match(banner(known({ room: 'reconnecting' }), 0).words, /Reconnecting/);
  assert.match(banner(known({ status: status('waiting'), snapshot: snapshot({ source: { width: 0 } }) }), 0).words, /camera has left/);
  assert.match(banner(known({ snapshot: snapshot({ source: { width: 0 } }) }), 0).words, /camera has left/);
  const switching = snapshot({ source: { identity: 'ann', width: 0 } });
  assert.equal(banner(known({ snapshot: switching }), 0), null, 'another camera was chosen; the last one is not gone');
  assert.match(banner(known({ status: status('waiting'), snapshot: switching }), 0).words, /camera has left/);
  assert.match(banner(known({ snapshot: snapshot({ source: { width: 10, muted: true } }) }), 0).words, /paused/);
  assert.match(banner(known({ picture: 'stalled' }), 0).words, /No new picture/);
  assert.match(banner(known({ status: status('reconnecting') }), 0).words, /lost its connection/);
  const failure = { reason: 'the model server answered 500', at: 1000 };
  assert.equal(banner(known({ failure }), 2000).words, 'The model does not answer: the model server answered 500. Retrying with the next frames.');
  assert.equal(banner(known({ failure }), 60_000), null, 'not for ever');
});

test('a model that failed is not taken for a camera that is gone', () => {
  const st = status('failed', { detail: 'it cannot be reached; start the model server or set inference.remote.url' });
  const said = 'The model does not answer: it cannot be reached; start the model server or set inference.remote.url.';
  assert.deepEqual(chip(known({ status: st })), { words: 'the model does not answer', tone: 'alarm' });
  assert.deepEqual(banner(known({ status: st }), 0), { words: said, tone: 'alarm', acts: [] });
  assert.equal(banner(known({ status: st, failure: { reason: 'x', at: 0 } }), 0).words, said, 'the lasting failure goes before that of one look');
  assert.equal(banner(known({ status: status('failed') }), 0).words, 'The model does not answer.');
  assert.equal(meanwhile(known({ status: st })), said);
  const cur = curtain(known({ status: st, picture: 'none' }));
  assert.equal(cur.words, said);
  assert.doesNotMatch(cur.more, /camera/);
  assert.deepEqual(cur.acts, []);
  assert.equal(banner(known({ status: st, picture: 'none' }), 0), null, 'not said twice');
  const nobody = curtain(known({ status: st, picture: 'none', snapshot: snapshot({ source: { width: 0 } }) }));
  assert.equal(nobody.words, said);
  assert.deepEqual(nobody.acts.map((a) => a.id), ['camera', 'scene']);
});

test('alignment is a tick or a figure', () => {
  assert.deepEqual(alignment({ aligned: true, alignment_error: 0.031, outcome: 'spoken' }).text, '31 ms');
  assert.equal(alignment({ aligned: true, alignment_error: 0.031 }).tone, 'good');
  assert.equal(alignment({ aligned: true, alignment_error: 0.34 }).text, '340 ms late');
  assert.equal(alignment({ aligned: true, alignment_error: -1.26 }).text, '1.3 s early');
  assert.equal(alignment({ aligned: false, alignment_error: 0 }).text, '');
  assert.equal(alignment({ outcome: 'dropped' }).tone, 'bad');
});

test('silence is counted, not listed', () => {
  assert.equal(tally(snapshot({ comments: 1, silent: 3, late: 2 })), '1 comment, 3 silent, 2 late');
  assert.equal(tally(null), '');
});

test('between comments the place of the current one says what goes on', () => {
  assert.match(meanwhile(known()), /Watching/);
  assert.equal(meanwhile(known({ status: status('silent', { detail: 'nothing changed' }) })), 'Silent: nothing changed.');
  assert.equal(meanwhile(known({ link: 'lost' })), '');
});

test('a voice that is missing is told in words', () => {
  assert.equal(voiceNote(snapshot({ voice_problem: 'the program flite was not found' })), 'voice: the program flite was not found');
  assert.equal(voiceNote(snapshot()), '');
  assert.equal(voiceNote(null), '');
});

test('the line under the instruction box', () => {
  const words = (stage, over) => instructionState(stage, 'the goals', 'Too long.', snapshot(over)).words;
  assert.match(words('rest', { instruction: '' }), /^No instruction\./);
  assert.match(words('rest', { instruction: 'the keeper', instruction_by: 'Anna' }), /^Active: “the keeper”, set by Anna\./);
  assert.equal(words('sent'), 'Sent: “the goals”. It applies from the next frame.');
  assert.match(words('acted', { instruction: 'the goals' }), /It has acted\.$/);
  assert.match(words('acted', { instruction: 'the goals', capabilities: { instructions: true } }), /It has acted\.$/);
  assert.equal(words('failed'), 'Too long.');
  assert.equal(words('done'), 'Too long.');
  const waiting = [{ instruction: 'the goals', by: 'Ben', acts_at: '' }];
  assert.equal(words('waits', { instruction_by: 'Anna', waiting }), '“the goals” waits: the instruction of Anna holds for a moment.');
  assert.match(words('rest', { instruction: 'the keeper', waiting }), / Next: “the goals”, from Ben\.$/);
  assert.equal(instructionState('rest', '', '', null).unread, false);
});

test('an engine that reads no instructions has no box, and nothing has acted', () => {
  for (const stage of ['rest', 'sent', 'set', 'acted']) {
    const line = instructionState(stage, 'the goals', 'x', snapshot({ engine: 'scene', instruction: 'the goals', capabilities: { instructions: false } }));
    assert.deepEqual(line, { tone: '', words: 'The scene engine does not read instructions.', unread: true });
  }
  const unread = snapshot({ engine: 'scene', capabilities: { instructions: false } });
  assert.deepEqual(instructionState('done', '', 'The voice is at +6 dB.', unread), { tone: '', words: 'The voice is at +6 dB.', unread: true });
  assert.deepEqual(instructionState('failed', '', 'No.', unread), { tone: 'bad', words: 'No.', unread: true });
});

test('the engine is named, with its limits', () => {
  assert.deepEqual(engine(null), { name: '', note: '' });
  assert.deepEqual(engine(snapshot({ engine: 'scene', engine_note: 'No model.' })), { name: 'scene', note: 'No model.' });
  const nano = snapshot({ engine: 'nano', engine_note: 'It knows no other pictures.' });
  for (const name of ['match', 'yard']) {
    assert.deepEqual(engine({ ...nano, world: { name } }), { name: 'nano, a small model trained on scenes like this', note: '' });
  }
  assert.deepEqual(engine(nano), { name: 'nano', note: 'It knows no other pictures.' }, 'of another picture it must not say that');
});
