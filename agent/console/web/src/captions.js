/** Captions over the picture: two lines at most, new words highlighted. */
import { Announcer, breakLines } from './caption-layout.js';

export class Captions {
  #segment = '';
  /** @type {HTMLElement[]} every line so far; the last two are in the page */
  #rows = [];
  #measure = document.createElement('canvas').getContext('2d');
  #shown = '';
  #announcer = new Announcer();
  on = true;

  /**
   * @param {import('./state.js').State} state
   * @param {{box: HTMLElement, live: HTMLElement}} el box over the picture; live for screen readers
   * @param {() => boolean} voice whether this page plays the voice
   */
  constructor(state, el, voice) {
    Object.assign(this, { state, el, voice });
    state.on('caption', () => this.draw());
    new ResizeObserver(() => {
      this.#shown = '';
      this.#rows = [];
      this.draw();
    }).observe(el.box);
    setInterval(() => this.draw(), 250);
  }

  draw() {
    const c = this.state.captions.current(performance.now());
    this.#announce(c);
    const text = c && this.on ? c.text : '';
    const key = `${c?.segment ?? ''} ${text}`;
    if (key === this.#shown) return;
    this.#shown = key;
    const box = this.el.box;
    if (!text) {
      box.replaceChildren();
      this.#rows = [];
      this.#segment = '';
      return;
    }
    if (c.segment !== this.#segment) {
      this.#segment = c.segment;
      this.#rows = [];
      box.lang = this.state.language;
    }
    const style = getComputedStyle(box);
    this.#measure.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const lines = breakLines(text, (s) => this.#measure.measureText(s).width, box.clientWidth - parseFloat(style.fontSize));
    // Present words are not touched, so that only the new one is highlighted.
    lines.forEach((words, i) => this.#line(i, words));
    this.#rows.length = lines.length;
    // Rows are removed and added, never re-inserted, which would highlight their words again.
    const two = this.#rows.slice(-2);
    for (const row of [...box.children]) if (!two.includes(row)) row.remove();
    for (const row of two) if (!row.isConnected) box.append(row);
  }

  #line(i, words) {
    let row = this.#rows[i];
    if (!row) {
      row = document.createElement('p');
      row.append(document.createElement('span'));
      this.#rows[i] = row;
    }
    const inner = row.firstElementChild;
    words.forEach((word, j) => {
      let span = inner.children[j];
      if (!span) {
        if (j > 0) inner.append(' ');
        span = document.createElement('span');
        span.className = 'word';
        inner.append(span);
      }
      if (span.textContent !== word) span.textContent = word;
    });
    while (inner.children.length > words.length) {
      inner.lastChild.remove();
      if (inner.lastChild?.nodeType === Node.TEXT_NODE) inner.lastChild.remove();
    }
  }

  #announce(c) {
    const text = this.#announcer.next(c, { captions: this.on, voice: this.voice() });
    if (!text) return;
    this.el.live.lang = this.state.language;
    this.el.live.textContent = text;
  }
}
