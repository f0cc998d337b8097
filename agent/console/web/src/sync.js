/**
 * Keeps the voice with its picture: from the figures of both receivers to the targets of their jitter buffers.
 * The voice's buffer gets a steady target, that of its worst moments of late, and the picture waits for the voice.
 * Without a DOM.
 */

/** Bounds and pace; all times in ms. */
const VOICE_MOST = 400; // target of the voice's buffer
const PICTURE_MOST = 800; // target of the picture's buffer
const STEP = 150; // a change of the picture's target at once
const NEAR = 6; // an offset that is left alone
const HALF_FRAME = 20; // the most by which the nearer of two frames is off, at 25 a second
const FAR = 60; // an offset that is corrected by few readings
const SETTLE = 2500; // after a change, until readings count again
const FEW = 4; // readings for a correction
const KEPT = 8; // readings; as many for an offset that is not far
const MEMORY = 60_000; // of the voice's own target
const GRAIN = 20; // of the voice's calm target

/** What the sound takes beyond its jitter buffer: players take it in blocks of 10 ms. */
const BLOCK = 10;
/** What a picture takes beyond its decoder where the browser does not tell: composition and the screen. */
const SCREEN = 20;

/**
 * @typedef {object} Buffer the work of a jitter buffer between two readings
 * @property {number} delay ms from arrival to play, mean; NaN while nothing is played
 * @property {number} least ms: the target that the buffer would choose by itself; NaN if unknown
 * @property {number} work ms from arrival to the end of the decoder, mean; NaN if unknown
 */

/**
 * The work of a jitter buffer from two "inbound-rtp" statistics.
 * @param {Record<string, any> | undefined} before @param {Record<string, any>} after @returns {Buffer}
 */
export function buffer(before, after) {
  const grown = (key) => after[key] - (before?.[key] ?? NaN);
  const per = (key, count) => (grown(count) > 0 ? (1000 * grown(key)) / grown(count) : NaN);
  return {
    delay: per('jitterBufferDelay', 'jitterBufferEmittedCount'),
    least: per('jitterBufferMinimumDelay', 'jitterBufferEmittedCount'),
    work: per('totalProcessingDelay', 'framesDecoded'),
  };
}

/** The delay between player and loudspeaker in ms, from two "media-playout" statistics; NaN if unknown. */
export function playout(before, after) {
  const samples = after?.totalSamplesCount - before?.totalSamplesCount;
  return samples > 0 ? (1000 * (after.totalPlayoutDelay - before.totalPlayoutDelay)) / samples : NaN;
}

/** @param {number[]} values */
export function median(values) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : NaN;
}

/**
 * How much later the voice is heard than its picture is seen, ms; NaN if unknown. Picture and voice leave the bot at once,
 * so the difference of their delays here is that of the ways. Where the browser knows the capture times of what is played
 * (by sender reports), they count instead: the way through the network is in them too.
 * @param {{voice: Buffer, picture: Buffer, output: number, shown: number[], voiceAt?: number, pictureAt?: number}} r
 * output: ms from player to loudspeaker; shown: ms from arrival to the screen, of each picture; voiceAt and pictureAt:
 * estimatedPlayoutTimestamp
 */
export function heardAfterSeen(r) {
  const shown = median(r.shown);
  if (r.voiceAt > 0 && r.pictureAt > 0) {
    const screen = shown - r.picture.work;
    return r.pictureAt - r.voiceAt - (screen >= 0 ? screen : SCREEN);
  }
  const seen = Number.isFinite(shown) ? shown : r.picture.work + SCREEN;
  return r.voice.delay + r.output + BLOCK - seen;
}

/**
 * @typedef {object} Steering
 * @property {number} voice target of its buffer, ms; 0 for the buffer's own
 * @property {number} picture the same
 * @property {number} calm target of the voice's buffer that covers its own targets of late, ms
 * @property {number} shift ms that the picture waits for the voice; less than 0: the voice for the picture
 * @property {number[]} offsets readings since the last change
 * @property {{shift: number, off: number} | null} from shift and offset before the last correction; null once it was right
 * @property {number} kept offset of the nearer of two frames, which is left alone; NaN: none
 * @property {number} changed ms
 * @property {{at: number, least: number}[]} past the voice's own target
 */

/** @returns {Steering} */
export const straight = () => ({ voice: 0, picture: 0, calm: 0, shift: 0, offsets: [], from: null, kept: NaN, changed: -Infinity, past: [] });

/**
 * The targets after one more reading, about one a second.
 * @param {Steering} s @param {number} offset of heardAfterSeen @param {number} least of the voice's Buffer @param {number} now ms
 * @returns {Steering}
 */
export function steer(s, offset, least, now) {
  const past = s.past.filter((p) => now - p.at < MEMORY);
  if (Number.isFinite(least)) past.push({ at: now, least });
  const want = GRAIN * Math.ceil(Math.max(0, ...past.map((p) => p.least)) / GRAIN);
  // Up at once, down only by more than a step.
  const calm = want > s.calm || want < s.calm - GRAIN ? want : s.calm;
  let { shift, from, kept, offsets } = s;
  if (now - s.changed >= SETTLE) {
    offsets = [...offsets, offset].filter(Number.isFinite).slice(-KEPT);
    const off = median(offsets);
    const size = Math.abs(off);
    if (offsets.length >= (size > FAR ? FEW : KEPT)) {
      if (size <= NEAR) {
        from = null;
      } else if (from && off * from.off < 0 && size <= HALF_FRAME) {
        // A picture is shown with one of the screen's frames, so the correction went too far. The nearer frame is kept.
        kept = off;
        if (size > Math.abs(from.off)) [shift, kept] = [from.shift, from.off];
        from = null;
      } else if (!(Math.abs(off - kept) <= NEAR)) {
        from = { shift, off };
        kept = NaN;
        shift = Math.round(bound(shift + bound(off, -STEP, STEP), -VOICE_MOST, PICTURE_MOST));
      }
    }
  }
  const voice = bound(calm - Math.min(0, shift), 0, VOICE_MOST);
  const picture = Math.max(0, shift);
  const next = { ...s, voice, picture, calm, shift, offsets, from, kept, past };
  return voice === s.voice && picture === s.picture ? next : { ...next, offsets: [], changed: now };
}

/** @param {number} v @param {number} least @param {number} most */
const bound = (v, least, most) => Math.max(least, Math.min(most, v));
