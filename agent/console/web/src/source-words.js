/** The texts of the source picker, without a DOM. */

/** @type {Record<string, {title: string, words: string, watched: string}>} the generated worlds */
const WORLDS = {
  match: { title: 'Football match', words: 'Generated: goals, saves, replays and changing floodlights.', watched: 'the generated match' },
  yard: { title: 'Yard', words: 'Generated: a security camera by day and night, with people, cars and animals.', watched: 'the generated yard' },
};

/** The texts for a generated world. @param {string} name */
export const worldWords = (name) => WORLDS[name] ?? { title: name, words: 'Generated.', watched: `the generated world “${name}”` };

/** An address that the server can open. @param {string} s */
export function looksLikeURL(s) {
  return /^(rtsps?|https?):\/\/\S+$/i.test(s.trim());
}

/**
 * The watched source as a phrase.
 * @param {import('./types.js').SourceInfo | undefined} s @param {string} own identity of this browser's camera
 * @param {import('./types.js').Source[]} [sources] the sources of the server, by name
 * @param {string} [world] the generated world that is watched
 */
export function sourceSentence(s, own, sources = [], world = '') {
  if (!s || !(s.width > 0)) return 'No source yet.';
  const scene = world ? worldWords(world).watched : 'the built-in scene';
  const named = s.identity === 'scene' ? scene : sources.find((x) => x.identity === s.identity)?.name;
  const who = own && s.identity === own ? 'your camera' : named || s.identity || 'a track without a name';
  const fps = s.fps > 0 ? `, ${s.fps.toFixed(s.fps < 10 ? 1 : 0)} frames per s` : '';
  return `Watched: ${who}, ${s.width} × ${s.height}${s.codec ? `, ${s.codec}` : ''}${fps}${s.muted ? ', paused' : ''}.`;
}

/**
 * Whether a snapshot has pictures of the chosen source, and not of the one before.
 * @param {string} source "", "scene", "world:NAME" or "camera:IDENTITY"
 * @param {import('./types.js').Snapshot} s @param {import('./types.js').Snapshot | null} before
 */
export function isChosen(source, s, before) {
  if (!(s.source?.width > 0)) return false;
  const [kind, name] = source.split(/:(.*)/);
  if (kind === 'camera') return s.source.identity === name;
  // The worlds share an identity, but not a track.
  if (kind === 'world') return s.world?.name === name && (before?.world?.name === name || s.source.track !== before?.source?.track);
  return source === '' || s.source.identity !== before?.source?.identity || !before;
}

/** The time since, rounded. @param {string} since @param {number} now ms */
function lasting(since, now) {
  const s = Math.round((now - Date.parse(since)) / 1000);
  if (!(s >= 1)) return '';
  if (s < 90) return `, for ${s} s`;
  if (s < 5400) return `, for ${Math.round(s / 60)} min`;
  return `, for ${Math.round(s / 3600)} h`;
}

/** @param {string} reason */
const why = (reason) => (reason ? `: ${reason.replace(/[.\s]+$/, '')}` : '');

/**
 * The state of a source and its duration.
 * @param {import('./types.js').Source} s @param {number} now ms, the server's
 * @returns {{words: string, tone: '' | 'on' | 'wait' | 'bad'}}
 */
export function stateWords(s, now) {
  switch (s.state) {
    case 'live':
      return { words: figures(s), tone: 'on' };
    case 'connecting':
      return { words: 'Connecting.', tone: 'wait' };
    case 'waiting':
      return { words: `Waiting for the camera${why(s.reason)}${lasting(s.since, now)}. Retrying.`, tone: 'wait' };
    case 'stalled':
      return { words: `The camera is connected, but sends no picture${lasting(s.since, now)}.`, tone: 'wait' };
    case 'failed':
      return { words: `Failed${why(s.reason)}.`, tone: 'bad' };
    case 'ended':
      return { words: 'Ended.', tone: '' };
    default:
      return { words: s.state, tone: '' };
  }
}

/** Codec, size and rates of a live source. @param {import('./types.js').Source} s */
export function figures(s) {
  const parts = ['Live'];
  if (s.width > 0) parts.push(`${s.codec} ${s.width} × ${s.height}`);
  if (s.fps > 0) parts.push(`${s.fps.toFixed(s.fps < 10 ? 1 : 0)} frames per s`);
  if (s.bit_rate > 0) parts.push(`${(s.bit_rate / 1e6).toFixed(s.bit_rate < 1e6 ? 2 : 1)} Mbit/s`);
  if (s.key_frame_interval > 0.05) parts.push(`key frames ${s.key_frame_interval.toFixed(1)} s apart`);
  if (s.sound) parts.push('with sound');
  return `${parts.join(', ')}.`;
}

/**
 * The notes on a source: why it is transcoded, and what to set at the camera.
 * @param {import('./types.js').Source} s
 */
export function hints(s) {
  return [s.transcoded ? `Transcoded here: ${s.transcoded}.` : '', s.advice ?? ''].filter(Boolean);
}

/**
 * One row per source: those of the server, then those of other participants.
 * @param {import('./types.js').Source[]} sources @param {import('./types.js').RoomCamera[]} cameras @param {string} own
 */
export function rows(sources, cameras, own) {
  const out = sources.map((s) => ({ identity: s.identity, name: s.name, watched: s.watched, source: s, removable: !s.fixed, own: false, muted: false }));
  const known = new Set(out.map((r) => r.identity));
  for (const c of cameras) {
    if (known.has(c.identity) || c.identity === 'scene') continue; // the scene has its own button
    known.add(c.identity);
    const mine = Boolean(own) && c.identity === own;
    const name = mine ? 'Your own' : c.name || c.identity;
    out.push({ identity: c.identity, name, watched: c.watched, source: null, removable: false, own: mine, muted: Boolean(c.muted) });
  }
  return out;
}
