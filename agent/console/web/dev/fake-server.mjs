// A stand-in for the console while working on the page: serves dist/ and plays
// a made-up commentary over the HTTP API of docs/api.md. Not part of the product.
//
//   npm run build && node dev/fake-server.mjs [--port 8198] [--state ok]
//     --rooms 6   the page of many rooms at "/", each room's at /rooms/NAME; without it, one room
//     --state  ok, loading, waiting, gone, idle, silent, failed, broken, late, empty, locked
//     --hears     two people speak in the room
//     --livekit ws://127.0.0.1:7880 --key K --secret S   hand out real room tokens
import { createHmac, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values: opt } = parseArgs({
  options: {
    port: { type: 'string', default: '8198' }, rooms: { type: 'string', default: '0' }, state: { type: 'string', default: 'ok' },
    hears: { type: 'boolean', default: false }, livekit: { type: 'string' }, key: { type: 'string', default: 'devkey' }, secret: { type: 'string', default: 'secret' },
  },
});
const dist = join(dirname(fileURLToPath(import.meta.url)), '..', 'dist');
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const DELAY = 2.4;
const many = Number(opt.rooms) > 0;

const LINES = [
  'Red breaks down the left, two against one.', 'Throw-in for blue near the corner flag.', 'The keeper comes out and gathers it cleanly.',
  'Blue slows it down and plays across the back line.', 'A long ball over the top, just too heavy for the striker.',
  'Red wins it back in the middle and looks forward at once, but every passing lane is closed by a well organised blue defence.',
  'Shot from the edge of the box, and it goes wide.', 'Goal kick. Everybody moves up.', 'Red scores! The ball is in the net after a quick one-two.',
];
const PROFILES = ['Default', 'Sports', 'Security', 'Nature', 'Descriptive'].map((label) => ({
  name: label.toLowerCase(), label, prompt: '', suggestion: label === 'Sports' ? 'call the goals and the near misses' : label === 'Security' ? 'report who comes and goes' : '',
}));

const settings = {
  speech: true, capture_fps: 5, frames_per_look: 4, frame_stride: 1, change_threshold: 0, look_when: 'pixels', look_max_wait: 10, min_interval: 0.5, pause_after: 0.5,
  fixed_delay: 0, max_tokens: 512, speech_max_tokens: 96, cut_on_instruction: true, repeats: 'silence', language: 'en',
};
const snapshot = {
  status: { state: 'listening', chip: 'watching', percent: 100, detail: '' },
  engine: 'scene', capabilities: { instructions: false }, engine_note: 'No model: says only what it measured in the picture.', model_loaded: true, capture_running: true,
  monitor_mode: 'ACTIVE', instruction: '', active_profile: 'sports', profiles: PROFILES, cycle_count: 0, frames_buffered: 20, tts_enabled: true,
  settings, delay: DELAY, target_delay: DELAY, alignment_last: -1, alignment_p95: -1,
  comments: 0, silent: 0, skipped: 0, late: 0, dropped: 0, failed: 0, long_side: 448, max_slices: 1, window_size: 48,
  source: { identity: 'scene', track: 'TR_1', codec: 'VP8', width: 1280, height: 720, fps: 30 },
  scene: true, worlds: ['match', 'yard'], world: { name: 'match', teams: ['Red', 'Blue'], grade: { right: 18, wrong: 1, unjudged: 0, missed: 1 } },
};
const past = [];
const readers = new Set();
let id = 0;
let cycle = 0;
let locked = opt.state === 'locked';

const send = (res, event, data) => res.write(`id: ${++id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
function all(event, data) {
  readers.forEach((res) => send(res, event, data));
  if (!['status', 'caption', 'record'].includes(event)) return;
  for (const [room, r] of rooms) if (r.chip === 'watching') walls.forEach((res) => send(res, event, { room, ...data }));
}
const iso = (ms) => new Date(ms).toISOString();
/** The page of many rooms: every room plays the same commentary, but for those that wait, load or fail. */
const walls = new Set();
const rooms = new Map();
const NAMES = ['cup final', 'garage', 'süd/ 2', 'bird table', 'pitch 4'];
function open(name, chip = 'watching') {
  const source = chip === 'watching' ? snapshot.source : { width: 0, height: 0, fps: 0 };
  const detail = chip === 'failed' ? 'nothing listens at 127.0.0.1:8000' : '';
  rooms.set(name, { chip, source, detail, since: iso(Date.now()), viewers: rooms.size });
}
function roomInfos() {
  const newest = past.findLast((r) => r.text);
  return [...rooms].sort(([a], [b]) => (a < b ? -1 : 1)).map(([room, r]) => {
    const plays = r.chip === 'watching';
    const now = plays ? snapshot.status : { state: 'initializing', chip: r.chip, percent: 42, detail: r.detail };
    return {
      room, state: now.state, chip: now.chip, reason: now.detail, percent: now.percent, engine: snapshot.engine, instruction: snapshot.instruction,
      profile: snapshot.active_profile, speech: settings.speech, source: r.source, viewers: r.viewers, delay: snapshot.delay,
      alignment_last: plays ? snapshot.alignment_last : -1, alignment_p95: snapshot.alignment_p95, comments: plays ? snapshot.comments : 0, since: r.since,
      newest: plays && newest ? { cycle: newest.cycle, text: newest.text, at: newest.started_at } : undefined,
    };
  });
}
let told = new Map();
function tellRooms() {
  const now = new Map(roomInfos().map((r) => [r.room, JSON.stringify(r)]));
  for (const [room, info] of now) if (told.get(room) !== info) walls.forEach((res) => send(res, 'room', JSON.parse(info)));
  for (const room of told.keys()) if (!now.has(room)) walls.forEach((res) => send(res, 'gone', { room }));
  told = now;
}

/** Cameras that were added: one that lives, one whose address says gone, one that says bad. */
const sources = new Map();
let nextSource = 1;
function source(url, name, fixed = false) {
  const s = {
    id: `s${nextSource}`, kind: url ? new URL(url).protocol.replace(/s?:$/, '') : 'whip', name: name || url, address: url, identity: `source-${nextSource++}`, fixed, watched: false,
    state: 'connecting', since: iso(Date.now()), reason: '', codec: '', width: 0, height: 0, fps: 0, bit_rate: 0, key_frame_interval: 0, sound: false, transcoded: '', advice: '',
  };
  sources.set(s.id, s);
  setTimeout(() => {
    if (/gone/.test(url)) Object.assign(s, { state: 'waiting', reason: 'connection refused', since: iso(Date.now()) });
    else if (/bad/.test(url)) Object.assign(s, { state: 'failed', reason: 'it wants another password', since: iso(Date.now()) });
    else Object.assign(s, { state: 'live', since: iso(Date.now()), codec: 'H264', width: 1920, height: 1080, fps: 25, bit_rate: 4.2e6, key_frame_interval: 8, sound: true, advice: 'Set the camera to a key frame each 2 s.' });
    seeSources();
  }, 1500);
  return s;
}
function watch(identity) {
  const world = identity.startsWith('world:') ? identity.slice(6) : '';
  if (world) snapshot.world = { name: world, teams: world === 'match' ? ['Red', 'Blue'] : undefined };
  for (const s of sources.values()) s.watched = s.identity === identity;
  const s = [...sources.values()].find((x) => x.watched);
  snapshot.source = s ? { identity, track: 'TR_2', codec: s.codec, width: s.width, height: s.height, fps: s.fps } : { identity: 'scene', track: `TR_${world || 1}`, codec: 'VP8', width: 1280, height: 720, fps: 30 };
}
function seeSources() {
  const watched = [...sources.values()].find((s) => s.watched);
  if (watched) watch(watched.identity);
  snapshot.sources = [...sources.values()];
  all('snapshot', snapshot);
}
const sourceList = () => ({
  sources: [...sources.values()], scene: true, whip: { path: '/whip/demo', key: 'a-key-of-the-page' },
  cameras: [{ identity: 'phone', name: 'A phone', kind: 'camera', watched: snapshot.source.identity === 'phone' }, { identity: 'scene', kind: 'camera', watched: snapshot.source.identity === 'scene' }],
});

/** Alert rules; each raises an alert now and then. */
const rules = new Map();
let nextRule = 1;
function rule(id, body) {
  const r = { level: 'warning', ...body, id, active: true, on: false, looks: 0, late: 0, unanswered: 0 };
  rules.set(id, r);
  return r;
}
function alert(r, phase, alertID) {
  r.on = phase !== 'cleared';
  all('alert', { type: 'alert', id: alertID, phase, at: iso(Date.now()), rule: r.id, name: r.name || r.when, level: r.level, reason: 'The ball is in the net.', anchor_pts: 1, frame_id: cycle * 10, agreed: 2, looks: 3, latency_sec: 0.6 });
}
setInterval(() => {
  for (const r of rules.values()) {
    const id = `${r.id}-${++r.looks}`;
    if (r.looks % 8 !== 3) continue;
    alert(r, 'new', id);
    setTimeout(() => alert(r, 'cleared', id), 6000);
  }
}, 2000);

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
function status(chip, state, detail = '') {
  snapshot.status = { ...snapshot.status, chip, state, detail };
  all('status', snapshot.status);
}

/** One comment's record; base is when its newest frame came. */
function record(base, text, outcome, think, error) {
  const n = settings.frames_per_look;
  const at = Array.from({ length: n }, (_, i) => base - (n - 1 - i) * 200);
  const started = base + DELAY * 1000 + error * 1000;
  const speech = outcome === 'spoken' ? 900 + text.length * 48 : 0;
  cycle++;
  const said = outcome === 'spoken' || outcome === 'shown';
  return {
    type: 'cycle_end', cycle, outcome, text: said || outcome === 'dropped' ? text : '', reason: outcome === 'failed' ? 'the model server answered 500' : '',
    instruction: snapshot.instruction, profile: snapshot.active_profile, engine: 'scene', frame_ids: at.map((_, i) => cycle * 10 + i), frame_at: at.map(iso),
    oldest_frame_at: iso(at[0]), newest_frame_at: iso(base), inference_start: iso(base + 20), inference_end: iso(base + think * 1000), inference_sec: think,
    latency_sec: think, first_word_sec: said ? think * 0.35 : 0, first_audio_sec: said ? think * 0.6 : 0, ready_sec: think * 0.6 + 0.05, delay: said ? DELAY : 0, target_delay: DELAY,
    shown_at: said ? iso(base + DELAY * 1000) : undefined, started_at: said ? iso(started) : undefined, ended_at: said ? iso(started + speech) : undefined,
    alignment_error: said ? error : 0, aligned: said, late: error > 0.1, audio_sec: speech / 1000, scene_diff: 4 + (cycle % 7), spoken: said, tokens: Math.round(text.length / 4),
  };
}

function keep(r, tell = true) {
  if (r.outcome === 'spoken') {
    snapshot.comments++;
    snapshot.alignment_last = Math.abs(r.alignment_error);
    snapshot.alignment_p95 = 0.061;
    if (r.late) snapshot.late++;
  } else snapshot[r.outcome] = (snapshot[r.outcome] ?? 0) + 1;
  past.push(r);
  while (past.length > 40) past.shift();
  if (tell) all('record', r);
}

function plan(i) {
  const error = opt.state === 'late' ? 0.9 : i % 7 === 3 ? 0.34 : 0.01 + (i % 5) * 0.012;
  return { text: LINES[i % LINES.length], think: 0.8 + ((i * 37) % 10) / 12, error };
}

if (!['empty', 'loading', 'waiting'].includes(opt.state)) {
  let t = Date.now() - 62_000;
  for (let i = 0; t < Date.now() - 9000; i++) {
    const p = plan(i);
    if (i % 3 === 1) keep(record(t - 700, '', 'silent', 0.4, 0), false);
    if (i % 6 === 5) {
      keep(record(t, LINES[7], 'dropped', 3.4, 0), false);
      t += 2500;
    }
    const r = record(t, p.text, 'spoken', p.think, p.error);
    keep(r, false);
    t += r.audio_sec * 1000 + 700;
  }
}

async function play() {
  for (let i = past.length; ; i++) {
    if (opt.state !== 'ok' && opt.state !== 'late') return;
    const p = plan(i);
    const base = Date.now();
    const r = record(base, p.text, 'spoken', p.think, p.error);
    status('thinking', 'thinking');
    await wait(p.think * 1000);
    status('watching', 'listening');
    await wait(Date.parse(r.started_at) - Date.now());
    status('speaking', 'speaking');
    const words = p.text.split(' ');
    let text = '';
    for (const w of words) {
      const delta = (text ? ' ' : '') + w;
      text += delta;
      if (settings.speech) all('caption', { segment: `s${r.cycle}`, cycle: r.cycle, delta, text, final: false, spoken: true });
      await wait((r.audio_sec * 1000) / words.length);
    }
    all('caption', { segment: `s${r.cycle}`, cycle: r.cycle, delta: '', text, final: true, spoken: true });
    keep(r);
    status('watching', 'listening');
    await wait(500);
  }
}

if (opt.state === 'loading') Object.assign(snapshot.status, { chip: 'loading', state: 'initializing', percent: 42, detail: 'Layer 15 of 36, 3.1 of 8.9 GB, about 20 s to go.' });
if (opt.state === 'waiting' || opt.state === 'gone') {
  snapshot.source = { width: 0, height: 0, fps: 0 };
  snapshot.status.chip = 'waiting';
}
if (opt.state === 'idle') Object.assign(snapshot, { monitor_mode: 'IDLE', status: { ...snapshot.status, chip: 'idle', state: 'idle' } });
if (opt.state === 'silent') Object.assign(snapshot.status, { chip: 'silent', detail: 'nothing changed' });
if (opt.state === 'broken') {
  Object.assign(snapshot.status, { chip: 'failed', state: 'idle', detail: 'nothing listens at 127.0.0.1:8000. Start the model server, or set inference.remote.url.' });
  snapshot.voice_problem = 'the program “flite” was not found';
}
setInterval(() => {
  if (opt.state === 'loading') snapshot.status.percent = Math.min(99, snapshot.status.percent + 0.4);
  if (opt.state === 'failed') keep(record(Date.now() - 900, '', 'failed', 0.5, 0));
  snapshot.delay = DELAY + Math.sin(Date.now() / 9000) * 0.01;
  all('snapshot', snapshot);
  tellRooms();
}, 1000);
for (let i = 0; i < Number(opt.rooms); i++) open(NAMES[i] ?? `room ${i + 1}`, ['watching', 'waiting', 'watching', 'loading', 'failed'][i] ?? 'watching');
void play();

/** Two people speak in turn, one of them an order. */
async function chat() {
  snapshot.status.hearing = 'all';
  const names = { ann: 'Ann', ben: 'Ben' };
  const say = async (identity, text, order) => {
    const heard = { segment: `heard-${++cycle}-${identity}`, identity, name: names[identity], track: 'TR_9', caption: true, final: false, began: iso(Date.now()) };
    const words = text.split(' ');
    for (let i = 1; i <= words.length; i++) {
      all('heard', { ...heard, text: words.slice(0, i).join(' ') });
      await wait(220);
    }
    await wait(300);
    all('heard', { ...heard, text, final: true, ended: iso(Date.now()), order });
  };
  for (;;) {
    await say('ann', 'Did you see that tackle?');
    void say('ben', 'Hey touchline, who has the ball now?', { text: 'who has the ball now?', effect: 'It acts.' });
    await say('ann', 'I think the reds are going to score in a minute.');
    await wait(1500);
    await say('ann', 'Hey touchline, go on.', { text: 'go on', refused: 'commenting is on' });
    await wait(2500);
  }
}
if (opt.hears) void chat();

const b64 = (x) => Buffer.from(x).toString('base64url');
function token(role, name) {
  const identity = `${role}-${randomBytes(3).toString('hex')}`;
  const claims = { iss: opt.key, sub: identity, name, exp: Math.floor(Date.now() / 1000) + 3600, video: { roomJoin: true, room: 'demo', canPublish: role === 'camera', canSubscribe: role !== 'camera' } };
  const head = `${b64(JSON.stringify({ alg: 'HS256', typ: 'JWT' }))}.${b64(JSON.stringify(claims))}`;
  return { url: opt.livekit, identity, room: 'demo', token: `${head}.${createHmac('sha256', opt.secret).update(head).digest('base64url')}` };
}

function picture(n) {
  const x = 20 + ((n * 37) % 120);
  const y = 18 + ((n * 23) % 54);
  const men = Array.from({ length: 12 }, (_, i) => `<circle cx="${(i * 29 + n * 3) % 150 + 5}" cy="${(i * 17 + n) % 76 + 8}" r="2" fill="${i % 2 ? '#d8402c' : '#3d6fd8'}"/>`).join('');
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 90"><rect width="160" height="90" fill="#2f7d43"/><g fill="#37894b">${[0, 40, 80, 120].map((s) => `<rect x="${s}" width="20" height="90"/>`).join('')}</g><g fill="none" stroke="#fff" stroke-width=".6" opacity=".85"><path d="M8 8h144v74H8zM80 8v74M8 27h20v36H8M152 27h-20v36h20"/><circle cx="80" cy="45" r="12"/></g>${men}<circle cx="${x}" cy="${y}" r="1.4" fill="#fff"/></svg>`;
}

async function api(req, res, url) {
  const json = (data, code = 200) => res.writeHead(code, { 'Content-Type': 'application/json' }).end(JSON.stringify(data));
  const fail = (code, message) => json({ code: 'refused', message, request_id: 'dev' }, code);
  let body = {};
  if (['POST', 'PUT', 'PATCH'].includes(req.method)) {
    let text = '';
    for await (const chunk of req) text += chunk;
    body = text ? JSON.parse(text) : {};
  }
  const changed = () => setTimeout(() => all('snapshot', snapshot), 350);
  // What is in a room is the same in each.
  const [, name, rest] = /^\/api\/rooms\/([^/]+)(\/.*)?$/.exec(url.pathname) ?? [];
  const room = name && decodeURIComponent(name);
  const path = rest ? `/api${rest}` : url.pathname;
  const where = `${req.method} ${name && !rest ? '/api/rooms/{room}' : path}`;
  if (where === 'POST /api/login') {
    if (body.token !== 'let-me-in-please') return fail(401, 'Wrong token.');
    locked = false;
    return json({});
  }
  if (locked) return fail(401, 'A token is needed from here.');
  if (room && !rooms.has(room)) return fail(404, `No commentator of this process is in a room “${room}”.`);
  const one = /^(GET|PATCH|DELETE|POST) \/api\/sources\/(\w+)(\/select)?$/.exec(where);
  if (one) {
    const s = sources.get(one[2]);
    if (!s) return fail(404, 'There is no such source.');
    if (one[3]) watch(s.identity);
    else if (one[1] === 'PATCH') Object.assign(s, { name: body.name ?? s.name, address: body.url ?? s.address });
    else if (one[1] === 'DELETE') sources.delete(s.id);
    changed();
    seeSources();
    return one[1] === 'DELETE' ? res.writeHead(204).end() : json(s);
  }
  const ruled = /^(PUT|DELETE) \/api\/rules\/(\w+)$/.exec(where);
  if (ruled) {
    if (!rules.has(ruled[2])) return fail(404, 'No such alert rule in this room.');
    if (ruled[1] === 'PUT') return json(rule(ruled[2], body));
    rules.delete(ruled[2]);
    return res.writeHead(204).end();
  }
  switch (where) {
    case 'GET /api/rules': return json({ rules: [...rules.values()] });
    case 'POST /api/rules': return json(rule(`r${nextRule++}`, body), 201);
    case 'GET /api/rooms': return json({ rooms: roomInfos() });
    case 'POST /api/rooms':
      if (rooms.has(body.room)) return fail(409, `The room already has a commentator: “${body.room}”.`);
      setTimeout(() => (open(body.room), tellRooms()), 2000);
      return json({ room: body.room, dispatch_id: 'AD_dev' }, 202);
    case 'GET /api/rooms/{room}': return json({ ...roomInfos().find((r) => r.room === room), settings, profiles: PROFILES });
    case 'DELETE /api/rooms/{room}': setTimeout(() => (rooms.delete(room), tellRooms()), 1200); return res.writeHead(204).end();
    case 'GET /api/frame': return res.writeHead(200, { 'Content-Type': 'image/svg+xml' }).end(picture(Math.floor(Date.now() / 1000)));
    case 'GET /api/sources': return json(sourceList());
    case 'POST /api/sources': {
      if (!/^(rtsps?|https?):\/\/./.test(body.url ?? '')) return fail(422, 'Expected an address that begins with rtsp:// or http://.');
      const s = source(body.url, body.name);
      if (body.watch !== false) watch(s.identity);
      seeSources();
      return json(s, 201);
    }
    case 'GET /api/status': return json(snapshot);
    case 'GET /api/rights': return json({ rights: ['watch', 'instruct', 'settings', 'sources', 'rules', 'speak', 'transcribe', 'process'] });
    case 'DELETE /api/heard': return res.writeHead(204).end();
    case 'GET /api/events':
      res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
      if (many && !room) {
        walls.add(res);
        req.on('close', () => walls.delete(res));
        return send(res, 'rooms', roomInfos());
      }
      readers.add(res);
      req.on('close', () => readers.delete(res));
      send(res, 'snapshot', snapshot);
      return send(res, 'history', past.filter((r) => r.text || opt.state === 'ok').slice(-30));
    case 'POST /api/instruction': Object.assign(snapshot, { instruction: body.instruction, instruction_by: 'the page' }); changed(); return json({});
    case 'POST /api/command': snapshot.command = { command: body.command, effect: 'Done.', by: 'the page', at: new Date().toISOString() }; changed(); return json(snapshot);
    case 'DELETE /api/instruction': snapshot.instruction = ''; changed(); return json({});
    case 'POST /api/profiles': snapshot.active_profile = body.profile; changed(); return json({});
    case 'GET /api/settings': return json({ settings: [{ name: 'frames_per_look', kind: 'whole', min: 1, max: 64, about: 'pictures of a cycle' }] });
    case 'POST /api/settings':
      if (body.frames_per_look > 64) return fail(422, 'frames_per_look must be between 1 and 64.');
      Object.assign(settings, body);
      changed();
      return json(settings);
    case 'POST /api/source':
      if (!/^(|scene|(camera|world):.+)$/.test(body.source)) return fail(400, 'Known sources are "", "scene", "world:NAME" and "camera:IDENTITY".');
      watch(body.source.replace(/^camera:/, ''));
      return (changed(), json({}));
    case 'POST /api/start': case 'POST /api/stop': snapshot.monitor_mode = where.endsWith('start') ? 'ACTIVE' : 'IDLE'; changed(); return json({});
    case 'POST /api/livekit/token': return opt.livekit ? json(token(body.role, body.name)) : fail(503, 'There is no LiveKit server.');
    case 'GET /api/mjpeg': return res.writeHead(200, { 'Content-Type': 'image/svg+xml' }).end(picture(7));
  }
  const frame = /^\/api\/frames\/(\d+)$/.exec(path);
  if (frame) return res.writeHead(200, { 'Content-Type': 'image/svg+xml' }).end(picture(Number(frame[1])));
  return fail(404, `There is no ${url.pathname}.`);
}

let cpu = 0;
createServer(async (req, res) => {
  const url = new URL(req.url, 'http://here');
  if (url.pathname.startsWith('/api/')) return void api(req, res, url);
  if (url.pathname === '/metrics') return void res.end(`process_cpu_seconds_total ${(cpu += 0.3 + Math.random() * 0.1).toFixed(2)}\n`);
  const home = many ? 'rooms.html' : 'index.html';
  const path = url.pathname === '/' ? home : /^\/rooms\/[^/]+$/.test(url.pathname) ? 'index.html' : normalize(url.pathname).replace(/^[/.]+/, '');
  try {
    const data = await readFile(join(dist, path));
    res.writeHead(200, {
      'Content-Type': types[extname(path)] ?? 'application/octet-stream', 'Cache-Control': 'no-store',
      'Content-Security-Policy': `default-src 'self'; connect-src 'self' ${opt.livekit ?? ''} ${opt.livekit?.replace(/^ws/, 'http') ?? ''}; media-src 'self' blob:; img-src 'self' blob:`,
    }).end(data);
  } catch {
    res.writeHead(404).end();
  }
}).listen(Number(opt.port), '127.0.0.1', function () {
  console.log(`http://127.0.0.1:${this.address().port}/ plays "${opt.state}"`);
});
