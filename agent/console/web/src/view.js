/**
 * The texts of the page: the state chip, the words over the picture, the banner. Without a DOM.
 */
import { ago } from './words.js';

/**
 * @typedef {object} Known
 * @property {'connecting' | 'open' | 'lost' | 'locked' | 'gone'} link to the server; gone: it does not have the room
 * @property {number} [retryIn] s until the next attempt
 * @property {string} [why] how this page's right ended, while it is locked
 * @property {'waiting' | 'joining' | 'joined' | 'reconnecting' | 'lost' | 'replaced'} room
 * @property {string} [roomError]
 * @property {boolean} agent the commentator is in the room
 * @property {boolean} agentVideo it publishes a picture
 * @property {boolean} cameraSound it publishes the camera's sound, and it is played here
 * @property {'none' | 'playing' | 'stalled'} picture
 * @property {boolean} http the picture comes by plain HTTP
 * @property {import('./types.js').Snapshot | null} snapshot
 * @property {import('./types.js').Status | null} status
 * @property {{reason: string, at: number} | null} failure of the last cycle; at in ms
 * @property {boolean} publishing this browser's camera is on
 * @property {number} [heardAfterSeen] ms from the picture on this screen to its voice; NaN if unknown
 * @property {boolean} [mayTalk] the room allows a microphone on this page
 * @property {string[]} [codecs] codecs that this browser plays, such as "H264"; unknown when empty
 *
 * @typedef {object} Act
 * @property {string} id
 * @property {string} label
 */

/** @param {Known} k @returns {{words: string, tone: string}} */
export function chip(k) {
  if (k.link === 'locked') return { words: 'locked', tone: 'alarm' };
  if (k.link === 'gone') return { words: 'no commentator', tone: 'quiet' };
  if (k.link === 'lost') return { words: 'reconnecting', tone: 'alarm' };
  const s = k.status;
  if (k.link === 'connecting' || !s) return { words: 'connecting', tone: 'quiet' };
  const why = s.detail ? `: ${s.detail}` : '';
  const mute = k.snapshot?.settings?.speech === false;
  switch (s.chip) {
    case 'waiting':
      return { words: 'waiting for the camera', tone: 'wait' };
    case 'loading':
      return { words: `loading the model, ${Math.round(s.percent)} %`, tone: 'wait' };
    case 'failed':
      return { words: 'the model does not answer', tone: 'alarm' };
    case 'watching':
      return { words: 'watching', tone: 'watch' };
    case 'thinking':
      return { words: 'thinking', tone: 'think' };
    case 'speaking':
      return mute ? { words: 'writing, voice off', tone: 'speak' } : { words: 'speaking', tone: 'speak' };
    case 'silent':
      return { words: `silent${why || (mute ? ': you switched speech off' : ': nothing to say')}`, tone: 'quiet' };
    case 'idle':
      return { words: `idle${why || ': no instruction'}`, tone: 'quiet' };
    case 'reconnecting':
      return { words: 'reconnecting', tone: 'alarm' };
    default:
      return { words: s.chip || s.state, tone: 'quiet' };
  }
}

/** The words of a page without a right. @param {string} [why] how its right ended */
export function locked(why) {
  const more = 'Enter the configured token, or the one printed when Touchline started.';
  return { words: why ? sentence(why[0].toUpperCase() + why.slice(1)) : 'A token is required.', more, login: true };
}

/**
 * The words in place of a missing picture; null with a picture.
 * @param {Known} k
 * @returns {{words: string, more?: string, percent?: number, login?: boolean, acts: Act[]} | null}
 */
export function curtain(k) {
  if (k.link === 'locked') return { ...locked(k.why), acts: [] };
  if (k.link === 'gone') {
    return {
      words: 'No commentator is in this room.',
      more: 'It has left, or another worker serves the room. This page continues when a commentator joins.',
      acts: [{ id: 'rooms', label: 'All rooms' }],
    };
  }
  if (k.picture !== 'none' || k.http) return null;
  if (k.link === 'lost') {
    return {
      words: 'The server does not answer.',
      more: k.retryIn ? `Retrying in ${Math.ceil(k.retryIn)} s.` : 'Retrying.',
      acts: [{ id: 'retry', label: 'Retry now' }],
    };
  }
  if (k.link === 'connecting' || !k.snapshot) return { words: 'Loading…', acts: [] };
  const st = k.status;
  if (st?.chip === 'loading') {
    return {
      words: `Loading the model, ${Math.round(st.percent)} %.`,
      more: st.detail || 'The picture starts when the model is loaded.',
      percent: st.percent,
      acts: [],
    };
  }
  if (k.room === 'replaced') {
    return { words: 'This page is open elsewhere under the same name.', acts: [{ id: 'join', label: 'Watch here' }] };
  }
  if (k.room === 'lost' || (k.room === 'joining' && k.roomError)) {
    return {
      words: 'Could not join the room.',
      more: [k.roomError, 'Comments still arrive. Retrying.'].filter(Boolean).join(' '),
      acts: [{ id: 'join', label: 'Retry now' }, { id: 'http', label: 'Picture without WebRTC' }],
    };
  }
  if (k.room === 'waiting' || k.room === 'joining') return { words: 'Joining the room.', acts: [] };
  if (k.room === 'reconnecting') return { words: 'Connection to the room lost. Reconnecting.', acts: [] };
  const camera = k.snapshot.source?.width > 0;
  if (st?.chip === 'failed') {
    return {
      words: modelFailed(st.detail),
      more: camera ? 'The picture has no commentary.' : 'There is no camera either.',
      acts: camera || k.publishing ? [] : others(k, 'Show the built-in scene'),
    };
  }
  if (st?.chip === 'waiting' || !camera) {
    const away = k.snapshot.sources?.some((s) => s.watched && s.state !== 'live');
    return {
      words: k.publishing ? 'Connecting your camera.' : away ? 'Waiting for the camera.' : 'No camera yet.',
      more: (st?.detail && sentence(st.detail[0].toUpperCase() + st.detail.slice(1))) || 'The first camera to join the room is used.',
      acts: k.publishing ? [] : others(k, 'Show the built-in scene'),
    };
  }
  if (!k.agent) return { words: 'The commentator is not in the room.', more: 'Picture and voice start when it joins.', acts: [] };
  if (!k.agentVideo) return { words: 'The delayed picture is not published yet.', acts: [{ id: 'http', label: 'Picture without WebRTC' }] };
  const codec = k.snapshot.source.codec;
  if (codec && k.codecs?.length && !k.codecs.includes(codec)) {
    return {
      words: `This browser does not play ${codec}.`,
      more: (codec === 'H264' ? 'A new Firefox downloads OpenH264 within minutes; reload the page then. ' : '') +
        'Captions and voice still work.',
      acts: [{ id: 'http', label: 'Picture without WebRTC' }],
    };
  }
  const behind = k.snapshot.delay > 0.2 ? `It is delayed by ${k.snapshot.delay.toFixed(1)} s, so that the comments match.` : '';
  return { words: 'Waiting for the picture.', more: behind, acts: [] };
}

/**
 * The sentence over the picture about a problem; null without one.
 * @param {Known} k @param {number} now ms, the server's
 * @returns {{words: string, tone: 'alarm' | 'wait', acts: Act[]} | null}
 */
export function banner(k, now) {
  if (k.link === 'locked' || k.link === 'gone') return null;
  const pictured = k.picture !== 'none' || k.http;
  if (pictured && k.link === 'lost') {
    const when = k.retryIn ? `Retrying in ${Math.ceil(k.retryIn)} s.` : 'Retrying.';
    return { words: `The server does not answer. ${when}`, tone: 'alarm', acts: [{ id: 'retry', label: 'Retry now' }] };
  }
  if (pictured && !k.http && k.room === 'replaced') {
    return { words: 'This page is open elsewhere under the same name.', tone: 'wait', acts: [{ id: 'join', label: 'Watch here' }] };
  }
  if (pictured && !k.http && (k.room === 'reconnecting' || k.room === 'lost')) {
    return { words: 'Connection to the room lost. Reconnecting.', tone: 'alarm', acts: [{ id: 'join', label: 'Retry now' }] };
  }
  if (k.link !== 'open') return null;
  const st = k.status;
  if (st?.chip === 'reconnecting') {
    return { words: 'The commentator lost its connection and is reconnecting.', tone: 'alarm', acts: [] };
  }
  if (st?.chip === 'failed') return pictured ? { words: modelFailed(st.detail), tone: 'alarm', acts: [] } : null; // the curtain shows it
  if (k.failure && now - k.failure.at < 20_000) {
    return { words: `${modelFailed(k.failure.reason || 'no reason given')} Retrying with the next frames.`, tone: 'alarm', acts: [] };
  }
  if (pictured && st?.chip === 'loading') {
    return { words: `Loading the model, ${Math.round(st.percent)} %. The picture continues.`, tone: 'wait', acts: [] };
  }
  // A camera with a name and no size was just chosen; its first picture will come.
  const source = k.snapshot?.source;
  if (pictured && (st?.chip === 'waiting' || (k.snapshot && !(source?.width > 0) && !source?.identity))) {
    const away = k.snapshot?.sources?.find((s) => s.watched && s.state !== 'live');
    return {
      words: away?.reason ? `Waiting for the camera: ${sentence(away.reason)} This is its last picture.` : 'The camera has left. This is its last picture.',
      tone: 'wait',
      acts: k.publishing ? [] : others(k, 'Built-in scene'),
    };
  }
  if (pictured && source?.muted) return { words: 'The camera is paused by its owner.', tone: 'wait', acts: [] };
  if (k.http && k.roomError) return { words: `Low frame rate. ${k.roomError}`, tone: 'wait', acts: [] };
  if (!k.http && k.picture === 'stalled' && k.room === 'joined') {
    return { words: 'No new picture for several seconds.', tone: 'wait', acts: [] };
  }
  return null;
}

/** The other sources to watch. @param {Known} k @param {string} scene the label of the built-in one */
function others(k, scene) {
  const acts = [{ id: 'camera', label: 'Use this camera' }];
  if (k.snapshot?.scene !== false) acts.push({ id: 'scene', label: scene });
  return acts;
}

/**
 * The words in place of the comment in progress, without one.
 * @param {Known} k
 */
export function meanwhile(k) {
  if (k.link !== 'open' || !k.status) return '';
  const { chip: now, detail } = k.status;
  switch (now) {
    case 'watching':
      return 'Watching.';
    case 'thinking':
      return 'Thinking.';
    case 'silent':
      return detail ? sentence(`Silent: ${detail}`) : 'Nothing to say for now.';
    case 'idle':
      return detail ? sentence(detail[0].toUpperCase() + detail.slice(1)) : 'Waiting for an instruction.';
    case 'waiting':
      return 'No picture.';
    case 'loading':
      return 'Waiting for the model.';
    case 'failed':
      return modelFailed(detail);
    default:
      return '';
  }
}

/**
 * The line under the instruction box. With an engine that reads no instructions, unread is
 * true and the line replaces the box.
 * @param {'rest' | 'sent' | 'waits' | 'set' | 'acted' | 'done' | 'failed'} stage of the instruction sent here; done: a command
 * @param {string} sent that instruction @param {string} failure why it failed, or what the command did
 * @param {import('./types.js').Snapshot | null} s
 * @returns {{tone: string, words: string, unread: boolean}}
 */
export function instructionState(stage, sent, failure, s) {
  if (s?.capabilities?.instructions === false) {
    const words = stage === 'done' || stage === 'failed' ? failure : `The ${s.engine} engine does not read instructions.`;
    return { tone: stage === 'failed' ? 'bad' : '', words, unread: true };
  }
  const active = s?.instruction ?? '';
  const by = s?.instruction_by ? `, set by ${s.instruction_by}` : '';
  const next = s?.waiting?.[0];
  const then = next ? ` Next: “${next.instruction}”, from ${next.by}.` : '';
  const [tone, words] = {
    rest: active ? ['on', `Active: “${active}”${by}. Enter sends a new one for the next frame.`] : ['', 'No instruction. Enter sends one for the next frame.'],
    waits: ['wait', `“${sent}” waits: the instruction of ${s?.instruction_by ?? 'somebody else'} holds for a moment.`],
    done: ['on', failure],
    sent: ['wait', sent ? `Sent: “${sent}”. It applies from the next frame.` : 'Clearing the instruction.'],
    set: ['on', `Active: “${active}”. The first cycle with it is running.`],
    acted: ['on', `Active: “${active}”${by}. It has acted.`],
    failed: ['bad', failure],
  }[stage];
  return { tone, words: stage === 'failed' || stage === 'waits' ? words : words + then, unread: false };
}

/**
 * The words beside the voice switch: why speech fails.
 * @param {import('./types.js').Snapshot | null} s
 */
export function voiceNote(s) {
  return s?.voice_problem ? `voice: ${s.voice_problem.trim()}` : '';
}

/** The engine's failure; why has the reason and the remedy. @param {string} [why] */
function modelFailed(why) {
  return why ? `The model does not answer: ${sentence(why)}` : 'The model does not answer.';
}

/** Ends a phrase with one full stop. @param {string} s */
export function sentence(s) {
  const t = s.trim();
  return /[.!?]$/.test(t) ? t : `${t}.`;
}

/**
 * The line under the list: the counts of comments.
 * @param {import('./types.js').Snapshot | null} s
 */
export function tally(s) {
  if (!s) return '';
  const parts = [`${s.comments} ${s.comments === 1 ? 'comment' : 'comments'}`];
  if (s.silent) parts.push(`${s.silent} silent`);
  if (s.skipped) parts.push(`${s.skipped} unchanged`);
  if (s.repeated) parts.push(`${s.repeated} repeated`);
  if (s.late) parts.push(`${s.late} late`);
  if (s.dropped) parts.push(`${s.dropped} dropped`);
  if (s.failed) parts.push(`${s.failed} failed`);
  return parts.join(', ');
}

/**
 * The engine's name, with what it is where that is short, and its limits.
 * @param {import('./types.js').Snapshot | null} s
 */
export function engine(s) {
  if (!s?.engine) return { name: '', note: '' };
  if (s.engine === 'nano' && s.world) return { name: 'nano, a small model trained on scenes like this', note: '' };
  return { name: s.engine, note: s.engine_note ?? '' };
}

/**
 * The alignment of a comment with its picture.
 * @param {import('./types.js').CycleRecord} r
 * @returns {{text: string, tone: 'good' | 'bad' | 'none', title: string}}
 */
export function alignment(r) {
  if (r.outcome === 'dropped') return { text: 'dropped', tone: 'bad', title: r.reason || 'Its picture had already been shown.' };
  if (!r.aligned) return { text: '', tone: 'none', title: 'No delayed picture to compare with.' };
  const ms = Math.round(r.alignment_error * 1000);
  if (Math.abs(ms) <= 100) return { text: `${Math.abs(ms)} ms`, tone: 'good', title: `Aligned with its picture: ${ms} ms.` };
  const by = Math.abs(ms) < 1000 ? `${Math.abs(ms)} ms` : `${(Math.abs(ms) / 1000).toFixed(1)} s`;
  return { text: `${by} ${ms > 0 ? 'late' : 'early'}`, tone: 'bad', title: `Started ${by} ${ms > 0 ? 'after' : 'before'} its picture.` };
}

/** @param {number} at ms @param {number} now ms */
export function age(at, now) {
  return Number.isFinite(at) ? ago((now - at) / 1000) : '';
}
