/** The list of comments, newest on top, with their pictures. */
import { frameURL } from './api.js';
import { moment } from './clock.js';
import { clockTime, count, frameName, seconds } from './words.js';
import { refill } from './panel.js';
import { age, alignment, meanwhile } from './view.js';

const KEPT = 60;
const THUMBS = 5;
const TOUCHED = 1500; // ms after a touch in which the list does not move

/** The frames to show as thumbnails: evenly spread, always with the newest. @param {number[]} ids @param {number} most */
export function pick(ids, most) {
  if (ids.length <= most) return ids;
  return Array.from({ length: most }, (_, i) => ids[Math.round((i * (ids.length - 1)) / (most - 1))]);
}

/** Tells a record from those of a server that was started anew. @param {import('./types.js').CycleRecord} r */
const rowKey = (r) => `${r.cycle} ${r.inference_start}`;

/**
 * A row to show again. One that lacks a picture is made anew, as the server may only have been away, unless it has the focus.
 * @param {HTMLElement} [li]
 */
export const reusable = (li) => (li?.querySelector('.thumb.gone') && !li.contains(document.activeElement) ? undefined : li);

export class Comments {
  /** @type {import('./score-layout.js').Cycle[]} that arrived while the reader holds the list */
  #waiting = [];
  #touched = -Infinity;
  #hover = false;
  #unseen = 0;

  /**
   * @param {import('./state.js').State} state
   * @param {{list: HTMLElement, now: HTMLElement, pill: HTMLElement}} el
   * @param {import('./viewer.js').FrameViewer} viewer
   */
  constructor(state, el, viewer) {
    this.state = state;
    this.el = el;
    this.viewer = viewer;
    state.on('history', () => this.#fill());
    state.on('record', (c) => this.#add(c));
    state.on('caption', () => this.#now());
    state.on('known', () => this.#now());
    setInterval(() => {
      this.#ages();
      this.#now();
      if (this.#waiting.length > 0 && !this.#held()) this.#release();
    }, 500);
    const touched = () => (this.#touched = performance.now());
    for (const type of ['pointerdown', 'touchmove', 'wheel', 'keydown']) el.list.addEventListener(type, touched, { passive: true });
    el.list.addEventListener('pointerover', (e) => (this.#hover = e.pointerType === 'mouse' && Boolean(e.target.closest('button'))));
    el.list.addEventListener('pointerleave', () => (this.#hover = false));
    el.list.addEventListener('scroll', () => {
      if (el.list.scrollTop < 4) this.#seenAll();
    }, { passive: true });
    el.pill.addEventListener('click', () => {
      this.#release();
      el.list.scrollTo({ top: 0, behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
      this.#seenAll();
    });
  }

  /** Whether the reader holds the list, which must not move then. */
  #held() {
    const focus = this.el.list.contains(document.activeElement) && document.activeElement.matches('button:focus-visible');
    return this.#hover || focus || performance.now() - this.#touched < TOUCHED;
  }

  #fill() {
    const items = this.state.cycles.filter((c) => this.#listed(c)).slice(-KEPT);
    this.#waiting = [];
    this.#seenAll();
    const old = new Map([...this.el.list.children].map((li) => [li.dataset.key, li]));
    refill(this.el.list, items.map((c) => reusable(old.get(rowKey(c.record))) ?? this.#item(c)).reverse());
    this.#ages();
    this.#now();
  }

  #listed(c) {
    return c.seq >= 0 && Boolean(c.record?.text);
  }

  #add(c) {
    this.#now();
    if (!this.#listed(c)) return;
    this.#waiting.push(c);
    if (!this.#held()) this.#release();
    else this.#tellPill();
  }

  #release() {
    const list = this.el.list;
    for (const c of this.#waiting.splice(0)) {
      const scrolled = list.scrollTop > 4;
      const before = list.scrollHeight;
      const item = this.#item(c);
      if (!scrolled) item.classList.add('fresh');
      list.prepend(item);
      while (list.children.length > KEPT) list.lastElementChild.remove();
      if (scrolled) {
        // The comment that is being read does not move.
        list.scrollTop += list.scrollHeight - before;
        this.#unseen++;
      }
    }
    this.#ages();
    this.#tellPill();
  }

  #tellPill() {
    const n = this.#unseen + this.#waiting.length;
    this.el.pill.hidden = n === 0;
    this.el.pill.textContent = `${count(n, 'new comment')} ↑`;
  }

  #seenAll() {
    this.#unseen = 0;
    this.#tellPill();
  }

  /** The comment in progress is above the list. */
  #now() {
    const text = this.state.current;
    const words = text || meanwhile(this.state.known);
    const { now } = this.el;
    if (now.textContent !== words) {
      now.textContent = words;
      now.lang = text ? this.state.language : 'en';
    }
    now.parentElement.classList.toggle('empty', !text);
  }

  #ages() {
    const t = this.state.now;
    for (const el of this.el.list.querySelectorAll('time')) {
      const words = age(Number(el.dataset.at), t);
      if (el.textContent !== words) el.textContent = words;
    }
  }

  /** @param {import('./score-layout.js').Cycle} c */
  #item(c) {
    const r = c.record;
    const li = document.createElement('li');
    Object.assign(li.dataset, { outcome: r.outcome, key: rowKey(r) });
    const at = [r.started_at, r.inference_end, r.newest_frame_at].map(moment).find(Number.isFinite) ?? NaN;

    const head = make('p', 'when');
    const time = document.createElement('time');
    time.dataset.at = String(at);
    if (Number.isFinite(at)) time.title = clockTime(at - this.state.clock.offset);
    head.append(time);
    if (r.outcome === 'cut') head.append(make('span', 'mark', 'cut short'));
    const fit = alignment(r);
    if (fit.text) {
      const el = make('span', `fit ${fit.tone}`, fit.text);
      el.title = fit.title;
      el.setAttribute('aria-label', fit.title);
      head.append(el);
    }
    const behind = (moment(r.started_at) - moment(r.newest_frame_at)) / 1000;
    if (Number.isFinite(behind)) {
      const el = make('span', 'behind', `${seconds(behind)} behind`);
      el.title = `Said ${seconds(behind)} after its newest frame was live; ready after ${seconds(r.ready_sec || r.latency_sec)}.`;
      head.append(el);
    }

    const words = make('p', 'words', r.text);
    words.lang = this.state.language;
    li.append(head, words);
    if (r.facts?.length) li.append(make('p', 'facts', r.facts.map((f) => f.text).join(' · ')));

    // The pictures of a dropped comment are not kept.
    const ids = r.outcome === 'dropped' ? [] : r.frame_ids ?? [];
    if (ids.length > 0) {
      const row = make('div', 'thumbs');
      for (const id of pick(ids, THUMBS)) {
        const i = ids.indexOf(id);
        const b = thumbnail(id, frameName(i, ids.length, moment(r.frame_at?.[i]) - this.state.clock.offset));
        b.addEventListener('click', () => this.viewer.show(r, i));
        row.append(b);
      }
      if (ids.length > THUMBS) row.append(make('span', 'more', `of ${ids.length}`));
      li.append(row);
    }
    return li;
  }
}

/** A button with a small picture. @param {number} id @param {string} name for the tooltip and for screen readers */
export function thumbnail(id, name) {
  const b = make('button', 'thumb');
  b.type = 'button';
  b.title = name;
  b.setAttribute('aria-label', name);
  const img = make('img');
  img.width = 64;
  img.height = 36;
  img.loading = 'lazy';
  img.decoding = 'async';
  img.alt = name;
  img.src = frameURL(id, 160);
  img.onerror = () => {
    b.classList.add('gone');
    b.disabled = true;
    b.title = 'This picture is no longer stored.';
    b.setAttribute('aria-label', `${name}: no longer stored`);
    img.remove();
  };
  b.append(img);
  return b;
}

/** @param {string} tag @param {string} [cls] @param {string} [text] @returns {any} */
function make(tag, cls, text) {
  const el = document.createElement(tag);
  if (cls) el.className = cls;
  if (text !== undefined) el.textContent = text;
  return el;
}
