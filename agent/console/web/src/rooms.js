/** The page of many rooms: a tile for each, with a link to its page. */
import * as api from './api.js';
import { Events } from './events.js';
import { ServerClock } from './clock.js';
import { h } from './panel.js';
import { age } from './view.js';
import { Wall, headline, nobody } from './wall.js';

const FRESH = 2000; // ms between two pictures of a tile
const ARRIVES = 15_000; // ms after which a requested commentator counts as missing
const LEAVES = 10_000; // ms within which a removed commentator leaves

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);
const clock = new ServerClock();
const wall = new Wall();
let link = 'connecting';
let why = '';
let retryAt = 0;
let asked = '';
let askedTimer = 0;
/** Rooms whose commentator was called off, each with the timer that misses its leaving. @type {Map<string, number>} */
const leaving = new Map();

const events = new Events({
  clock,
  event: (name, data) => {
    wall.take(name, data);
    redraw();
  },
  link: (now, retryIn, ended) => {
    link = now;
    why = ended ?? '';
    retryAt = performance.now() + (retryIn ?? 0) * 1000;
    redraw();
  },
}, { url: '/api/events', names: ['rooms', 'room', 'gone', 'status', 'caption', 'record', 'lost'], probe: (opts) => api.call('GET', '/api/rooms', undefined, opts) });

/** One room on the wall. */
class TileView {
  #shown = '';
  #visible = false;
  #timer = 0;
  #busy = false;
  #url = '';
  #tile = /** @type {import('./wall.js').Tile | null} */ (null);

  /** @param {string} room */
  constructor(room) {
    this.room = room;
    this.img = h('img', { class: 'tile-picture', alt: `Picture of the room “${room}”`, hidden: true });
    this.none = h('span', { class: 'tile-none' });
    this.chipWords = h('span', {});
    this.chip = h('span', { class: 'chip tile-chip' }, h('span', { class: 'chip-in' }, h('i', { class: 'chip-dot', ariaHidden: 'true' }), this.chipWords));
    this.words = h('p', { class: 'tile-words' });
    this.when = h('time', {});
    this.behind = h('span', {});
    this.aligned = h('span', {});
    this.viewers = h('span', {});
    const name = h('h2', { id: `room-${encodeURIComponent(room)}` }, room);
    this.link = h('a', { class: 'tile' },
      h('span', { class: 'tile-stage' }, this.none, this.img, this.chip),
      h('span', { class: 'tile-text' }, h('span', { class: 'tile-head' }, name, this.when), this.words,
        h('span', { class: 'tile-figures' }, this.behind, this.aligned, this.viewers)));
    this.off = h('button', { class: 'quiet tile-off', type: 'button', ariaLabel: `Remove the commentator from “${room}”` }, 'Remove');
    this.off.addEventListener('click', () => this.#ask(true));
    this.yes = h('button', { class: 'act', type: 'button' }, 'Remove');
    this.yes.addEventListener('click', () => void this.#callOff());
    this.no = h('button', { class: 'quiet', type: 'button' }, 'Keep');
    this.no.addEventListener('click', () => this.#ask(false));
    const question = h('p', { id: `off-${encodeURIComponent(room)}` }, `Remove the commentator from “${room}”?`);
    this.sure = h('div', { class: 'tile-sure', role: 'alertdialog', ariaLabelledby: question.id, hidden: true },
      question, h('p', { class: 'tile-sure-more' }, 'The commentary ends at once. People and cameras stay in the room.'), h('div', { class: 'row' }, this.yes, this.no));
    this.sure.addEventListener('keydown', (e) => {
      if (e.key === 'Escape') this.#ask(false);
    });
    this.el = h('li', {}, this.link, this.off, this.sure);
    this.el.tile = this;
  }

  /** Shows or hides the confirmation. @param {boolean} on */
  #ask(on) {
    this.sure.hidden = !on;
    this.link.inert = on;
    this.off.hidden = on;
    const at = document.activeElement;
    if (at === document.body || this.el.contains(at)) (on ? this.no : this.off).focus(); // or the reader has gone on
  }

  async #callOff() {
    this.yes.disabled = true;
    try {
      await api.call('DELETE', api.apiBase(this.link.pathname));
      if (!wall.has(this.room)) return; // already gone
      tell('wait', `Removing the commentator from “${this.room}”.`);
      clearTimeout(leaving.get(this.room));
      leaving.set(this.room, setTimeout(() => {
        leaving.delete(this.room);
        tell('bad', `The commentator is still in “${this.room}”; it may have been requested again.`);
      }, LEAVES));
    } catch (err) {
      tell('bad', err.message);
      if (err.status === 401) events.open();
    } finally {
      this.yes.disabled = false;
      if (this.el.isConnected) this.#ask(false);
    }
  }

  /** @param {import('./wall.js').Tile} t */
  draw(t) {
    this.#tile = t;
    const key = JSON.stringify([t, age(t.at, clock.at(Date.now()))]);
    if (key === this.#shown) return;
    this.#shown = key;
    this.link.href = t.href;
    text(this.chipWords, t.chip.words);
    this.chip.dataset.tone = t.chip.tone;
    this.chip.title = t.chip.words;
    text(this.words, t.words);
    this.words.classList.toggle('live', t.live);
    this.words.classList.toggle('none-yet', !t.live && !Number.isFinite(t.at));
    text(this.when, t.live ? 'now' : age(t.at, clock.at(Date.now())));
    text(this.behind, t.behind);
    text(this.aligned, t.aligned);
    this.aligned.classList.toggle('bad', t.late);
    text(this.viewers, t.viewers);
    text(this.none, t.none);
    if (!t.picture) this.#clear();
    else if (this.#visible && !this.#timer) this.#fetch();
  }

  /** Loads pictures only while the tile is visible. @param {boolean} on */
  set visible(on) {
    this.#visible = on;
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (on) this.#fetch();
  }

  async #fetch() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (this.#busy || !this.#visible || document.hidden || link !== 'open' || !this.#tile?.picture) return;
    this.#busy = true;
    try {
      const res = await fetch(`${api.apiBase(this.#tile.href)}/frame?w=448`, { cache: 'no-store', signal: AbortSignal.timeout(10_000) });
      if (res.ok) await this.#show(await res.blob());
    } catch {
      // The next one may work.
    }
    this.#busy = false;
    if (this.#visible) this.#timer = setTimeout(() => this.#fetch(), FRESH);
  }

  async #show(blob) {
    const old = this.#url;
    this.#url = URL.createObjectURL(blob);
    this.img.src = this.#url;
    await this.img.decode().catch(() => {});
    this.img.hidden = !this.#tile?.picture;
    if (old) URL.revokeObjectURL(old);
  }

  #clear() {
    this.img.hidden = true;
    this.img.removeAttribute('src');
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.#url = '';
  }

  remove() {
    this.visible = false;
    this.#clear();
    if (this.el.contains(document.activeElement)) $('rooms').focus(); // keeps the place on the page
    this.el.remove();
  }
}

/** @type {Map<string, TileView>} */
const views = new Map();
const seen = new IntersectionObserver((entries) => {
  for (const e of entries) e.target.tile.visible = e.isIntersecting;
}, { rootMargin: '100px' });
document.addEventListener('visibilitychange', () => {
  for (const v of views.values()) {
    const box = v.el.getBoundingClientRect();
    v.visible = !document.hidden && box.bottom > -100 && box.top < innerHeight + 100;
  }
});

function text(el, words) {
  if (el.textContent !== words) el.textContent = words;
}

function draw() {
  const tiles = link === 'locked' ? [] : wall.tiles;
  const names = new Set(tiles.map((t) => t.room));
  for (const [room, view] of views) {
    if (names.has(room)) continue;
    seen.unobserve(view.el);
    view.remove();
    views.delete(room);
  }
  tiles.forEach((t, i) => {
    let view = views.get(t.room);
    if (!view) {
      view = new TileView(t.room);
      views.set(t.room, view);
      seen.observe(view.el);
    }
    if ($('list').children[i] !== view.el) $('list').insertBefore(view.el, $('list').children[i] ?? null);
    view.off.disabled = link !== 'open';
    view.draw(t);
  });
  $('list').classList.toggle('stale', link === 'lost');

  const retryIn = Math.max(0, (retryAt - performance.now()) / 1000);
  text($('count'), headline(link, tiles.length, retryIn));
  document.title = link === 'open' && tiles.length ? `${headline(link, tiles.length, 0)} · Touchline` : 'Touchline';
  $('banner').hidden = link !== 'lost' || tiles.length === 0;
  text($('banner-words'), 'The server does not answer. Retrying.');
  const none = nobody(/** @type {any} */ (link), tiles.length, why);
  $('nobody').hidden = !none;
  if (none) {
    text($('nobody-words'), none.words);
    text($('nobody-more'), none.more);
    $('login').hidden = !none.login;
    $('nobody-line').hidden = !none.line;
  }
  for (const el of $('ask').elements) el.disabled = link !== 'open';
  for (const [room, timer] of leaving) {
    if (link !== 'open' || wall.has(room)) continue;
    clearTimeout(timer);
    leaving.delete(room);
    tell('on', `The commentator has left “${room}”.`);
  }
  if (asked && wall.has(asked)) tell('on', `The commentator has joined “${asked}”.`);
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
setInterval(redraw, 1000);

/** Shows the result of a call. @param {string} tone @param {string} words */
function tell(tone, words) {
  clearTimeout(askedTimer);
  if (tone !== 'wait') asked = '';
  const el = $('ask-state');
  el.hidden = false;
  el.dataset.tone = tone;
  text(el, words);
  if (tone === 'on') askedTimer = setTimeout(() => (el.hidden = true), 4000);
}

$('ask').addEventListener('submit', async (e) => {
  e.preventDefault();
  const room = $('ask-room').value.trim();
  if (!room) return;
  if (wall.has(room)) {
    tell('bad', `“${room}” already has a commentator.`);
    return;
  }
  tell('wait', `Requesting a commentator for “${room}”.`);
  try {
    await api.call('POST', '/api/rooms', { room });
    if ($('ask-room').value.trim() === room) $('ask-room').value = '';
    asked = room;
    tell('wait', `Requested. Waiting for the commentator to join “${room}”.`);
    askedTimer = setTimeout(() => tell('wait', `No commentator has joined “${room}” through this worker; another worker may serve it.`), ARRIVES);
    redraw();
  } catch (err) {
    tell('bad', err.message);
    if (err.status === 401) events.open();
  }
});

$('retry').addEventListener('click', () => events.open());
$('login').addEventListener('submit', (e) => {
  e.preventDefault();
  void login($('login-token').value.trim());
});

/** @param {string} token */
async function login(token) {
  try {
    if (!(await api.login(token, (text) => tell('bad', text)))) return;
    $('login-token').value = '';
    $('ask-state').hidden = true;
    link = 'connecting';
    events.open();
  } catch (err) {
    const wrong = err.status === 401 || err.status === 403;
    tell('bad', wrong ? 'Wrong token.' : err.message);
    if (!wrong) $('login-token').value ||= token; // it is no longer in the address
    link = 'locked';
  }
  redraw();
}

addEventListener('keydown', (e) => {
  if (e.target instanceof HTMLInputElement || e.ctrlKey || e.metaKey || e.altKey || e.key !== '/') return;
  e.preventDefault();
  $('ask-room').focus();
});

// The token in the address' fragment becomes a cookie and is removed from the address.
const token = api.fragmentToken(location.hash);
draw();
if (token) {
  history.replaceState(null, '', location.pathname + location.search);
  await login(token);
} else {
  events.open();
}
