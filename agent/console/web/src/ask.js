/** "What can I ask?": a list of orders and questions beside the instruction box; a click sends one. */
import { asks } from './ask-words.js';
import { h } from './panel.js';

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);

export class Ask {
  #drawn = '';

  /** @param {import('./state.js').State} state @param {(text: string) => void} send */
  constructor(state, send) {
    this.send = send;
    $('ask-open').addEventListener('click', () => ($('ask').hidden ? this.#open() : this.#close()));
    $('ask').addEventListener('keydown', (e) => this.#step(e));
    document.addEventListener('pointerdown', (e) => {
      if (!this.#within(e.target)) this.#shut();
    });
    $('ask').addEventListener('focusout', (e) => {
      if (e.relatedTarget && !this.#within(e.relatedTarget)) this.#shut();
    });
    state.on('snapshot', () => this.#draw(asks(state.known.snapshot)));
  }

  #within(el) {
    return $('ask').contains(el) || $('ask-open').contains(el);
  }

  /** @param {import('./ask-words.js').Asks | null} list */
  #draw(list) {
    $('ask-open').hidden = !list;
    if (!list) this.#shut();
    const key = JSON.stringify(list);
    if (key === this.#drawn) return;
    this.#drawn = key;
    const focused = $('ask').contains(document.activeElement);
    const part = (title, id, lines) => h('section', {},
      h('h3', { id }, title), h('ul', { lang: list.lang, ariaLabelledby: id }, ...lines.map((line) => h('li', {}, this.#line(line)))));
    $('ask').replaceChildren(...(list ? [part('Orders', 'ask-orders', list.orders), part('Questions', 'ask-questions', list.questions)] : []));
    if (focused) this.#focus(0);
  }

  #line(text) {
    const b = h('button', { type: 'button', class: 'line' }, text);
    b.addEventListener('click', () => {
      this.#close();
      this.send(text);
    });
    return b;
  }

  #open() {
    $('ask').hidden = false;
    $('ask-open').setAttribute('aria-expanded', 'true');
    this.#focus(0);
  }

  /** Closes the list and returns to its button. */
  #close() {
    this.#shut();
    $('ask-open').focus({ preventScroll: true });
  }

  #shut() {
    $('ask').hidden = true;
    $('ask-open').setAttribute('aria-expanded', 'false');
  }

  /** @param {number} n of the line; counts round */
  #focus(n) {
    const lines = [...$('ask').querySelectorAll('button')];
    lines.at(n % lines.length)?.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} e */
  #step(e) {
    const lines = [...$('ask').querySelectorAll('button')];
    const at = lines.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[e.key];
    if (to !== undefined) {
      e.preventDefault();
      this.#focus(to);
    } else if (e.key === 'Escape') {
      e.stopPropagation();
      this.#close();
    }
  }
}
