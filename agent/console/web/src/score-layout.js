/**
 * The score sheet without a canvas.
 *
 * Time runs to the right in the time of the scene. A frame is at its capture time, "live"
 * is the right edge, and an action of the bot at server time t is at t - D, the time that
 * the delayed picture shows at t. So an aligned comment starts at the dot of its newest
 * frame, and present actions are on the line of the delayed picture.
 */
import { moment } from './clock.js';

/** The span of the sheet, ms. */
export const SPAN = 60_000;
/** The alignment error from which a comment is late, s. */
export const TOLERANCE = 0.1;

/**
 * One cycle on the sheet; times in ms of the server's clock.
 * @typedef {object} Cycle
 * @property {number} cycle
 * @property {number} seq row order among comments; -1 for a quiet cycle
 * @property {string} outcome
 * @property {number[]} frames capture time of each frame
 * @property {number} anchor capture time of the newest
 * @property {number} delay D in ms
 * @property {[number, number] | null} think
 * @property {[number, number] | null} speech
 * @property {number} error s
 * @property {boolean} aligned the error was measured
 * @property {boolean} [expected] in progress: the frames are estimated
 * @property {import('./types.js').CycleRecord} [record]
 */

const COMMENT = new Set(['spoken', 'shown', 'cut', 'dropped']);

/** Whether a cycle led to words. @param {string} outcome */
export function isComment(outcome) {
  return COMMENT.has(outcome);
}

/**
 * @param {import('./types.js').CycleRecord} r
 * @param {number} seq
 * @param {number} fallbackDelay s, for cycles that ended before anything was shown
 * @returns {Cycle}
 */
export function cycleOf(r, seq, fallbackDelay) {
  const frames = (r.frame_at ?? [r.oldest_frame_at, r.newest_frame_at]).map(moment).filter(Number.isFinite);
  const newest = moment(r.newest_frame_at);
  const anchor = Number.isFinite(newest) ? newest : (frames.at(-1) ?? NaN);
  const span = (a, b) => (Number.isFinite(a) && Number.isFinite(b) && b >= a ? /** @type {[number, number]} */ ([a, b]) : null);
  return {
    cycle: r.cycle,
    seq,
    outcome: r.outcome,
    frames,
    anchor,
    delay: (r.delay > 0 ? r.delay : Math.max(0, fallbackDelay)) * 1000,
    think: span(moment(r.inference_start), moment(r.inference_end)),
    speech: span(moment(r.started_at), moment(r.ended_at)),
    error: r.aligned ? r.alignment_error : 0,
    aligned: Boolean(r.aligned),
    record: r,
  };
}

/**
 * The place of an event at t: the time that the delayed picture showed at t.
 * @param {number} t @param {number} delay both ms
 */
export function placed(t, delay) {
  return t - delay;
}

/**
 * @typedef {object} Box everything in CSS pixels
 * @property {number} width
 * @property {number} height
 *
 * @typedef {object} Mark one cycle, ready to draw
 * @property {Cycle} cycle
 * @property {number} y middle of its row
 * @property {number} half half the row's height
 * @property {boolean} quiet
 * @property {number[]} dots
 * @property {[number, number] | null} think
 * @property {[number, number] | null} speech
 * @property {[number, number] | null} tail from the due start of the speech to the real one
 * @property {number} x0 leftmost
 * @property {number} x1 rightmost
 */

const AXIS = 17; // for the time labels
const LANE = 10; // for cycles without words
const TOP = 16; // for the labels of the two lines
const ROW = 15;

/** The number of rows. @param {number} height */
export function rowCount(height) {
  return Math.max(2, Math.floor((height - AXIS - LANE - TOP) / ROW));
}

/**
 * @param {Cycle[]} cycles
 * @param {{now: number, delay: number, span?: number} & Box} view now and delay in ms
 */
export function layout(cycles, view) {
  const span = view.span ?? SPAN;
  const { width, height, now } = view;
  const x = (t) => width - ((now - t) / span) * width;
  const rows = rowCount(height);
  const rowHeight = (height - AXIS - LANE - TOP) / rows;
  /** @type {Mark[]} */
  const marks = [];
  for (const c of cycles) {
    const quiet = c.seq < 0;
    const pair = (p) => (p ? /** @type {[number, number]} */ ([x(placed(p[0], c.delay)), x(placed(p[1], c.delay))]) : null);
    const think = pair(c.think);
    let speech = null;
    let tail = null;
    if (c.speech) {
      // A measured error is exact; D is approximate.
      const start = c.aligned && Number.isFinite(c.anchor) ? c.anchor + c.error * 1000 : placed(c.speech[0], c.delay);
      speech = /** @type {[number, number]} */ ([x(start), x(start + c.speech[1] - c.speech[0])]);
      if (c.aligned && Math.abs(c.error) > TOLERANCE) tail = /** @type {[number, number]} */ ([x(c.anchor), x(start)]);
    }
    const dots = c.frames.map(x);
    const xs = [...dots, ...(think ?? []), ...(speech ?? [])].filter(Number.isFinite);
    if (xs.length === 0) continue;
    const x0 = Math.min(...xs);
    const x1 = Math.max(...xs);
    if (x1 < 0 || x0 > width + 40) continue;
    const y = quiet ? height - AXIS - LANE / 2 : TOP + (c.seq % rows) * rowHeight + rowHeight / 2;
    marks.push({ cycle: c, y, half: quiet ? LANE / 2 : rowHeight / 2, quiet, dots, think, speech, tail, x0, x1 });
  }
  const ticks = [];
  const step = width < 480 ? 20_000 : 10_000;
  for (let t = step; t < span; t += step) ticks.push({ x: width - (t / span) * width, label: `−${t / 1000} s` });
  return { marks, ticks, nowX: x(now - view.delay), liveX: width, axisY: height - AXIS, top: TOP };
}

/**
 * The cycle under a point, or the nearest within reach.
 * @param {Mark[]} marks @param {number} px @param {number} py @param {number} [reach] px
 * @returns {Mark | null}
 */
export function hit(marks, px, py, reach = 10) {
  let best = null;
  let bestD = Infinity;
  for (const m of marks) {
    const dx = px < m.x0 ? m.x0 - px : px > m.x1 ? px - m.x1 : 0;
    const dy = Math.max(0, Math.abs(py - m.y) - m.half);
    if (dx > reach || dy > reach) continue;
    const d = dx + dy * 2 + Math.abs(py - m.y) * 0.01;
    if (d < bestD) {
      bestD = d;
      best = m;
    }
  }
  return best;
}

/**
 * Cycles in progress. The record comes at the end of a cycle; until then the status shows its
 * start and the captions its words.
 */
export class Underway {
  /** @type {{start: number, end: number | null, frames: number[], cycle: number, speechStart: number, speechEnd: number | null}[]} */
  #open = [];

  /**
   * @param {import('./types.js').Status} status @param {number} now server ms
   * @param {import('./types.js').Settings | undefined} settings for the frames to expect
   */
  status(status, now, settings) {
    const last = this.#open.at(-1);
    if (status.state === 'thinking') {
      if (last && last.end === null) return;
      const n = settings?.frames_per_look ?? 1;
      const gap = settings && settings.capture_fps > 0 ? (settings.frame_stride / settings.capture_fps) * 1000 : 0;
      const frames = Array.from({ length: n }, (_, i) => now - (n - 1 - i) * gap);
      this.#open.push({ start: now, end: null, frames, cycle: -1, speechStart: NaN, speechEnd: null });
      if (this.#open.length > 4) this.#open.shift();
      return;
    }
    if (last && last.end === null) last.end = now;
  }

  /** @param {import('./types.js').Caption} c @param {number} now server ms */
  caption(c, now) {
    const o = this.#open.find((p) => p.cycle === c.cycle) ?? this.#open.find((p) => p.cycle < 0);
    if (!o) return;
    o.cycle = c.cycle;
    if (o.end === null) o.end = now;
    if (Number.isNaN(o.speechStart)) o.speechStart = now;
    if (c.final) o.speechEnd ??= now;
  }

  /** A record closes its cycle and all earlier ones. @param {Cycle} c */
  record(c) {
    const start = c.think ? c.think[0] : c.anchor;
    this.#open = this.#open.filter((o) => o.cycle !== c.cycle && !(o.start <= start + 700));
  }

  clear() {
    this.#open = [];
  }

  /**
   * @param {number} now server ms @param {number} delay ms @param {number} nextSeq
   * @returns {Cycle[]}
   */
  cycles(now, delay, nextSeq) {
    this.#open = this.#open.filter((o) => now - o.start < SPAN);
    return this.#open.map((o, i) => ({
      cycle: o.cycle,
      seq: nextSeq + i,
      outcome: 'underway',
      frames: o.frames,
      anchor: o.frames.at(-1) ?? o.start,
      delay,
      think: [o.start, o.end ?? now],
      speech: Number.isNaN(o.speechStart) ? null : [o.speechStart, o.speechEnd ?? now],
      error: 0,
      aligned: false,
      expected: true,
    }));
  }
}
