/** The HTTP calls of docs/api.md. Every failure is an ApiError with a sentence for the reader. */

const LOGINS = 60; // attempts: of many people behind one address, one logs in every 5 s
const BUSY = { 429: 'Too many logins.', 503: 'The server takes no login now.' }; // answers after which a login is tried again

export class ApiError extends Error {
  /** @param {number} status 0 when there was no answer @param {string} message @param {string} [code] @param {number} [after] s until another try */
  constructor(status, message, code = '', after = 0) {
    super(message);
    this.status = status;
    this.code = code;
    this.after = after;
  }
}

/**
 * @param {string} method @param {string} path @param {unknown} [body]
 * @param {{clock?: import('./clock.js').ServerClock, create?: boolean, wait?: number, stop?: AbortSignal}} [opts]
 * clock: reads the answer's Date; create: only if there is none yet; wait: ms for the answer; stop: ends the call.
 * A body of text is sent as YAML.
 */
export async function call(method, path, body, opts = {}) {
  const sent = Date.now();
  const late = AbortSignal.timeout(opts.wait ?? 10_000);
  let res;
  try {
    res = await fetch(path, {
      method,
      headers: {
        ...(body === undefined ? {} : { 'Content-Type': typeof body === 'string' ? 'application/yaml' : 'application/json' }),
        ...(opts.create ? { 'If-None-Match': '*' } : {}),
      },
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
      signal: opts.stop && AbortSignal.any ? AbortSignal.any([late, opts.stop]) : late,
      cache: 'no-store',
    });
  } catch {
    throw new ApiError(0, 'The server does not answer.');
  }
  opts.clock?.observeDate(Date.parse(res.headers.get('Date') ?? ''), sent, Date.now());
  const text = await res.text().catch(() => '');
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    // Not JSON: only the status is known.
  }
  if (!res.ok) {
    throw new ApiError(res.status, data?.message || `The server answered ${res.status}.`, data?.code, Number(res.headers.get('Retry-After')));
  }
  return data;
}

/**
 * The API path of the room in the page's address, "/rooms/NAME", or of the only room.
 * @param {string} path of the page
 */
export function apiBase(path) {
  const name = /^\/rooms\/([^/]+)$/.exec(path)?.[1];
  return name ? `/api/rooms/${name}` : '/api';
}

/** The address of a path in this page's room. @param {string} path such as "/status" */
export const inRoom = (path) => apiBase(globalThis.location?.pathname ?? '/') + path;

export const status = (opts) => call('GET', inRoom('/status'), undefined, opts);
export const setInstruction = (instruction) => call('POST', inRoom('/instruction'), { instruction });
export const clearInstruction = () => call('DELETE', inRoom('/instruction'));
/** @param {string} command as in agent.Command */
export const command = (command) => call('POST', inRoom('/command'), { command });
export const setProfile = (profile) => call('POST', inRoom('/profiles'), { profile });
export const putProfile = (name, text, create) => call('PUT', inRoom(`/profiles/${encodeURIComponent(name)}`), text, { create });
export const deleteProfile = (name) => call('DELETE', inRoom(`/profiles/${encodeURIComponent(name)}`));
export const sheet = () => call('GET', inRoom('/sheet'));
export const putSheet = (text) => call('PUT', inRoom('/sheet'), text);
export const settings = () => call('GET', inRoom('/settings'));
export const setSettings = (settings) => call('POST', inRoom('/settings'), settings);
export const setSource = (source) => call('POST', inRoom('/source'), { source });
export const sources = () => call('GET', inRoom('/sources'));
export const addSource = (source) => call('POST', inRoom('/sources'), source);
export const removeSource = (id) => call('DELETE', inRoom(`/sources/${id}`));
export const rules = () => call('GET', inRoom('/rules'));
export const addRule = (rule) => call('POST', inRoom('/rules'), rule);
export const setRule = (id, rule) => call('PUT', inRoom(`/rules/${id}`), rule);
export const removeRule = (id) => call('DELETE', inRoom(`/rules/${id}`));
export const engines = () => call('GET', inRoom('/engines'));
export const setEngine = (choice) => call('POST', inRoom('/engine'), choice);
export const looks = () => call('GET', inRoom('/looks'));
export const nextPrompt = () => call('GET', inRoom('/looks/next'));
export const sight = () => call('GET', inRoom('/sight'));
export const regions = () => call('GET', inRoom('/regions'));
export const putRegion = (name, region) => call('PUT', inRoom(`/regions/${encodeURIComponent(name)}`), region);
export const removeRegion = (name) => call('DELETE', inRoom(`/regions/${encodeURIComponent(name)}`));
export const clearRegions = () => call('DELETE', inRoom('/regions'));
export const confirmRegions = () => call('POST', inRoom('/regions'));
export const tryRule = (rule, looks) => call('POST', inRoom(`/rules/try${looks ? `?looks=${looks}` : ''}`), rule, { wait: 95_000 });
export const snoozeRule = (id, time) => call('POST', inRoom(`/rules/${id}/snooze`), { for: time });
export const testRule = (id) => call('POST', inRoom(`/rules/${id}/test`));
export const alerts = () => call('GET', inRoom('/alerts'));
export const ackAlert = (id) => call('POST', inRoom(`/alerts/${id}/ack`));
export const deleteAlert = (id) => call('DELETE', inRoom(`/alerts/${id}`));
/** @param {string} [by] an identity; everybody without */
export const deleteHeard = (by) => call('DELETE', inRoom('/heard') + (by ? `?by=${encodeURIComponent(by)}` : ''));
export const rights = () => call('GET', inRoom('/rights'));
export const links = () => call('GET', inRoom('/links'));
export const revokeLink = (id) => call('DELETE', inRoom(`/links/${id}`));
export const makeLink = (rights, life) => call('POST', inRoom('/links'), { rights, for: life });
export const start = (source) => call('POST', inRoom('/start'), { source });
export const stop = () => call('POST', inRoom('/stop'));
export const roomToken = (role, name) => call('POST', inRoom('/livekit/token'), { role, name });

let newest = new AbortController(); // of the logins

/**
 * Exchanges a token for a cookie. While there are too many logins, it waits and tries again. A newer login ends it.
 * @param {string} token @param {(text: string) => void} tell is called before each wait
 * @returns {Promise<boolean>} false: a newer login has begun, and this one says nothing more
 */
export async function login(token, tell) {
  newest.abort();
  newest = new AbortController();
  const stop = newest.signal;
  for (let left = LOGINS; ; left--) {
    try {
      await call('POST', '/api/login', { token }, { stop });
      return !stop.aborted;
    } catch (err) {
      if (stop.aborted) return false;
      if (!(err.status in BUSY) || !err.after || left <= 1) throw err;
      tell(`${BUSY[err.status]} Trying again in ${err.after} s.`);
      await new Promise((done) => setTimeout(done, err.after * 1000 + Math.random() * 500)); // not all at once
      if (stop.aborted) return false;
    }
  }
}

/** @param {string} id @param {number} [width] px, for a thumbnail */
export const alertFrameURL = (id, width) => inRoom(`/alerts/${encodeURIComponent(id)}/frame${width ? `?w=${width}` : ''}`);

/** @param {number} id @param {number} [width] px, for a thumbnail */
export function frameURL(id, width) {
  return inRoom(`/frames/${id}${width ? `?w=${width}` : ''}`);
}

/**
 * The token in the address' fragment, "#token=T" or "#T".
 * @param {string} hash
 */
export function fragmentToken(hash) {
  const raw = hash.replace(/^#/, '');
  if (!raw) return '';
  const params = new URLSearchParams(raw);
  if (params.has('token')) return params.get('token') ?? '';
  // Ordinary anchors of the page are short words; a token is long and has no "=".
  return /^[\w.~-]{12,}$/.test(raw) ? raw : '';
}

/**
 * Samples of a short text, spoken.
 * @param {{input: string, voice: string, language: string}} speech
 * @returns {Promise<Float32Array>} mono, 24 kHz
 */
export async function speech(speech) {
  let res;
  try {
    res = await fetch('/v1/audio/speech', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ ...speech, response_format: 'pcm' }),
      signal: AbortSignal.timeout(30_000),
    });
  } catch {
    throw new ApiError(0, 'The server does not answer.');
  }
  if (!res.ok) {
    const data = await res.json().catch(() => null);
    throw new ApiError(res.status, data?.error?.message || data?.message || `The server answered ${res.status}.`);
  }
  const pcm = await res.arrayBuffer().catch(() => null);
  if (!pcm) throw new ApiError(0, 'The voice broke off.');
  return Float32Array.from(new Int16Array(pcm, 0, pcm.byteLength >> 1), (v) => v / 32768);
}
