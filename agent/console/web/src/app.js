/** Connects the page: inputs, parts, keys. */
import * as api from './api.js';
import { Alerts } from './alerts.js';
import { Ask } from './ask.js';
import { Captions } from './captions.js';
import { Comments } from './comments.js';
import { Confirm, InstructionBox, Profiles, Toast, Voice } from './controls.js';
import { Events } from './events.js';
import { HeardStrip } from './heard.js';
import { helpBody } from './help.js';
import { NumbersPanel } from './numbers.js';
import { Panel } from './panel.js';
import { PromptsPanel } from './prompts.js';
import { Viewer } from './room.js';
import { ScoreSheet } from './scoresheet.js';
import { Share, mays, terms } from './share.js';
import { SettingsPanel } from './settings.js';
import { RegionsPanel } from './regions.js';
import { SightView } from './sight.js';
import { SourcePanel } from './source.js';
import { State } from './state.js';
import { Talk } from './talk.js';
import { FrameViewer } from './viewer.js';
import { banner, chip, curtain, engine, tally } from './view.js';
import { millis, seconds } from './words.js';

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);

const state = new State();
const toast = new Toast();
const confirm = new Confirm(state);
const viewer = new Viewer(state, { video: $('picture'), audio: $('sound'), camera: $('camera-audio'), plain: $('picture-http') });
const captions = new Captions(state, { box: $('captions'), live: $('caption-live') }, () => viewer.audible);
const sight = new SightView(state, { canvas: $('sight'), button: $('boxes'), facts: $('sight-facts'), video: $('picture') });
new Comments(state, { list: $('list'), now: $('now-words'), pill: $('pill') }, new FrameViewer(state));
new ScoreSheet(state, { canvas: $('sheet'), tip: $('tip') });
const panel = new Panel();
const box = new InstructionBox(state, confirm);
new Ask(state, (order) => void box.send(order));
new Profiles(state, confirm, box, toast);
const voice = new Voice(state, confirm, viewer, toast);
const source = new SourcePanel(state, confirm);
const settings = new SettingsPanel(state, confirm);
const prompts = new PromptsPanel(state);
const regions = new RegionsPanel(state, { canvas: $('regions'), video: $('picture') });
const numbers = new NumbersPanel(state, panel);
let rights = /** @type {string[]} */ ([]);
const talk = new Talk(state, confirm, viewer, () => rights);
new HeardStrip(state, {
  strip: $('heard'), list: $('heard-list'), live: $('heard-live'), glyph: $('ears'), words: $('ears-words'), desk: $('desk'),
  remove: $('heard-delete'),
}, () => viewer.identity, () => rights);
const alerts = new Alerts(state, panel, () => $('mute').getAttribute('aria-pressed') === 'true');
panel.add('alerts', 'Alerts', alerts.body, () => alerts.shown());
panel.add('regions', 'Masks, zones and lines', regions.body, () => regions.shown());
panel.add('source', 'Source', source.body, () => source.shown());
panel.add('prompts', 'Profiles and match sheet', prompts.body, () => prompts.shown());
panel.add('settings', 'Settings', settings.body, () => settings.shown());
panel.add('numbers', 'Numbers', numbers.body, () => numbers.shown());
const share = new Share(location);
panel.add('share', 'Share', share.body, () => void share.refresh());
panel.add('help', 'Help', helpBody());
$('say-engines').addEventListener('click', () => {
  panel.show('help');
  $('help-engines').scrollIntoView({ block: 'nearest' });
});

$('all-rooms').hidden = api.inRoom('') === '/api';

const events = new Events({
  clock: state.clock,
  event: (name, data) => state.take(name, data),
  link: (link, retryIn, why) => {
    retryAt = link === 'lost' ? performance.now() + (retryIn ?? 0) * 1000 : 0;
    state.set({ link, retryIn: retryIn ?? 0, why });
    if (link === 'open' && !viewer.joined) void viewer.join();
    if (link === 'open') void calibrate();
    if (link === 'open') void readRights();
  },
});
let retryAt = 0;

/** Reads the server's clock several times within a second, as its Date has whole seconds. */
async function calibrate() {
  for (let i = 0; i < 4 && state.clock.uncertainty > 400; i++) {
    await api.status({ clock: state.clock }).catch(() => {});
    await new Promise((done) => setTimeout(done, 270));
  }
}

/** Hides what this client may not do. */
async function readRights() {
  const who = await api.rights().catch(() => null);
  if (!who) return;
  document.body.dataset.may = mays(who.rights);
  rights = who.rights;
  talk.draw();
  text($('terms'), terms(who));
}

const ACTS = {
  retry: () => events.open(),
  join: () => void viewer.join(),
  http: () => viewer.showHTTP(),
  rooms: () => location.assign('/'),
  camera: () => {
    panel.show('source');
    void source.useCamera();
  },
  scene: () => {
    panel.show('source');
    void source.choose('scene');
  },
};

function buttons(el, acts) {
  const key = acts.map((a) => a.id).join();
  if (el.dataset.key === key) return;
  el.dataset.key = key;
  el.replaceChildren(...acts.map((a, i) => {
    const b = document.createElement('button');
    if (a.id === 'camera' || a.id === 'scene') b.dataset.needs = 'sources';
    b.className = i === 0 ? 'act' : 'quiet';
    b.textContent = a.label;
    b.addEventListener('click', () => ACTS[a.id]());
    return b;
  }));
}

function text(el, words) {
  if (el.textContent !== words) el.textContent = words;
}

function draw() {
  const k = state.known;
  if (k.link === 'lost') k.retryIn = Math.max(0, (retryAt - performance.now()) / 1000);
  const c = chip(k);
  text($('chip-words'), c.words);
  $('chip').dataset.tone = c.tone;
  $('chip').title = c.words;

  const cur = curtain(k);
  $('curtain').hidden = !cur;
  if (cur) {
    text($('curtain-words'), cur.words);
    text($('curtain-more'), cur.more ?? '');
    $('curtain-progress').hidden = cur.percent === undefined;
    if (cur.percent !== undefined) $('curtain-progress').value = cur.percent;
    $('login').hidden = !cur.login;
    buttons($('curtain-actions'), cur.acts);
  }
  const ban = banner(k, state.now);
  $('banner').hidden = !ban;
  if (ban) {
    text($('banner-words'), ban.words);
    $('banner').dataset.tone = ban.tone;
    buttons($('banner-actions'), ban.acts);
  }
  $('stage').classList.toggle('stale', Boolean(ban) && k.picture === 'stalled');

  $('picture-http').hidden = !k.http;

  const s = k.snapshot;
  text($('fig-delay'), s ? seconds(s.delay) : '–');
  const known = s && s.alignment_last >= 0;
  text($('fig-align'), known ? millis(s.alignment_last) : '–');
  text($('fig-p95'), s && s.alignment_p95 >= 0 ? `p95 ${millis(s.alignment_p95)}` : '');
  $('fig-align').classList.toggle('bad', Boolean(known) && s.alignment_last > 0.1);
  text($('tally'), s ? `${tally(s)}${state.lost ? `; ${state.lost} missed here` : ''}` : '');
  const e = engine(s);
  text($('engine-name'), e.name);
  $('engine-name').hidden = !e.name;
  text($('engine-note'), e.note);
  $('engine').title = s?.engine_note ?? '';
  document.title = s ? `${c.words} · Touchline` : 'Touchline';
}

let queued = false;
function redraw() {
  if (queued) return;
  queued = true;
  queueMicrotask(() => {
    queued = false;
    draw();
  });
}
state.on('known', redraw);
setInterval(redraw, 1000);
state.on('lost', (n) => toast.say(`This page was too slow and missed ${n} ${n === 1 ? 'event' : 'events'}.`));
viewer.onNoPicture = () => toast.say('The server has no picture.');
viewer.onName = (name) => text($('room-name'), name ? `room “${name}”` : '');

$('cc').addEventListener('click', () => toggleCaptions());
function toggleCaptions() {
  captions.on = !captions.on;
  $('cc').setAttribute('aria-pressed', String(captions.on));
  captions.draw();
}

$('fullscreen').addEventListener('click', () => void fullscreen());
async function fullscreen() {
  const stage = $('stage');
  try {
    if (document.fullscreenElement) await document.exitFullscreen();
    else if (stage.requestFullscreen) await stage.requestFullscreen();
    else $('picture').webkitEnterFullscreen?.();
  } catch {
    toast.say('Full screen is blocked by the browser.');
  }
}

$('login').addEventListener('submit', (e) => {
  e.preventDefault();
  void login($('login-token').value.trim());
});

/** @param {string} token */
async function login(token) {
  try {
    if (!(await api.login(token, (text) => toast.say(text)))) return;
    $('login-token').value = '';
    state.set({ link: 'connecting' });
    events.open();
  } catch (err) {
    const wrong = err.status === 401 || err.status === 403;
    toast.say(wrong ? 'Wrong token.' : err.message);
    if (!wrong) $('login-token').value ||= token; // it is no longer in the address
    state.set({ link: 'locked' });
  }
}

addEventListener('keydown', (e) => {
  const typing = e.target instanceof HTMLElement && e.target.matches('input:not([type=range]):not([type=radio]):not([type=checkbox]), textarea');
  if (typing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
  switch (e.key) {
    case '/':
      e.preventDefault();
      $('instruction').focus();
      break;
    case 'm':
      voice.mute();
      break;
    case 'c':
      toggleCaptions();
      break;
    case 'b':
      sight.toggle();
      break;
    case 'f':
      void fullscreen();
      break;
    case 'n':
      $('open-numbers').click();
      break;
    case 't':
      if (!e.repeat) talk.press();
      break;
    case '?':
      $('open-help').click();
      break;
  }
});

addEventListener('keyup', (e) => {
  if (e.key.toLowerCase() === 't') talk.release();
});

// The token in the address' fragment becomes a cookie and is removed from the address.
const token = api.fragmentToken(location.hash);
draw();
if (token) {
  history.replaceState(null, '', location.pathname + location.search);
  await login(token);
} else {
  // Paint first, then load the room and its library.
  requestAnimationFrame(() => setTimeout(() => events.open(), 0));
}
