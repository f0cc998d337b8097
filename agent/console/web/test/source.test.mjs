import test from 'node:test';
import assert from 'node:assert/strict';
import { figures, hints, isChosen, rows, sourceSentence, stateWords, worldWords } from '../src/source-words.js';
import { banner, curtain } from '../src/view.js';

const since = '2026-01-01T12:00:00Z';
const now = Date.parse(since) + 12_000;
const source = (over = {}) => ({
  id: 'a', kind: 'rtsp', name: 'Gate', identity: 'source-a', watched: true, state: 'live', since, width: 1280, height: 720, codec: 'H264',
  fps: 25, bit_rate: 1_810_000, key_frame_interval: 1, sound: false, ...over,
});

test('a live source says what comes', () => {
  assert.equal(figures(source()), 'Live, H264 1280 × 720, 25 frames per s, 1.8 Mbit/s, key frames 1.0 s apart.');
  assert.equal(figures(source({ fps: 0, bit_rate: 0, key_frame_interval: 0, sound: true })), 'Live, H264 1280 × 720, with sound.');
  assert.equal(figures(source({ width: 0, fps: 4.5, bit_rate: 240_000, key_frame_interval: 0 })), 'Live, 4.5 frames per s, 0.24 Mbit/s.');
});

test('every other state has its sentence, with the reason and since when', () => {
  const words = (over) => stateWords(source(over), now).words;
  assert.equal(words({ state: 'connecting' }), 'Connecting.');
  assert.equal(words({ state: 'waiting', reason: 'the camera hung up' }), 'Waiting for the camera: the camera hung up, for 12 s. Retrying.');
  assert.equal(words({ state: 'waiting' }), 'Waiting for the camera, for 12 s. Retrying.');
  assert.equal(stateWords(source({ state: 'waiting', reason: 'x' }), now + 600_000).words, 'Waiting for the camera: x, for 10 min. Retrying.');
  assert.equal(words({ state: 'stalled' }), 'The camera is connected, but sends no picture, for 12 s.');
  assert.equal(words({ state: 'failed', reason: 'the camera refuses the user or the password.' }), 'Failed: the camera refuses the user or the password.');
  assert.equal(words({ state: 'ended' }), 'Ended.');
  assert.equal(stateWords(source({ state: 'failed' }), now).tone, 'bad');
});

test('the watched source is named', () => {
  const scene = { identity: 'scene', width: 1280, height: 720, codec: 'H264', fps: 30 };
  assert.equal(sourceSentence(scene, '', [], 'yard'), 'Watched: the generated yard, 1280 × 720, H264, 30 frames per s.');
  assert.equal(sourceSentence(scene, ''), 'Watched: the built-in scene, 1280 × 720, H264, 30 frames per s.');
  assert.match(sourceSentence({ ...scene, identity: 'source-a' }, '', [source()]), /^Watched: Gate,/);
  assert.match(sourceSentence({ ...scene, identity: 'mine' }, 'mine', [], ''), /^Watched: your camera,/);
  assert.equal(sourceSentence({ ...scene, width: 0 }, '', [], 'match'), 'No source yet.');
});

test('every generated world has a title and a description', () => {
  for (const name of ['match', 'yard']) assert.notEqual(worldWords(name).title, name);
  assert.equal(worldWords('harbour').title, 'harbour', 'also one that this page does not know');
});

test('a choice counts once its pictures come', () => {
  const at = (world, track, over = {}) => ({ source: { identity: 'scene', track, width: 640, ...over }, world: world ? { name: world } : undefined });
  const before = at('match', 'TR_1');
  assert.ok(!isChosen('world:yard', before, before));
  assert.ok(!isChosen('world:yard', at('yard', 'TR_1'), before), 'these are the pictures of the match');
  assert.ok(!isChosen('world:yard', at('yard', 'TR_2', { width: 0 }), before));
  assert.ok(isChosen('world:yard', at('yard', 'TR_2'), before));
  assert.ok(isChosen('world:match', before, before), 'it is on already');
  assert.ok(isChosen('camera:a:b', at('', 'TR_3', { identity: 'a:b' }), before));
  assert.ok(!isChosen('camera:a', before, before));
  assert.ok(isChosen('scene', before, at('', 'TR_3', { identity: 'phone' })));
  assert.ok(!isChosen('scene', before, before));
  assert.ok(isChosen('', before, before) && isChosen('scene', before, null));
});

test('what is to be set at the camera is said', () => {
  assert.deepEqual(hints(source()), []);
  assert.deepEqual(hints(source({ transcoded: 'common browsers play no H265', advice: 'Set it.' })), ['Transcoded here: common browsers play no H265.', 'Set it.']);
});

test('the list has each camera once, those of the server first', () => {
  const cameras = [
    { identity: 'scene', kind: 'camera', watched: false }, { identity: 'source-a', name: 'Gate', kind: 'camera', watched: true },
    { identity: 'camera-x', name: 'Browser camera', kind: 'camera', watched: false, muted: true }, { identity: 'phone', kind: 'camera', watched: false },
  ];
  const list = rows([source({ fixed: true })], cameras, 'camera-x');
  assert.deepEqual(list.map((r) => r.name), ['Gate', 'Your own', 'phone']);
  assert.deepEqual(list.map((r) => r.removable), [false, false, false]);
  assert.ok(list[1].own && list[1].muted);
  assert.ok(rows([source()], [], '')[0].removable);
  assert.deepEqual(rows([], [], ''), []);
});

test('a camera that is away is said over the picture and in its place', () => {
  const known = (over = {}) => ({
    link: 'open', room: 'joined', agent: true, agentVideo: true, picture: 'playing', http: false, failure: null, publishing: false,
    status: { chip: 'waiting', state: 'idle', percent: 100, detail: 'the camera hung up' },
    snapshot: { settings: {}, delay: 2, source: { width: 0 }, scene: false, sources: [source({ state: 'waiting', reason: 'the camera hung up' })] }, ...over,
  });
  assert.equal(banner(known(), now).words, 'Waiting for the camera: the camera hung up. This is its last picture.');
  assert.deepEqual(banner(known(), now).acts.map((a) => a.id), ['camera'], 'there is no scene to offer');
  const c = curtain(known({ picture: 'none' }));
  assert.equal(c.words, 'Waiting for the camera.');
  assert.equal(c.more, 'The camera hung up.');
});
