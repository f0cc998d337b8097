/** Draws the score sheet, and the figures of the cycle under the pointer. */
import { layout, hit } from './score-layout.js';
import { millis, seconds } from './words.js';

const FRAME = 50; // ms between drawings
const CALM = 1000; // the same with reduced motion

/**
 * All figures of a cycle, as label and value.
 * @param {import('./score-layout.js').Cycle} c
 * @returns {[string, string][]}
 */
export function figures(c) {
  const r = c.record;
  /** @type {[string, string][]} */
  const rows = [];
  const put = (label, value, when) => when && rows.push([label, value]);
  if (!r) {
    put('thinking', seconds((c.think[1] - c.think[0]) / 1000), Boolean(c.think));
    put('speaking', c.speech ? seconds((c.speech[1] - c.speech[0]) / 1000) : '', Boolean(c.speech));
    return rows;
  }
  const n = r.frame_ids?.length || c.frames.length;
  const span = c.frames.length > 1 ? (c.frames.at(-1) - c.frames[0]) / 1000 : 0;
  put('frames', `${n} over ${seconds(span)}`, n > 0);
  put('thinking', seconds(r.inference_sec), r.inference_sec > 0);
  put('first word after', seconds(r.first_word_sec), r.first_word_sec > 0);
  put('first sound after', seconds(r.first_audio_sec), r.first_audio_sec > 0);
  put('ready after', seconds(r.ready_sec), r.ready_sec > 0);
  put('picture behind', seconds(r.delay), r.delay > 0);
  put('delay goes to', seconds(r.target_delay), r.target_delay > 0);
  put('alignment', millis(r.alignment_error), r.aligned);
  put('speech', seconds(r.audio_sec), r.audio_sec > 0);
  put('scene change', `${r.scene_diff?.toFixed(1)} of 255`, r.scene_diff > 0);
  put('tokens', r.inference_sec > 0 ? `${r.tokens}, ${(r.tokens / r.inference_sec).toFixed(0)}/s` : String(r.tokens), r.tokens > 0);
  return rows;
}

const OUTCOMES = {
  spoken: 'spoken',
  shown: 'shown as text',
  silent: 'silent: nothing to say',
  skipped: 'skipped: the scene did not change',
  repeated: 'skipped: it repeats a recent comment',
  dropped: 'dropped',
  cut: 'cut short',
  failed: 'failed',
  underway: 'under way',
};

export class ScoreSheet {
  #layout = null;
  #last = 0;
  #colours = null;
  #picked = null; // a Cycle, followed as it moves
  #pinned = false;

  /**
   * @param {import('./state.js').State} state
   * @param {{canvas: HTMLCanvasElement, tip: HTMLElement}} el
   */
  constructor(state, el) {
    this.state = state;
    this.el = el;
    const fresh = () => (this.#colours = null);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', fresh);
    const calm = matchMedia('(prefers-reduced-motion: reduce)');
    new ResizeObserver(() => this.#draw()).observe(el.canvas);
    const tick = (t) => {
      requestAnimationFrame(tick);
      if (t - this.#last < (calm.matches ? CALM : FRAME)) return;
      this.#last = t;
      this.#draw();
    };
    requestAnimationFrame(tick);

    el.canvas.addEventListener('pointermove', (e) => {
      if (e.pointerType === 'mouse' && !this.#pinned) this.#point(e);
    });
    el.canvas.addEventListener('pointerleave', (e) => {
      if (e.pointerType === 'mouse' && !this.#pinned) this.#pick(null);
    });
    el.canvas.addEventListener('pointerdown', (e) => {
      const before = this.#picked;
      this.#point(e, 22);
      this.#pinned = this.#picked !== null && (this.#picked !== before || !this.#pinned);
      if (!this.#pinned) this.#pick(null);
    });
    el.canvas.addEventListener('keydown', (e) => this.#key(e));
    el.canvas.addEventListener('blur', () => {
      this.#pinned = false;
      this.#pick(null);
    });
  }

  #point(e, reach = 10) {
    const box = this.el.canvas.getBoundingClientRect();
    const m = this.#layout && hit(this.#layout.marks, e.clientX - box.left, e.clientY - box.top, reach);
    this.#pick(m ? m.cycle : null);
  }

  #key(e) {
    const marks = (this.#layout?.marks ?? []).filter((m) => !m.quiet);
    if (e.key === 'Escape') {
      this.#pinned = false;
      this.#pick(null);
      return;
    }
    if (!['ArrowLeft', 'ArrowRight'].includes(e.key) || marks.length === 0) return;
    e.preventDefault();
    const i = marks.findIndex((m) => this.#same(m.cycle, this.#picked));
    const next = i < 0 ? marks.length - 1 : Math.min(marks.length - 1, Math.max(0, i + (e.key === 'ArrowLeft' ? -1 : 1)));
    this.#pinned = true;
    this.#pick(marks[next].cycle);
  }

  #same(a, b) {
    return Boolean(a && b) && a.cycle === b.cycle && a.seq === b.seq;
  }

  #pick(cycle) {
    if (this.#same(cycle, this.#picked)) return;
    this.#picked = cycle;
    const tip = this.el.tip;
    tip.hidden = !cycle;
    if (!cycle) return;
    const r = cycle.record;
    const title = document.createElement('p');
    title.className = 'tip-title';
    title.textContent = `${cycle.cycle >= 0 ? `Cycle ${cycle.cycle}: ` : ''}${OUTCOMES[cycle.outcome] ?? cycle.outcome}${r?.late ? ', late' : ''}`;
    const parts = [title];
    const words = r?.text || r?.reason;
    if (words) {
      const p = document.createElement('p');
      p.className = 'tip-words';
      p.textContent = words;
      parts.push(p);
    }
    const dl = document.createElement('dl');
    for (const [label, value] of figures(cycle)) {
      const dt = document.createElement('dt');
      const dd = document.createElement('dd');
      dt.textContent = label;
      dd.textContent = value;
      dl.append(dt, dd);
    }
    parts.push(dl);
    tip.replaceChildren(...parts);
  }

  #colour() {
    if (this.#colours) return this.#colours;
    const s = getComputedStyle(document.documentElement);
    const v = (name) => s.getPropertyValue(name).trim();
    this.#colours = {
      dot: v('--seen'), think: v('--think'), speak: v('--speak'), late: v('--late'), text: v('--muted'),
      line: v('--line'), now: v('--ink'), faint: v('--faint'), ahead: v('--ahead'), lane: v('--lane'),
      font: `11px ${getComputedStyle(document.body).fontFamily}`,
    };
    return this.#colours;
  }

  #draw() {
    const { canvas } = this.el;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (width === 0 || height === 0) return;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const { state } = this;
    const now = state.now;
    const all = [...state.cycles, ...state.underway.cycles(now, state.delay, state.nextSeq)];
    const l = layout(all, { now, delay: state.delay, width, height });
    this.#layout = l;
    const c = this.#colour();
    const g = canvas.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = c.font;
    g.textBaseline = 'middle';

    // The part between the two lines is not shown yet.
    const nowX = Math.round(l.nowX) + 0.5;
    g.fillStyle = c.ahead;
    g.fillRect(nowX, 0, width - nowX, l.axisY);

    g.strokeStyle = c.line;
    g.fillStyle = c.text;
    g.lineWidth = 1;
    g.textAlign = 'center';
    for (const t of l.ticks) {
      const x = Math.round(t.x) + 0.5;
      g.beginPath();
      g.moveTo(x, l.top);
      g.lineTo(x, l.axisY);
      g.stroke();
      if (t.x > 18 && t.x < nowX - 24) g.fillText(t.label, t.x, height - 8);
    }
    g.beginPath();
    g.moveTo(0, l.axisY + 0.5);
    g.lineTo(width, l.axisY + 0.5);
    g.stroke();

    for (const m of l.marks) this.#mark(g, m, c);

    g.strokeStyle = c.now;
    g.lineWidth = 1.5;
    g.beginPath();
    g.moveTo(nowX, 0);
    g.lineTo(nowX, l.axisY);
    g.stroke();
    g.fillStyle = c.now;
    g.textAlign = 'right';
    g.fillText(width < 520 ? 'picture' : 'shown now', nowX - 6, 8);
    g.fillStyle = c.text;
    g.fillText('live', width - 4, height - 8);
    if (state.delay > 0 && width - nowX > 60) g.fillText(`−${(state.delay / 1000).toFixed(1)} s`, nowX + 14, height - 8);
    this.#place(l);
  }

  #mark(g, m, c) {
    const chosen = this.#same(m.cycle, this.#picked);
    if (m.quiet) {
      g.fillStyle = m.cycle.outcome === 'failed' ? c.late : c.lane;
      for (const x of m.dots) g.fillRect(x - 0.75, m.y - 2, 1.5, 4);
      if (m.think) g.fillRect(m.think[0], m.y - 0.5, Math.max(1, m.think[1] - m.think[0]), 1);
      if (chosen) this.#ring(g, m, c);
      return;
    }
    const pending = m.cycle.expected;
    if (m.think) {
      g.fillStyle = c.think;
      g.fillRect(m.think[0], m.y - 1.5, Math.max(1.5, m.think[1] - m.think[0]), 3);
    }
    if (m.speech) {
      g.fillStyle = m.cycle.outcome === 'dropped' ? c.lane : c.speak;
      const w = Math.max(3, m.speech[1] - m.speech[0]);
      g.beginPath();
      g.roundRect(m.speech[0], m.y - 4.5, w, 9, 2);
      g.fill();
    }
    for (const x of m.dots) {
      g.beginPath();
      g.arc(x, m.y, pending ? 1.8 : 1.9, 0, Math.PI * 2);
      if (pending) {
        g.strokeStyle = c.dot;
        g.lineWidth = 1;
        g.stroke();
      } else {
        g.fillStyle = c.dot;
        g.fill();
      }
    }
    if (m.tail) {
      g.fillStyle = c.late;
      const [a, b] = [Math.min(...m.tail), Math.max(...m.tail)];
      g.fillRect(a + 1, m.y - 4.5, Math.max(2, b - a - 1), 9);
    }
    if (m.cycle.outcome === 'dropped') {
      g.strokeStyle = c.late;
      g.lineWidth = 1.5;
      g.beginPath();
      const x = m.dots.at(-1) ?? m.x1;
      g.moveTo(x - 4, m.y - 4);
      g.lineTo(x + 4, m.y + 4);
      g.moveTo(x + 4, m.y - 4);
      g.lineTo(x - 4, m.y + 4);
      g.stroke();
    }
    if (chosen) this.#ring(g, m, c);
  }

  #ring(g, m, c) {
    g.strokeStyle = c.now;
    g.lineWidth = 1;
    g.strokeRect(m.x0 - 5.5, m.y - m.half + 0.5, m.x1 - m.x0 + 11, m.half * 2 - 1);
  }

  /** The figures are above their cycle and move with it. */
  #place(l) {
    const { tip, canvas } = this.el;
    if (!this.#picked) return;
    const m = l.marks.find((x) => this.#same(x.cycle, this.#picked));
    if (!m) {
      this.#pinned = false;
      this.#pick(null);
      return;
    }
    const half = tip.offsetWidth / 2;
    const x = Math.min(canvas.clientWidth - half, Math.max(half, (Math.max(0, m.x0) + Math.min(canvas.clientWidth, m.x1)) / 2));
    tip.style.transform = `translate(${Math.round(x - half)}px, calc(-100% - 6px))`;
  }
}
