/** The figures behind the graphs, without a DOM. */
import { moment } from './clock.js';
import { count } from './words.js';

/**
 * Round steps for an axis from 0 to at least max.
 * @param {number} max @param {number} [most] lines
 * @returns {number[]}
 */
export function steps(max, most = 4) {
  if (!(max > 0)) return [0, 1];
  const raw = max / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((s) => s >= raw - 1e-9) ?? 10 * power;
  const out = [];
  for (let i = 0; ; i++) {
    out.push(Math.round(i * step * 1e6) / 1e6);
    if (i * step >= max - 1e-9) return out;
  }
}

/**
 * The times of the newest frame of a comment, in seconds since it was live. NaN if
 * unknown.
 * @param {import('./types.js').CycleRecord} r
 */
export function frameAges(r) {
  const since = (t) => (moment(t) - moment(r.newest_frame_at)) / 1000;
  const known = (v) => (v > 0 ? v : NaN);
  return { at: moment(r.newest_frame_at), word: known(r.first_word_sec), audio: known(r.first_audio_sec), shown: since(r.started_at) };
}

/**
 * The stages of a cycle that add up to "shown": waiting for the engine,
 * thinking up to the first word, the voice, and holding for the frame.
 * @param {import('./types.js').CycleRecord} r
 * @returns {{name: string, sec: number}[]}
 */
export function stages(r) {
  const a = frameAges(r);
  const newest = moment(r.newest_frame_at);
  const begin = Math.max(0, (moment(r.inference_start) - newest) / 1000);
  const pick = Number.isFinite(begin) ? begin : 0;
  const word = Number.isFinite(a.word) ? a.word : r.latency_sec || pick;
  const audio = Number.isFinite(a.audio) ? Math.max(word, a.audio) : word;
  const shown = Number.isFinite(a.shown) ? Math.max(audio, a.shown) : audio;
  return [
    { name: 'pick up', sec: pick },
    { name: 'first word', sec: Math.max(0, word - pick) },
    { name: 'voice', sec: audio - word },
    { name: 'hold', sec: shown - audio },
  ];
}

/** Words or tokens per second of a cycle; NaN if the engine does not count them. @param {import('./types.js').CycleRecord} r */
export function tokenRate(r) {
  return r.tokens > 0 && r.inference_sec > 0 ? r.tokens / r.inference_sec : NaN;
}

/**
 * Sums the samples of a metric in Prometheus' text format; NaN without any.
 * @param {string} text @param {string} name @param {string} [label] only samples with this one, as in kind="used"
 */
export function metric(text, name, label = '') {
  let sum = NaN;
  for (const line of text.split('\n')) {
    const m = /^([a-zA-Z_:][\w:]*)(\{[^}]*\})?\s+(\S+)/.exec(line);
    if (!m || m[1] !== name || !(m[2] ?? '').includes(label)) continue;
    const v = Number(m[3]);
    if (Number.isFinite(v)) sum = (Number.isNaN(sum) ? 0 : sum) + v;
  }
  return sum;
}

/**
 * @typedef {object} Reading of /metrics
 * @property {number} at ms
 * @property {number} cpu seconds of the program
 * @property {number} device seconds that the built-in model's device worked; NaN with another engine
 * @property {number} used bytes of GPU memory; NaN without a GPU
 * @property {number} total bytes of GPU memory
 */

/** @param {string} text Prometheus' format @param {number} at ms @returns {Reading} */
export function reading(text, at) {
  const used = metric(text, 'touchline_engine_memory_bytes', 'kind="used"');
  return {
    at,
    cpu: metric(text, 'process_cpu_seconds_total'),
    device: metric(text, 'touchline_engine_busy_seconds_total'),
    used,
    total: used + metric(text, 'touchline_engine_memory_bytes', 'kind="free"'),
  };
}

/**
 * A load in percent from two readings of a counter of seconds; NaN when the program was restarted between them.
 * @param {Reading | null} before @param {Reading} after @param {'cpu' | 'device'} key
 */
export function load(before, after, key) {
  if (!before || !(after.at > before.at) || !(after[key] >= before[key])) return NaN;
  return ((after[key] - before[key]) / ((after.at - before.at) / 1000)) * 100;
}

/** Why there is no graph of the load. @param {number} status of the last answer of /metrics; 0 before the first */
export function noLoadWords(status) {
  if (status === 401 || status === 403) {
    return 'Load and GPU memory concern the whole program. A shared link does not show them; open the page with its own token.';
  }
  return status === 0 || status === 200 ? 'Collecting data.' : `The server answers ${status}.`;
}

/** "5.1 of 79.6 GiB"; "" when not known. @param {Reading | null} r */
export function gpuMemory(r) {
  if (!r || !Number.isFinite(r.total)) return '';
  const gib = (v) => (v / 2 ** 30).toFixed(1);
  return `${gib(r.used)} of ${gib(r.total)} GiB`;
}

/**
 * How the comments of the last minute compare with the truth of a generated world; "" without one.
 * @param {import('./types.js').World | undefined} world
 */
export function gradeWords(world) {
  const g = world?.grade;
  if (!g) return '';
  const parts = [`${g.right} right`, `${g.wrong} wrong`];
  if (g.unjudged) parts.push(`${g.unjudged} not judged`);
  if (g.missed !== undefined) {
    const what = world.name === 'match' ? 'goal' : 'event';
    parts.push(g.missed ? `${count(g.missed, what)} missed` : `no ${what} missed`);
  }
  return `Last minute: ${parts.join(', ')}.`;
}
