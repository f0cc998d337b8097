/** The drawer with privacy masks, zones and lines, which are drawn over the delayed picture while it is open. */
import * as api from './api.js';
import { Order, h, put, refill } from './panel.js';
import { blank, sign, unit } from './sight.js';

const MOST = 16; // corners
const NEAR = 14; // CSS pixels from a corner that a pointer takes
export const KINDS = { mask: 'Privacy mask', zone: 'Zone', line: 'Line' };
const USES = {
  mask: 'Black in every picture that Touchline reads, stores or sends.',
  zone: 'A place for alert rules, as in: a person enters the zone “NAME”.',
  line: 'For alert rules, as in: a car crosses the line “NAME” to the left. The arrow shows the way along which left and right are meant.',
};
const COLOURS = { mask: '#ff8f6b', zone: '#5fd0ff', line: '#f2c230' };

/** Corners as text in percent, one a line. @param {number[][]} points */
export const cornersText = (points) => points.map((p) => p.map((v) => Number((v * 100).toFixed(1))).join(' ')).join('\n');

/** The corners in a text; undefined if it is none. @param {string} text @returns {number[][] | undefined} */
export function corners(text) {
  const lines = text.split('\n').map((l) => l.trim()).filter(Boolean);
  const points = lines.map((l) => l.split(/[\s,;]+/).map((v) => Number((Number(v) / 100).toFixed(4))));
  return points.every((p) => p.length === 2 && p.every((v) => v >= 0 && v <= 1)) ? points : undefined;
}

/**
 * Where a picture is inside its box, which it fills without being cut.
 * @param {{width: number, height: number}} box @param {number} w @param {number} h of the picture
 */
export function inside(box, w, h) {
  const scale = Math.min(box.width / w, box.height / h);
  return { x: (box.width - w * scale) / 2, y: (box.height - h * scale) / 2, width: w * scale, height: h * scale };
}

/** Draws the head of a line: its left and right are those of the way to it. @param {CanvasRenderingContext2D} c @param {number[]} from @param {number[]} to */
function arrow(c, from, to) {
  const { width: w, height: h } = c.canvas;
  const turn = Math.atan2((to[1] - from[1]) * h, (to[0] - from[0]) * w);
  const size = 7 * unit(c.canvas);
  c.beginPath();
  for (const [ahead, aside] of [[0, 0], [-2, 1], [-2, -1]]) {
    const [x, y] = [ahead * size, aside * size];
    c.lineTo(to[0] * w + x * Math.cos(turn) - y * Math.sin(turn), to[1] * h + x * Math.sin(turn) + y * Math.cos(turn));
  }
  c.fill();
}

export class RegionsPanel {
  /** @type {import('./types.js').Regions} */
  #known = { regions: [], mask_delayed: false };
  /** @type {number[][]} of the form */
  #points = [];
  #held = -1; // corner under the pointer
  #editing = '';
  #refused = ''; // why the last change failed
  #open = false;
  #drawn = '';
  #order = new Order();
  #list = h('ul', { class: 'cams', ariaLabel: 'Regions', tabIndex: -1 });
  #warning = h('p', { class: 'what', role: 'status' });
  #confirm = h('button', { class: 'act', type: 'button', id: 'regions-confirm', hidden: true }, 'They fit this picture');
  #clear = h('button', { class: 'quiet', type: 'button', id: 'regions-clear' }, 'Remove all');
  #name = h('input', { id: 'region-name', maxLength: 40, autocomplete: 'off', required: true, placeholder: 'front door' });
  #kind = h('select', { id: 'region-kind', ariaDescribedby: 'region-use' }, ...Object.entries(KINDS).map(([value, label]) => h('option', { value }, label)));
  #corners = h('textarea', { id: 'region-corners', ariaDescribedby: 'region-how', rows: 4, spellcheck: false, placeholder: '10 20' });
  #title = h('h3', {}, 'New region');
  #use = h('small', { id: 'region-use' });
  #problem = h('small', { role: 'status' });

  /** @param {import('./state.js').State} state @param {{canvas: HTMLCanvasElement, video: HTMLVideoElement}} el */
  constructor(state, el) {
    Object.assign(this, { state, el });
    const form = h('form', { class: 'url region' }, this.#title,
      h('label', { for: 'region-name' }, 'Name'), this.#name,
      h('label', { for: 'region-kind' }, 'Kind'), this.#kind, this.#use,
      h('label', { for: 'region-corners' }, 'Corners'), this.#corners,
      h('small', { id: 'region-how' }, 'Click and drag on the picture, or type percent from the left and from the top, one corner a line.'),
      h('span', { class: 'row' }, h('button', { class: 'act', id: 'region-save' }, 'Save'),
        h('button', { class: 'quiet', type: 'button', id: 'region-new' }, 'Start over')), this.#problem);
    form.dataset.needs = this.#list.dataset.needs = this.#clear.dataset.needs = this.#confirm.dataset.needs = 'steer';
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      void this.#save();
    });
    form.querySelector('#region-new')?.addEventListener('click', () => this.#edit());
    this.#kind.addEventListener('change', () => this.#describe());
    this.#corners.addEventListener('input', () => {
      const points = corners(this.#corners.value);
      this.#corners.setCustomValidity(points ? '' : 'A corner is two numbers from 0 to 100, as in: 10 20');
      this.#points = (points ?? this.#points).slice(0, MOST);
      this.#draw();
    });
    this.#describe();
    this.#confirm.addEventListener('click', () => void this.#change(api.confirmRegions));
    this.#clear.addEventListener('click', () => {
      if (confirm('Remove all masks, zones and lines? What masks cover becomes visible.')) void this.#change(api.clearRegions);
    });
    this.body = h('div', { class: 'source' },
      h('p', { class: 'what' }, 'Masks hide a part of the picture; alert rules name zones and lines. The camera’s own track in the room is never masked.'),
      this.#warning, h('span', { class: 'row' }, this.#confirm, this.#clear), this.#list, form);
    for (const type of ['pointerdown', 'pointermove', 'pointerup', 'pointercancel']) el.canvas.addEventListener(type, (e) => this.#pointer(e));
    state.on('snapshot', () => this.#open && void this.#load());
    setInterval(() => this.#follow(), 500);
  }

  /** The drawer was opened. */
  shown() {
    this.#open = true;
    this.el.canvas.hidden = false;
    this.#refuse('');
    void this.#load();
  }

  /** Hides the canvas with the drawer, and follows the size of the picture. */
  #follow() {
    if (!this.#open) return;
    if (!this.body.isConnected || !this.body.offsetParent) {
      this.#open = false;
      this.el.canvas.hidden = true;
      return;
    }
    this.#draw();
  }

  /** Reads the regions anew. What is said about the last change stays. */
  async #load() {
    const newest = this.#order.ask();
    try {
      const known = await api.regions();
      if (!newest()) return;
      this.#show(known);
      put(this.#problem, this.#refused);
    } catch (err) {
      if (newest()) this.#problem.textContent = err.message;
    }
  }

  /** @param {string} why the last change failed; "" for none */
  #refuse(why) {
    this.#problem.textContent = this.#refused = why;
  }

  /** @param {() => Promise<import('./types.js').Regions>} call @returns {Promise<boolean>} whether it succeeded */
  async #change(call) {
    let why = '';
    try {
      const known = await call();
      this.#order.ask()(); // what was read before is out of date
      this.#show(known);
    } catch (err) {
      why = err.message;
    }
    this.#refuse(why);
    return !why;
  }

  /** @param {import('./types.js').Regions} known */
  #show(known) {
    this.#known = known;
    this.#draw();
    const { regions, covered } = known;
    const key = JSON.stringify([regions, covered]);
    if (key === this.#drawn) return;
    this.#drawn = key;
    this.#warning.hidden = !covered;
    this.#warning.textContent = covered ? `${covered[0].toUpperCase()}${covered.slice(1)}.` : '';
    this.#confirm.hidden = !regions.some((r) => r.rests);
    this.#clear.hidden = !regions.length && !covered;
    refill(this.#list, regions.map((r) => this.#row(r)));
    this.el.canvas.setAttribute('aria-label', `On the picture: ${regions.map((r) => `${KINDS[r.kind]} ${r.name}`).join(', ') || 'no regions'}`);
  }

  /** @param {import('./types.js').Region} r */
  #row(r) {
    const edit = h('button', { class: 'quiet', type: 'button', id: `region-edit-${r.name}`, ariaLabel: `Edit ${r.name}` }, 'Edit');
    const remove = h('button', { class: 'quiet', type: 'button', id: `region-remove-${r.name}`, ariaLabel: `Remove ${r.name}` }, 'Remove');
    edit.addEventListener('click', () => {
      this.#edit(r);
      this.#name.focus();
    });
    remove.addEventListener('click', () => void this.#change(() => api.removeRegion(r.name)));
    return h('li', {}, h('b', {}, r.name), h('small', {}, [KINDS[r.kind], r.by && `by ${r.by}`].filter(Boolean).join(', ')),
      h('small', {}, r.note ?? ''), h('span', { class: 'row' }, edit, remove));
  }

  /** Puts a region, or none, in the form. @param {import('./types.js').Region} [r] */
  #edit(r) {
    this.#refuse('');
    this.#about(r?.name ?? '');
    this.#name.value = this.#editing;
    this.#kind.value = r?.kind ?? this.#kind.value;
    this.#describe();
    this.#set(r?.points ?? []);
  }

  /** @param {string} name of the region in the form; "" for a new one */
  #about(name) {
    this.#editing = name;
    this.#title.textContent = name ? `Change “${name}”` : 'New region';
  }

  #describe() {
    this.#use.textContent = USES[this.#kind.value];
    this.#draw();
  }

  /** @param {number[][]} points */
  #set(points) {
    this.#points = points.map((p) => [...p]);
    this.#corners.value = cornersText(this.#points);
    this.#corners.setCustomValidity('');
    this.#draw();
  }

  async #save() {
    const form = () => ({ name: this.#name.value.trim(), kind: this.#kind.value, points: this.#points });
    const [editing, region] = [this.#editing, form()];
    const sent = JSON.stringify(region);
    if (!(await this.#change(() => api.putRegion(editing || region.name, region))) || this.#editing !== editing) return;
    if (JSON.stringify(form()) === sent) this.#edit();
    else if (editing) this.#about(region.name); // it was edited further meanwhile
  }

  /** @param {PointerEvent} e */
  #pointer(e) {
    const { canvas } = this.el;
    if (!this.#name.offsetParent) return; // this page may not change regions
    const box = canvas.getBoundingClientRect();
    const at = inside(box, canvas.width, canvas.height);
    const clamp = (v) => Math.round(Math.min(Math.max(v, 0), 1) * 1000) / 1000;
    const p = [clamp((e.clientX - box.x - at.x) / at.width), clamp((e.clientY - box.y - at.y) / at.height)];
    if (e.type === 'pointerdown') {
      e.preventDefault();
      canvas.setPointerCapture(e.pointerId);
      const far = this.#points.map((q) => Math.hypot((q[0] - p[0]) * at.width, (q[1] - p[1]) * at.height));
      this.#held = far.findIndex((d) => d <= NEAR);
      if (this.#held < 0 && this.#points.length < MOST) this.#held = this.#points.push(p) - 1;
    }
    if (this.#held < 0) return;
    this.#points[this.#held] = p;
    this.#set(this.#points);
    if (e.type === 'pointerup' || e.type === 'pointercancel') this.#held = -1;
  }

  #draw() {
    if (!this.#open) return;
    const c = blank(this.el.canvas, this.el.video);
    for (const r of this.#known.regions) if (r.name !== this.#editing) this.#shape(c, r, false);
    this.#shape(c, { name: this.#name.value, kind: this.#kind.value, points: this.#points }, true);
  }

  /** @param {CanvasRenderingContext2D} c @param {{name: string, kind: string, points: number[][]}} r @param {boolean} edited */
  #shape(c, { name, kind, points }, edited) {
    if (!points.length) return;
    const one = unit(c.canvas);
    const at = points.map(([x, y]) => [x * c.canvas.width, y * c.canvas.height]);
    c.beginPath();
    for (const [x, y] of at) c.lineTo(x, y);
    if (kind !== 'line') c.closePath();
    c.strokeStyle = COLOURS[kind];
    c.lineWidth = (edited ? 3 : 2) * one;
    c.stroke();
    c.fillStyle = kind === 'mask' ? 'rgb(4 8 6 / 65%)' : 'rgb(95 208 255 / 12%)';
    if (kind !== 'line') c.fill();
    c.fillStyle = COLOURS[kind];
    if (kind === 'line' && points.length > 1) arrow(c, points.at(-2), points.at(-1));
    if (edited) for (const [x, y] of at) c.fillRect(x - 5 * one, y - 5 * one, 10 * one, 10 * one);
    sign(c, name, at[0][0] + 6 * one, at[0][1] + 20 * one, COLOURS[kind]);
  }
}
