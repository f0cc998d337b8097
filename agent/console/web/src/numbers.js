/** The numbers drawer: small graphs with units on every axis. */
import { h } from './panel.js';
import { frameAges, gpuMemory, gradeWords, load, noLoadWords, reading, stages, steps, tokenRate } from './numbers-series.js';
import { isComment } from './score-layout.js';
import { Raw } from './raw.js';
import { millis, seconds } from './words.js';

const SVG = 'http://www.w3.org/2000/svg';
const W = 340;
const H = 132;
const PAD = { left: 34, right: 8, top: 10, bottom: 26 };
const SHOWN = 24; // comments in a graph
const POLL = 2000; // ms between readings of the load

/** @param {string} tag @param {Record<string, string | number>} attrs @param {...(Node|string)} children */
function s(tag, attrs, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attrs)) el.setAttribute(k, String(v));
  el.append(...children);
  return el;
}

/**
 * A frame with axes.
 * @param {string} label for screen readers @param {number} max @param {string} unit
 * @param {string} xLabel @param {string[]} xEnds
 */
function frame(label, max, unit, xLabel, xEnds) {
  const ys = steps(max);
  const top = ys.at(-1);
  const inner = { w: W - PAD.left - PAD.right, h: H - PAD.top - PAD.bottom };
  const y = (v) => PAD.top + inner.h * (1 - v / top);
  const x = (f) => PAD.left + inner.w * f;
  const svg = s('svg', { viewBox: `0 0 ${W} ${H}`, class: 'graph', role: 'img', 'aria-label': label });
  for (const v of ys) {
    svg.append(s('line', { class: 'grid', x1: PAD.left, x2: W - PAD.right, y1: y(v), y2: y(v) }));
    svg.append(s('text', { class: 'axis', x: PAD.left - 5, y: y(v) + 3.5, 'text-anchor': 'end' }, String(v)));
  }
  svg.append(s('text', { class: 'axis unit', x: 2, y: PAD.top + 3.5 }, unit));
  svg.append(s('text', { class: 'axis', x: PAD.left, y: H - 14 }, xEnds[0]));
  svg.append(s('text', { class: 'axis', x: W - PAD.right, y: H - 14, 'text-anchor': 'end' }, xEnds[1]));
  svg.append(s('text', { class: 'axis', x: x(0.5), y: H - 2, 'text-anchor': 'middle' }, xLabel));
  return { svg, x, y, base: y(0), inner };
}

/** @param {[number, number][]} points */
function path(points) {
  return points.map(([a, b], i) => `${i ? 'L' : 'M'}${a.toFixed(1)} ${b.toFixed(1)}`).join('');
}

function legend(...keys) {
  return h('p', { class: 'keys-row' }, ...keys.map(([cls, text]) => h('span', { class: cls }, text)));
}

export class NumbersPanel {
  #age = h('div', { class: 'plot' });
  #delay = h('div', { class: 'plot' });
  #stages = h('div', { class: 'plot' });
  #tokens = h('div', { class: 'plot' });
  #load = h('div', { class: 'plot' });
  #tiles = h('dl', { class: 'tiles' });
  #grade = h('p', { class: 'grade', title: 'The comments of the last minute, judged by the truth of the generated picture.', hidden: true });
  #timer = 0;
  #status = 0; // of the last answer of /metrics
  /** @type {import('./numbers-series.js').Reading | null} */
  #last = null;
  /** @type {{at: number, cpu: number, device: number}[]} */
  #loads = [];

  /** @param {import('./state.js').State} state @param {import('./panel.js').Panel} panel */
  constructor(state, panel) {
    this.state = state;
    this.panel = panel;
    const graph = (title, what, plot, keys) => h('section', {}, h('h3', {}, title), h('p', { class: 'what' }, what), plot, ...(keys ? [keys] : []));
    this.body = h('div', { class: 'numbers' }, this.#tiles, this.#grade,
      graph('Frame to voice', 'Age of the newest frame at the first word, at the first sound, and when it was shown.', this.#age,
        legend(['k-word', 'first word'], ['k-audio', 'first sound'], ['k-shown', 'shown'])),
      graph('Delay', 'Time from live to the delayed picture, and its target.', this.#delay, legend(['k-shown', 'delay'], ['k-target', 'target'])),
      graph('Stages', 'Time of each stage between frame and voice.', this.#stages,
        legend(['k-s0', 'pick up'], ['k-s1', 'first word'], ['k-s2', 'voice'], ['k-s3', 'hold for the frame'])),
      graph('Token rate', 'Tokens per second of thinking.', this.#tokens),
      graph('Load', 'CPU time of the program: 100 % is one core. Working time of the model’s device, if the program runs the model: 100 % is always.', this.#load,
        legend(['k-shown', 'CPU'], ['k-word', 'model'])),
      new Raw().body);
    state.on('record', () => this.draw());
    state.on('history', () => this.draw());
    state.on('snapshot', () => this.draw());
  }

  /** Called when the drawer opens: the load is read only while it is open. */
  shown() {
    this.#last = null;
    this.draw();
    void this.#read();
  }

  async #read() {
    clearTimeout(this.#timer);
    if (this.panel.open !== 'numbers') return;
    try {
      const res = await fetch('/metrics', { cache: 'no-store', signal: AbortSignal.timeout(4000) });
      this.#status = res.status;
      if (!res.ok) {
        this.#last = null;
        this.#loads = [];
        this.draw();
      } else {
        const text = await res.text();
        const now = reading(text, performance.now());
        this.#loads.push({ at: Date.now(), cpu: load(this.#last, now, 'cpu'), device: load(this.#last, now, 'device') });
        this.#last = now;
        while (this.#loads.length > 150) this.#loads.shift();
        this.draw();
      }
    } catch {
      // The link shows that the server is away.
    }
    this.#timer = setTimeout(() => void this.#read(), POLL);
  }

  draw() {
    if (this.panel.open !== 'numbers') return;
    const comments = this.state.cycles.filter((c) => isComment(c.outcome) && c.record && c.outcome !== 'dropped').slice(-SHOWN).map((c) => c.record);
    this.#drawTiles(comments);
    this.#drawAge(comments);
    this.#drawDelay();
    this.#drawStages(comments);
    this.#drawTokens(comments);
    this.#drawLoad();
  }

  #drawTiles(comments) {
    const n = this.state.known.snapshot;
    if (!n) return;
    const last = comments.at(-1);
    const apart = this.state.known.heardAfterSeen;
    const rows = [
      ['behind live', seconds(n.delay)],
      ['target', seconds(n.target_delay)],
      ['aligned, last', n.alignment_last >= 0 ? millis(n.alignment_last) : '–'],
      ['aligned, p95', n.alignment_p95 >= 0 ? millis(n.alignment_p95) : '–'],
      ['heard after seen', millis(apart / 1000)],
      ['thinking, last', last ? seconds(last.inference_sec) : '–'],
      ['late / dropped', `${n.late} / ${n.dropped}`],
    ];
    const grade = gradeWords(n.world);
    this.#grade.textContent = grade;
    this.#grade.hidden = !grade;
    const memory = gpuMemory(this.#last);
    if (memory) rows.push(['GPU memory', memory]);
    this.#tiles.replaceChildren(...rows.map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v))));
  }

  #none(plot, words) {
    plot.replaceChildren(h('p', { class: 'none' }, words));
  }

  #drawAge(comments) {
    const rows = comments.map(frameAges);
    if (rows.length < 2) return this.#none(this.#age, 'Needs two comments.');
    const max = Math.max(0.5, ...rows.flatMap((r) => [r.word, r.audio, r.shown]).filter(Number.isFinite));
    const f = frame(`Age of the newest frame in seconds over the last ${rows.length} comments`, max, 's', 'comments', ['older', 'newest']);
    const at = (i) => f.x(rows.length > 1 ? i / (rows.length - 1) : 1);
    for (const [key, cls] of [['shown', 'g-shown'], ['audio', 'g-audio'], ['word', 'g-word']]) {
      const points = rows.map((r, i) => /** @type {[number, number]} */ ([at(i), f.y(r[key])])).filter((p) => Number.isFinite(p[1]));
      if (points.length === 0) continue;
      f.svg.append(s('path', { class: `stroke ${cls}`, d: path(points) }));
      for (const [x, y] of points) f.svg.append(s('circle', { class: `spot ${cls}`, cx: x, cy: y, r: 2 }));
    }
    this.#age.replaceChildren(f.svg);
  }

  #drawDelay() {
    const rows = this.state.delays;
    if (rows.length < 2) return this.#none(this.#delay, 'Collecting data.');
    const end = Date.now();
    const span = Math.max(20_000, end - rows[0].at);
    const max = Math.max(1, ...rows.flatMap((r) => [r.delay, r.target]));
    const f = frame('Delay in seconds over time', max, 's', 'time', [`−${Math.round(span / 1000)} s`, 'now']);
    const x = (t) => f.x(1 - (end - t) / span);
    for (const [key, cls] of [['target', 'g-target'], ['delay', 'g-shown']]) {
      const points = rows.map((r) => /** @type {[number, number]} */ ([x(r.at), f.y(r[key])]));
      points.push([x(end), points.at(-1)[1]]);
      f.svg.append(s('path', { class: `stroke ${cls}`, d: path(points) }));
    }
    this.#delay.replaceChildren(f.svg);
  }

  #drawStages(comments) {
    const rows = comments.map(stages);
    if (rows.length === 0) return this.#none(this.#stages, 'Needs one comment.');
    const max = Math.max(0.5, ...rows.map((r) => r.reduce((a, b) => a + b.sec, 0)));
    const f = frame(`Seconds spent in each stage over the last ${rows.length} comments`, max, 's', 'comments', ['older', 'newest']);
    const width = f.inner.w / Math.max(rows.length, 8);
    rows.forEach((row, i) => {
      let sum = 0;
      const g = s('g', {}, s('title', {}, row.map((p) => `${p.name} ${p.sec.toFixed(2)} s`).join(', ')));
      row.forEach((p, k) => {
        const y1 = f.y(sum);
        sum += p.sec;
        const y2 = f.y(sum);
        const x = f.x(1) - (rows.length - i) * width;
        if (y1 - y2 > 0.1) g.append(s('rect', { class: `stage-${k}`, x: (x + 1).toFixed(1), width: Math.max(1.5, width - 2).toFixed(1), y: y2.toFixed(1), height: (y1 - y2).toFixed(1) }));
      });
      f.svg.append(g);
    });
    this.#stages.replaceChildren(f.svg);
  }

  #drawTokens(comments) {
    const rows = comments.map(tokenRate);
    const good = rows.filter(Number.isFinite);
    if (good.length < 2) return this.#none(this.#tokens, 'No token counts yet.');
    const f = frame('Tokens per second over the last comments', Math.max(...good), '1/s', 'comments', ['older', 'newest']);
    const points = rows.map((v, i) => /** @type {[number, number]} */ ([f.x(i / (rows.length - 1)), f.y(v)])).filter((p) => Number.isFinite(p[1]));
    f.svg.append(s('path', { class: 'stroke g-shown', d: path(points) }));
    this.#tokens.replaceChildren(f.svg);
  }

  #drawLoad() {
    const rows = this.#loads.filter((r) => Number.isFinite(r.cpu) || Number.isFinite(r.device));
    if (rows.length < 2) return this.#none(this.#load, noLoadWords(this.#status));
    const end = Date.now();
    const span = Math.max(20_000, end - rows[0].at);
    const values = rows.flatMap((r) => [r.cpu, r.device]).filter(Number.isFinite);
    const f = frame('Load in percent over time', Math.max(10, ...values), '%', 'time', [`−${Math.round(span / 1000)} s`, 'now']);
    for (const [key, cls] of [['cpu', 'g-shown'], ['device', 'g-word']]) {
      const points = rows.map((r) => /** @type {[number, number]} */ ([f.x(1 - (end - r.at) / span), f.y(r[key])])).filter((p) => Number.isFinite(p[1]));
      if (points.length > 1) f.svg.append(s('path', { class: `stroke ${cls}`, d: path(points) }));
    }
    this.#load.replaceChildren(f.svg);
  }
}
