/** Who said what: the words of the people in the room, in a strip of their own. */
import * as api from './api.js';
import { h } from './panel.js';

const KEPT = 20; // lines; the server keeps as many for pages that open
const DOUBT = 5000; // ms in which a deletion is confirmed
const SILENT = 20_000; // ms after which an interim text without a final one is dropped: its speaker left

/** The words of the bar for a mode of hearing; "" while nobody is heard. @param {string} [mode] */
export function hearingWords(mode) {
  return { orders: 'hears orders', captions: 'hears people', all: 'hears people and orders' }[mode ?? ''] ?? '';
}

/** The sentence of its tooltip. @param {string} [mode] */
export function hearingTitle(mode) {
  return {
    orders: 'The commentator listens to this room for spoken orders. Other words are not shown, and are forgotten within two minutes.',
    captions: 'The commentator listens to this room. It shows what people say, and takes no spoken orders.',
    all: 'The commentator listens to this room. It shows what people say, and acts on spoken orders.',
  }[mode ?? ''] ?? '';
}

/**
 * What became of a spoken order; null for other words.
 * @param {import('./types.js').SpokenOrder} [order]
 * @returns {{tone: string, words: string} | null}
 */
export function became(order) {
  if (!order) return null;
  if (order.refused) return { tone: 'bad', words: `not done: ${order.refused}` };
  return { tone: 'on', words: order.effect || 'done' };
}

/** The lines of the strip, oldest first; one for each utterance. */
export class HeardLines {
  /** @type {(import('./types.js').Heard & {at: number})[]} */
  list = [];

  /** @param {import('./types.js').Heard} heard @param {number} now ms */
  take(heard, now) {
    const i = this.list.findIndex((l) => l.segment === heard.segment);
    if (i >= 0 && this.list[i].final && !heard.final) return; // it came late
    const line = { ...heard, at: now };
    if (!heard.text && !heard.order) {
      if (i >= 0) this.list.splice(i, 1); // taken back
    } else if (i >= 0) {
      this.list[i] = line;
    } else {
      this.list.push(line);
    }
    this.list = this.list.filter((l) => l.final || now - l.at < SILENT).slice(-KEPT);
  }

  /** Forgets what somebody said. @param {string} identity */
  forget(identity) {
    this.list = this.list.filter((l) => l.identity !== identity);
  }
}

/** Whether a client may delete what was said. @param {string[]} rights */
export const mayDelete = (rights) => rights.includes('transcribe') && rights.includes('instruct');

/** The words of the button that deletes all, or all of one person. @param {Deletion['stage']} stage @param {boolean} [one] */
export function deleteWords(stage, one) {
  const [off, asked] = one ? ['×', 'Delete all of theirs?'] : ['Delete', 'Delete all of it?'];
  return { off, asked, sent: 'Deleting…', failed: 'Not deleted. Try again?' }[stage];
}

/** A deletion that is asked for twice. Without a DOM. */
export class Deletion {
  /** @type {'off' | 'asked' | 'sent' | 'failed'} */
  stage = 'off';
  #timer = /** @type {any} */ (0);

  /**
   * @param {() => Promise<unknown>} send
   * @param {(stage: Deletion['stage'], err?: unknown, done?: boolean) => void} tell of each stage; done: all is deleted
   */
  constructor(send, tell) {
    Object.assign(this, { send, tell });
  }

  press() {
    if (this.stage === 'sent') return undefined;
    clearTimeout(this.#timer);
    if (this.stage !== 'off') return this.#send();
    this.#to('asked');
    this.#timer = setTimeout(() => this.reset(), DOUBT);
    return undefined;
  }

  /** The button is left alone. */
  reset() {
    clearTimeout(this.#timer);
    if (this.stage === 'asked' || this.stage === 'failed') this.#to('off');
  }

  async #send() {
    this.#to('sent');
    try {
      await this.send();
      this.#to('off');
    } catch (err) {
      this.#to('failed', err);
    }
  }

  /** @param {Deletion['stage']} stage @param {unknown} [err] */
  #to(stage, err) {
    const ended = this.stage === 'sent' && stage === 'off';
    this.stage = stage;
    this.tell(stage, err, ended);
  }
}

export class HeardStrip {
  #lines = new HeardLines();
  /** @type {Map<string, {row: any, words: any, note: any, remove: any}>} */
  #rows = new Map();

  /**
   * @param {import('./state.js').State} state
   * @param {{strip: HTMLElement, list: HTMLElement, live: HTMLElement, glyph: HTMLElement, words: HTMLElement, desk: HTMLElement, remove: HTMLElement}} el
   * @param {() => string} self the identity of this page in the room
   * @param {() => string[]} rights of this client
   */
  constructor(state, el, self, rights) {
    Object.assign(this, { state, el, self, rights });
    this.deletion = new Deletion(() => api.deleteHeard(), (stage, err, done) => this.#deletes(stage, err, done));
    el.remove.addEventListener('click', () => void this.deletion.press());
    el.remove.addEventListener('blur', () => this.deletion.reset());
    const take = (heard) => {
      this.#lines.take(heard, performance.now());
      this.#draw();
      if (heard.final && (heard.text || heard.order)) this.#tell(heard);
    };
    state.on('heard', take);
    state.on('order', (heard) => rights().includes('transcribe') || take(heard)); // otherwise the events have it
    state.on('known', () => this.#mode());
  }

  #mode() {
    const mode = this.state.known.status?.hearing ?? '';
    if (this.el.glyph.dataset.mode === mode) return;
    this.el.glyph.dataset.mode = mode;
    this.el.glyph.hidden = !mode;
    this.el.glyph.title = hearingTitle(mode);
    this.el.words.textContent = hearingWords(mode);
    this.#draw();
  }

  #deletes(stage, err, done) {
    const { remove, live, list } = this.el;
    remove.textContent = deleteWords(stage);
    remove.dataset.stage = stage;
    remove.title = stage === 'failed' ? err.message : 'Delete what people said, here and in the store';
    if (stage === 'failed') live.textContent = `Not deleted: ${err.message}`;
    if (!done) return;
    this.#lines.list = [];
    live.textContent = 'What people said is deleted.';
    if (document.activeElement === remove) list.focus({ preventScroll: true });
    this.#draw();
  }

  #name(heard) {
    return heard.identity === this.self() ? 'You' : heard.name || heard.identity;
  }

  /** Tells screen readers. @param {import('./types.js').Heard} heard */
  #tell(heard) {
    const end = became(heard.order);
    this.el.live.textContent = `${this.#name(heard)}: ${[heard.text, end?.words].filter(Boolean).join(' – ')}`;
  }

  #draw() {
    const lines = this.#lines.list;
    const shown = lines.length > 0 || Boolean(this.state.known.status?.hearing);
    this.el.strip.hidden = !shown;
    this.el.remove.hidden = lines.length === 0 || !mayDelete(this.rights());
    this.el.desk.classList.toggle('hears', shown);
    this.el.list.dataset.empty = this.state.known.status?.hearing === 'orders' ? 'Spoken orders appear here.' : 'What people say appears here.';
    const { list } = this.el;
    const follow = list.scrollHeight - list.scrollTop - list.clientHeight < 24;
    for (const [segment, { row }] of this.#rows) {
      if (lines.some((l) => l.segment === segment)) continue;
      row.remove();
      this.#rows.delete(segment);
    }
    for (const line of lines) this.#line(line);
    if (follow) list.scrollTop = list.scrollHeight;
  }

  /** The button of a line that deletes what its speaker said. */
  #remover({ identity, name }) {
    const who = name || identity;
    const button = h('button', { class: 'link heard-one', type: 'button' });
    const show = (stage, err) => {
      button.textContent = deleteWords(stage, true);
      button.dataset.stage = stage;
      button.ariaLabel = { off: `Delete all that ${who} said`, asked: `Delete all that ${who} said?` }[stage] ?? null;
      button.title = err?.message ?? `Delete all that ${who} said, here and in the store`;
      if (stage !== 'off') button.scrollIntoView({ block: 'nearest' }); // its words may take another line
    };
    const deletion = new Deletion(() => api.deleteHeard(identity), (stage, err, done) => {
      show(stage, err);
      if (err) this.el.live.textContent = `Not deleted: ${err.message}`;
      if (!done) return;
      this.#lines.forget(identity);
      this.el.live.textContent = `All that ${who} said is deleted.`;
      if (document.activeElement === button) this.el.list.focus({ preventScroll: true });
      this.#draw();
    });
    show('off');
    button.addEventListener('click', () => void deletion.press());
    button.addEventListener('blur', () => deletion.reset());
    return button;
  }

  #line(line) {
    let r = this.#rows.get(line.segment);
    if (!r) {
      const words = h('span', { class: 'heard-words' });
      const note = h('small', {});
      const remove = this.#remover(line);
      r = { row: h('li', {}, h('b', {}, `${this.#name(line)}:`), ' ', words, ' ', note, ' ', remove), words, note, remove };
      this.#rows.set(line.segment, r);
      this.el.list.append(r.row);
    }
    const end = became(line.order);
    const draft = String(!line.final);
    if (r.row.dataset.draft !== draft) r.row.dataset.draft = draft;
    if (r.words.textContent !== line.text) r.words.textContent = line.text;
    if (line.language) r.words.lang = line.language;
    r.remove.hidden = !mayDelete(this.rights());
    r.row.dataset.tone = end?.tone ?? '';
    r.note.textContent = end ? `order – ${end.words}` : '';
  }
}
