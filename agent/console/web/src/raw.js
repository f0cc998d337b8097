/** Prompts and answers as they were, for those who steer: a part of the drawer "Numbers". */
import * as api from './api.js';
import { moment } from './clock.js';
import { h } from './panel.js';
import { clockTime, count, millis } from './words.js';

const KINDS = { comment: 'comment', retry: 'second try', rules: 'alert rules', trial: 'trial of a rule', next: 'next comment' };

/** One line about a look. @param {import('./types.js').RawLook} l */
export function headline(l) {
  const what = KINDS[l.kind] ?? l.kind;
  if (l.kind === 'next') return l.outcome === 'skipped' ? `${what}: skipped now, ${l.reason}` : what;
  return [clockTime(moment(l.at)), what, l.outcome || (l.error ? 'failed' : ''), millis(l.answer_sec)].filter(Boolean).join(' · ');
}

/** The settings of a look in words. @param {import('./types.js').RawLook} l */
export function settings(l) {
  const draws = Object.entries(l.sampling ?? {}).map(([k, v]) => `${k.replace('_', ' ')} ${v}`);
  const first = l.pictures?.[0];
  return [
    l.engine,
    first ? `${count(l.pictures.length, 'picture')} of ${first.width}×${first.height}` : '',
    l.max_tokens ? `at most ${l.max_tokens} tokens` : '',
    l.max_slices ? `up to ${count(l.max_slices, 'slice')}` : '',
    l.language ? `language ${l.language}` : '',
    l.spoken ? 'spoken' : '',
    l.structured ? 'JSON' : '',
    ...draws,
    l.first_word_sec ? `first word after ${millis(l.first_word_sec)}` : '',
    l.cut ? 'shortened: it is longer than 64 KiB' : '',
  ].filter(Boolean).join(', ');
}

/**
 * The texts of a look with their titles, those that the model saw and wrote first.
 * @param {import('./types.js').RawLook} l @returns {[string, string][]}
 */
export function texts(l) {
  const many = (l.exchanges?.length ?? 0) > 1;
  /** @type {[string, string][]} */
  const out = [];
  (l.exchanges ?? []).forEach((x, i) => {
    const nth = many ? ` ${i + 1}` : '';
    out.push([`Request${nth}`, x.request], [`Reasoning${nth}`, x.reasoning ?? ''], [`Raw answer${nth}`, x.answer], [`Error${nth}`, x.error ?? '']);
  });
  if (l.exchanges?.at(-1)?.answer !== l.answer) out.push(['Answer', l.answer]);
  if (l.exchanges?.at(-1)?.error !== l.error) out.push(['Error', l.error ?? '']);
  out.push(['System prompt', l.system], ['Prompt', l.text], ['Schema of the answer', l.schema ? JSON.stringify(l.schema) : '']);
  return out.filter(([, text]) => text);
}

/** JSON with line breaks; another text as it is. @param {string} text */
export function pretty(text) {
  if (!/^\s*[{[]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export class Raw {
  #list = h('ol', { class: 'raws', id: 'raws' });
  #next = h('div', { id: 'raw-next' });
  #said = h('p', { class: 'said', id: 'raw-said', role: 'status' });

  constructor() {
    const refresh = h('button', { class: 'quiet', type: 'button', id: 'raw-refresh' }, 'Refresh');
    const preview = h('button', { class: 'quiet', type: 'button', id: 'raw-preview' }, 'Next prompt');
    const all = h('details', { class: 'raw', id: 'raw' }, h('summary', {}, h('h3', {}, 'Prompts and answers')),
      h('p', { class: 'what' }, 'What the engine was asked in the last looks at the picture, and what it answered, word for word.'),
      h('div', { class: 'row' }, refresh, preview), this.#said, this.#next, this.#list);
    all.addEventListener('toggle', () => all.open && void this.#load());
    refresh.addEventListener('click', () => void this.#load());
    preview.addEventListener('click', () => void this.#preview());
    this.body = h('section', {}, all);
    this.body.dataset.needs = 'instruct';
  }

  async #load() {
    await this.#try(async () => {
      const { looks } = await api.looks();
      this.#list.replaceChildren(...looks.map((l) => h('li', {}, this.#look(l))));
      this.#said.textContent = looks.length ? '' : 'No look at the picture yet.';
    });
  }

  async #preview() {
    await this.#try(async () => {
      const shown = this.#look(await api.nextPrompt());
      shown.open = true;
      this.#next.replaceChildren(shown);
      this.#said.textContent = '';
    });
  }

  async #try(f) {
    try {
      await f();
    } catch (err) {
      this.#said.textContent = err.message;
    }
  }

  /** @param {import('./types.js').RawLook} l */
  #look(l) {
    const box = h('details', {}, h('summary', {}, headline(l)));
    box.addEventListener('toggle', () => { // many are long, and few are opened
      if (!box.open || box.children.length > 1) return;
      box.append(h('small', {}, settings(l)), ...texts(l).map(([title, text]) => this.#text(title, text)));
    });
    return box;
  }

  #text(title, text) {
    const copy = h('button', { class: 'link', type: 'button', ariaLabel: `Copy ${title}` }, 'Copy');
    const pre = h('pre', { tabIndex: 0 }, pretty(text));
    copy.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(text); // secure pages only
        this.#said.textContent = `${title} copied.`;
      } catch {
        getSelection()?.selectAllChildren(pre);
        this.#said.textContent = `${title} marked: copy it with the keyboard.`;
      }
    });
    return h('div', { class: 'raw-text' }, h('h4', {}, title), copy, pre);
  }
}
