/** The drawer at the side: one of source, settings, numbers, help, or none. */

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);

export class Panel {
  /** @type {string} */
  open = '';
  /** @type {Record<string, {title: string, body: HTMLElement, shown?: () => void}>} */
  #parts = {};

  constructor() {
    $('panel-close').addEventListener('click', () => this.close());
    $('panel').addEventListener('keydown', (e) => {
      if (e.key === 'Escape') this.close();
    });
  }

  /**
   * @param {string} name as in the button's id, "open-NAME"
   * @param {string} title @param {HTMLElement} body @param {() => void} [shown] called when it opens
   */
  add(name, title, body, shown) {
    this.#parts[name] = { title, body, shown };
    $(`open-${name}`).addEventListener('click', () => (this.open === name ? this.close() : this.show(name)));
  }

  /** @param {string} name */
  show(name) {
    const part = this.#parts[name];
    this.open = name;
    $('panel').dataset.part = name;
    $('panel-title').textContent = part.title;
    $('panel-body').replaceChildren(part.body);
    $('panel').hidden = false;
    $('desk').classList.add('with-panel');
    this.#buttons();
    part.shown?.();
    $('panel-body').scrollTop = 0;
    $('panel-title').focus({ preventScroll: true });
  }

  close() {
    const was = this.open;
    if (!was) return;
    this.open = '';
    $('panel').hidden = true;
    $('desk').classList.remove('with-panel');
    this.#buttons();
    $(`open-${was}`).focus({ preventScroll: true });
  }

  #buttons() {
    for (const name of Object.keys(this.#parts)) $(`open-${name}`).setAttribute('aria-expanded', String(this.open === name));
  }
}

/** Sets the text of an element, if it is another one: screen readers say a text again that is set again. */
export function put(el, words) {
  if (el.textContent !== words) el.textContent = words;
}

/**
 * Replaces the rows of a list. The focus stays on the element with the same id, or else on the list.
 * @param {HTMLElement} list @param {Node[]} rows
 */
export function refill(list, rows) {
  const at = /** @type {HTMLElement | null} */ (list.contains(document.activeElement) ? document.activeElement : null);
  list.replaceChildren(...rows);
  if (!at) return;
  const next = at.isConnected ? at : [...list.querySelectorAll('[id]')].find((el) => el.id === at.id) ?? list;
  /** @type {HTMLElement} */ (next).focus({ preventScroll: true });
}

/** The order of requests, to drop a late answer: one to a request from before the newest answer. */
export class Order {
  #asked = 0;
  #answered = 0;

  /** Counts a request. @returns {() => boolean} to be called with its answer: whether the answer is not late */
  ask() {
    const nth = ++this.#asked;
    return () => {
      if (nth < this.#answered) return false;
      this.#answered = nth;
      return true;
    };
  }
}

/**
 * @param {string} tag @param {Record<string, any>} [props] @param {...(Node|string)} children
 * @returns {any}
 */
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === 'class') el.className = value;
    else if (key.startsWith('aria')) el.setAttribute(key.replace(/^aria-?/, 'aria-').toLowerCase(), value);
    else if (key === 'for' || key === 'role') el.setAttribute(key, value);
    else el[key] = value;
  }
  el.append(...children);
  return el;
}
