/** What the engine found, drawn over the delayed picture. */
import * as api from './api.js';
import { moment } from './clock.js';

const EVERY = 400; // ms
const KEPT = 60_000; // ms, as long as the delay may be
const STALE = 2_500; // ms after which boxes are not shown any more
const COLOURS = ['#f2c230', '#5fd0ff', '#7be27b', '#ff8f6b', '#d39bff', '#ffffff'];

/**
 * The sight that the delayed picture shows: the newest of those that are due, and not too old.
 * @param {import('./types.js').Sight[]} sights oldest first @param {number} shown ms, the moment that the picture shows
 */
export function due(sights, shown) {
  const s = sights.findLast((x) => moment(x.at) <= shown);
  return s && shown - moment(s.at) <= STALE ? s : undefined;
}

/** What stands at a box. @param {import('./types.js').Thing} t */
export const label = (t) => (t.track ? `${t.name} ${t.track}` : t.name);

/** The colour of a box: a thing that is followed keeps its own. @param {import('./types.js').Thing} t */
export const colour = (t) => (t.track ? COLOURS[t.track % COLOURS.length] : '#9aa79f');

/** Empties a canvas over a picture and gives it the picture's size. @param {HTMLCanvasElement} canvas @param {HTMLVideoElement} video */
export function blank(canvas, video) {
  const [width, height] = [video.videoWidth || 1280, video.videoHeight || 720];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const c = canvas.getContext('2d');
  c.clearRect(0, 0, width, height);
  return c;
}

/** The pixels of a canvas over a picture in one CSS pixel. @param {HTMLCanvasElement} canvas */
export const unit = (canvas) => Math.max(canvas.width / (canvas.clientWidth || canvas.width), canvas.height / (canvas.clientHeight || canvas.height));

/**
 * Writes words over a picture, on a dark ground and inside the picture.
 * @param {CanvasRenderingContext2D} c @param {string} words @param {number} x @param {number} y of the lower left corner @param {string} colour
 */
export function sign(c, words, x, y, colour) {
  if (!words) return;
  const size = Math.max(13 * unit(c.canvas), c.canvas.height / 36);
  c.font = `600 ${size}px system-ui, sans-serif`;
  const [width, height] = [c.measureText(words).width + size / 2, size * 1.3];
  const left = Math.max(0, Math.min(x, c.canvas.width - width));
  const low = Math.min(Math.max(height, y), c.canvas.height);
  c.fillStyle = 'rgb(4 8 6 / 75%)';
  c.fillRect(left, low - height, width, height);
  c.fillStyle = colour;
  c.fillText(words, left + size / 4, low - size * 0.3);
}

/** The boxes in words, for screen readers. @param {import('./types.js').Thing[]} things */
export const spoken = (things) => (things.length ? `Found: ${things.map(label).join(', ')}` : 'The engine found nothing');

export class SightView {
  on = false;
  /** @type {import('./types.js').Sight[]} */
  #sights = [];
  #asking = false;

  /**
   * @param {import('./state.js').State} state
   * @param {{canvas: HTMLCanvasElement, button: HTMLElement, facts: HTMLElement, video: HTMLVideoElement}} el
   */
  constructor(state, el) {
    Object.assign(this, { state, el });
    el.button.addEventListener('click', () => this.toggle());
    state.on('snapshot', () => {
      el.button.hidden = state.known.snapshot?.engine !== 'sight';
      if (el.button.hidden && this.on) this.toggle();
    });
    setInterval(() => void this.#ask(), EVERY);
    setInterval(() => this.#draw(), 100);
  }

  toggle() {
    if (this.el.button.hidden && !this.on) return;
    this.on = !this.on;
    this.el.button.setAttribute('aria-pressed', String(this.on));
    this.el.canvas.hidden = this.el.facts.hidden = !this.on;
    this.#sights = [];
    this.#draw();
  }

  async #ask() {
    if (!this.on || this.#asking || document.hidden) return;
    this.#asking = true;
    const seen = await api.sight().catch(() => null);
    this.#asking = false;
    if (!seen || seen.at === this.#sights.at(-1)?.at) return;
    this.#sights = [...this.#sights.filter((s) => moment(seen.at) - moment(s.at) < KEPT), seen];
  }

  #draw() {
    if (!this.on) return;
    const { canvas, video, facts } = this.el;
    const c = blank(canvas, video);
    const { width: w, height: h } = canvas;
    const seen = due(this.#sights, this.state.now - this.state.delay);
    const words = (seen?.facts ?? []).slice(-4).map((f) => f.text).join('\n');
    if (facts.textContent !== words) facts.textContent = words;
    const heard = spoken(seen?.things ?? []);
    if (canvas.getAttribute('aria-label') !== heard) canvas.setAttribute('aria-label', heard);
    c.lineWidth = Math.max(2 * unit(canvas), h / 240);
    for (const t of seen?.things ?? []) {
      const [x, y] = [t.x0 * w, t.y0 * h];
      c.strokeStyle = colour(t);
      c.strokeRect(x, y, (t.x1 - t.x0) * w, (t.y1 - t.y0) * h);
      sign(c, label(t), x, y, colour(t));
    }
  }
}
