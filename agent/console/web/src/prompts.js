/** The drawer with what people write for the engine: profiles of the room, and its match sheet. */
import * as api from './api.js';
import { Order, h } from './panel.js';

const KINDS = { changed: ' (changed)', own: ' (own)' };
const LETTERS = 1500; // of a sheet in the prompt, agent.MaxSheet

/**
 * The name of a profile that is imported: the one in its text, or that of the file.
 * @param {string} text YAML @param {string} file
 */
export function importName(text, file) {
  const named = /^(?:\{\s*)?["']?name["']?\s*:\s*["']?([A-Za-z0-9_-]+)/m.exec(text)?.[1];
  return (named ?? file.replace(/\.[^.]*$/, '')).toLowerCase();
}

/** A free name for a copy. @param {string} name @param {string[]} taken */
export function copyName(name, taken) {
  for (let i = 1; ; i++) {
    const copy = `${name.slice(0, 34)}-${i === 1 ? 'copy' : `copy${i}`}`.slice(0, 40);
    if (!taken.includes(copy)) return copy;
  }
}

/** Where a sheet's text stands, in words. @param {{prompt: string}} sheet */
export function sheetState(sheet) {
  const n = [...sheet.prompt].reduce((sum, c) => sum + (c.codePointAt(0) > 127 ? 3 : 1), 0);
  return n ? `In force: ${n} of ${LETTERS} letters of the prompt.` : 'No sheet.';
}

/** Whether changes of the room last. @param {{kept?: boolean, state_problem?: string}} [s] */
export function keptNote(s) {
  if (s?.state_problem) return `Not kept at present: ${s.state_problem}`;
  return s?.kept ? 'Changes of this room last across restarts.' : 'Changes end with this commentator. Start it with --state DIR to keep them.';
}

const EXAMPLE = `teams:
  - name: Harriers
    colour: red
    people:
      - {name: Ana Ruiz, number: 9}
pronunciations: {Ruiz: roo eeth}
facts: [It is the cup final.]`;

export class PromptsPanel {
  #drawn = '';
  #chosen = ''; // name of the profile in the form; "" is a new one
  #dirty = false;
  #was = ''; // the profile that the form has replaced, until a snapshot has the new one
  #sheetDirty = false;
  #order = new Order(); // of the sheet
  #pick = h('select', { id: 'profile-pick' });
  #name = h('input', { id: 'profile-name', maxLength: 40, pattern: '[a-z0-9][a-z0-9_\\-]*', required: true, autocomplete: 'off', spellcheck: false, placeholder: 'cup-final' });
  #label = h('input', { id: 'profile-label', maxLength: 40, required: true, autocomplete: 'off' });
  #prompt = h('textarea', { id: 'profile-prompt', maxLength: 8000, required: true, rows: 9, spellcheck: true });
  #language = h('input', { id: 'profile-language', maxLength: 35, autocomplete: 'off', placeholder: 'as set' });
  #voice = h('input', { id: 'profile-voice', maxLength: 80, autocomplete: 'off', spellcheck: false, placeholder: 'as set' });
  #speech = h('select', { id: 'profile-speech' }, h('option', { value: '' }, 'as set'), h('option', { value: 'true' }, 'on'), h('option', { value: 'false' }, 'off'));
  #gain = h('input', { id: 'profile-gain', type: 'number', min: -24, max: 12, step: 'any', placeholder: 'as set' });
  #suggestion = h('input', { id: 'profile-suggestion', maxLength: 2000, autocomplete: 'off' });
  #remove = h('button', { class: 'quiet', type: 'button', id: 'profile-remove' }, 'Delete');
  #copy = h('button', { class: 'quiet', type: 'button', id: 'profile-copy' }, 'Copy');
  #export = h('a', { class: 'quiet', id: 'profile-export' }, 'Export');
  #file = h('input', { type: 'file', id: 'profile-file', accept: '.yaml,.yml,.json', class: 'sr' });
  #said = h('p', { class: 'said', id: 'profile-said', role: 'status' });
  #sheet = h('textarea', { id: 'match-sheet', maxLength: 8192, rows: 9, spellcheck: false, placeholder: EXAMPLE });
  #kept = h('p', { class: 'what', id: 'kept' });
  #sheetSaid = h('p', { class: 'said', id: 'sheet-said', role: 'status' });

  /** @param {import('./state.js').State} state */
  constructor(state) {
    this.state = state;
    const fresh = h('button', { class: 'quiet', type: 'button', id: 'profile-new' }, 'New');
    const imported = h('button', { class: 'quiet', type: 'button', id: 'profile-import' }, 'Import');
    const field = (label, input) => h('p', {}, h('label', { for: input.id }, label), input);
    const form = h('form', { class: 'prompts' }, field('Profile', this.#pick), h('div', { class: 'row' }, fresh, imported, this.#file),
      field('Name', this.#name), field('Label', this.#label), field('Prompt', this.#prompt), field('Suggested instruction', this.#suggestion),
      field('Language', this.#language), field('Voice', this.#voice), field('Speech', this.#speech), field('Level of the voice, dB', this.#gain),
      h('div', { class: 'row' }, h('button', { class: 'act', id: 'profile-save' }, 'Save'), this.#copy, this.#export, this.#remove), this.#said);
    const drop = h('button', { class: 'quiet', type: 'button', id: 'sheet-remove' }, 'Remove');
    const sheet = h('form', { class: 'prompts' }, h('label', { for: 'match-sheet' }, 'Names, numbers, colours, terms and facts'), this.#sheet,
      h('div', { class: 'row' }, h('button', { class: 'act', id: 'sheet-save' }, 'Save'), drop), this.#sheetSaid);
    this.body = h('div', { class: 'source' }, this.#kept, h('section', {}, h('h3', {}, 'Profiles'), form), h('section', {}, h('h3', {}, 'Match sheet'), sheet));

    form.addEventListener('submit', (e) => {
      e.preventDefault();
      void this.#save();
    });
    form.addEventListener('input', (e) => {
      if (e.target !== this.#pick) this.#dirty = true;
    });
    this.#pick.addEventListener('change', () => this.#choose(this.#pick.value));
    fresh.addEventListener('click', () => this.#begin({ name: '', label: '', prompt: '', suggestion: '', language: '', voice: '', speech: '', voice_gain: '' }));
    this.#copy.addEventListener('click', () => {
      const taken = this.#profiles().map((p) => p.name);
      this.#begin({ ...this.#form(), name: copyName(this.#chosen || this.#name.value || 'profile', taken), label: `${this.#label.value} copy`.slice(0, 40) });
    });
    this.#remove.addEventListener('click', () => void this.#delete());
    imported.addEventListener('click', () => this.#file.click());
    this.#file.addEventListener('change', () => void this.#import());
    this.#sheet.addEventListener('input', () => (this.#sheetDirty = true));
    sheet.addEventListener('submit', (e) => {
      e.preventDefault();
      void this.#saveSheet(this.#sheet.value);
    });
    drop.addEventListener('click', () => void this.#saveSheet(''));
    state.on('snapshot', () => this.#draw());
  }

  /** The drawer was opened. */
  shown() {
    if (!this.#chosen && !this.#dirty) this.#chosen = this.state.known.snapshot?.active_profile ?? '';
    this.#drawn = '';
    this.#draw();
    void this.#loadSheet();
  }

  /** @returns {import('./types.js').Profile[]} */
  #profiles() {
    return this.state.known.snapshot?.profiles ?? [];
  }

  #form() {
    return {
      label: this.#label.value, prompt: this.#prompt.value, suggestion: this.#suggestion.value, language: this.#language.value, voice: this.#voice.value,
      speech: this.#speech.value, voice_gain: this.#gain.value,
    };
  }

  #draw() {
    const note = keptNote(this.state.known.snapshot);
    if (this.#kept.textContent !== note) this.#kept.textContent = note;
    const list = this.#profiles();
    const active = this.state.known.snapshot?.active_profile;
    const key = JSON.stringify([list, active]);
    if (key === this.#drawn || !this.body.isConnected) return;
    this.#drawn = key;
    this.#pick.replaceChildren(...list.map((p) => h('option', { value: p.name }, `${p.label || p.name}${KINDS[p.kind] ?? ''}${p.name === active ? ', in use' : ''}`)));
    if (!this.#chosen && this.#dirty) this.#pick.prepend(h('option', { value: '' }, 'new profile'));
    this.#pick.value = this.#chosen;
    const p = list.find((x) => x.name === this.#chosen);
    if (!this.#dirty && JSON.stringify(p) !== this.#was) {
      this.#was = '';
      this.#fill(p);
    }
    this.#buttons();
  }

  /** @param {any} p */
  #fill(p) {
    if (!p) return;
    this.#name.value = p.name;
    this.#label.value = p.label;
    this.#prompt.value = p.prompt;
    this.#suggestion.value = p.suggestion;
    this.#language.value = p.language ?? '';
    this.#voice.value = p.voice ?? '';
    this.#speech.value = String(p.speech ?? '');
    this.#gain.value = p.voice_gain ?? '';
  }

  #buttons() {
    const p = this.#profiles().find((x) => x.name === this.#chosen);
    this.#name.disabled = Boolean(p);
    this.#export.hidden = this.#copy.hidden = !p;
    this.#remove.hidden = !p || p.kind === 'built-in';
    this.#remove.textContent = p?.kind === 'changed' ? 'Reset' : 'Delete';
    if (!p) return;
    this.#export.href = api.inRoom(`/profiles/${p.name}`);
    this.#export.download = `${p.name}.yaml`;
  }

  /** @param {string} name */
  #choose(name) {
    this.#chosen = name;
    this.#dirty = false;
    this.#was = this.#drawn = '';
    this.#say('', '');
    this.#draw();
  }

  /** Puts a profile that does not exist yet into the form. @param {any} p */
  #begin(p) {
    this.#chosen = '';
    this.#dirty = true;
    this.#fill(p);
    this.#drawn = '';
    this.#draw();
    this.#say('', 'A new profile, not saved yet.');
    this.#name.focus();
  }

  /** @param {string} tone @param {string} words */
  #say(tone, words) {
    this.#said.dataset.tone = tone;
    this.#said.textContent = words;
  }

  /** @param {string} name @param {() => Promise<any>} call @param {string} done */
  async #change(name, call, done) {
    const entered = () => JSON.stringify([this.#chosen, this.#name.value, this.#form()]);
    const [chosen, sent] = [this.#chosen, entered()];
    const was = name === chosen ? JSON.stringify(this.#profiles().find((p) => p.name === name)) : '';
    this.#say('', '');
    try {
      await call();
      if (entered() === sent) {
        this.#chosen = name;
        this.#dirty = false;
        this.#was = was;
      } else if (this.#chosen !== chosen) {
        return; // another profile is in the form
      } else if (this.#name.value.trim() === name) {
        this.#chosen = name; // it was edited further meanwhile
      }
      this.#drawn = '';
      this.#say('on', done);
      this.#draw();
    } catch (err) {
      this.#say('bad', err.message);
    }
  }

  async #save() {
    const create = !this.#chosen;
    const name = create ? this.#name.value.trim() : this.#chosen;
    await this.#change(name, () => api.putProfile(name, JSON.stringify(this.#form()), create),
      name === this.state.known.snapshot?.active_profile ? 'Saved. It acts on the next frame.' : 'Saved.');
  }

  async #delete() {
    const p = this.#profiles().find((x) => x.name === this.#chosen);
    const next = p?.kind === 'changed' ? p.name : (this.state.known.snapshot?.active_profile ?? '');
    await this.#change(next, () => api.deleteProfile(p?.name), p?.kind === 'changed' ? 'Reset.' : 'Deleted.');
  }

  async #import() {
    const file = this.#file.files?.[0];
    if (!file) return;
    const text = await file.text();
    this.#file.value = '';
    const name = importName(text, file.name);
    await this.#change(name, () => api.putProfile(name, text, true), `Imported as “${name}”.`);
  }

  async #loadSheet() {
    if (this.#sheetDirty) return;
    const newest = this.#order.ask();
    try {
      const sheet = await api.sheet();
      if (this.#sheetDirty || !newest()) return;
      this.#sheet.value = sheet.text;
      this.#saySheet('', sheetState(sheet));
    } catch (err) {
      if (newest()) this.#saySheet('bad', err.message);
    }
  }

  /** @param {string} text */
  async #saveSheet(text) {
    const sent = this.#sheet.value;
    try {
      const sheet = await api.putSheet(text);
      this.#order.ask()(); // what was read before is out of date
      if (this.#sheet.value === sent) {
        this.#sheetDirty = false;
        this.#sheet.value = sheet.text;
      }
      this.#saySheet('on', sheetState(sheet));
    } catch (err) {
      this.#saySheet('bad', err.message);
    }
  }

  /** @param {string} tone @param {string} words */
  #saySheet(tone, words) {
    this.#sheetSaid.dataset.tone = tone;
    this.#sheetSaid.textContent = words;
  }
}
