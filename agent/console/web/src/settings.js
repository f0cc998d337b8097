/** The settings drawer, with the span and the cost of a cycle. */
import * as api from './api.js';
import { Engines, VoiceTrial, voiceChoices } from './engines.js';
import { isCut, lookSpan, lookTokens, windowNeeds } from './formulas.js';
import { h } from './panel.js';
import { seconds } from './words.js';

/**
 * @typedef {object} Field
 * @property {string} key as in agent.Settings
 * @property {string} label
 * @property {string} unit
 * @property {string} [help]
 * @property {boolean} [wide] its values are long
 * @property {boolean} [own] of the engine, which may not say its value
 * @property {'switch' | 'text' | 'list' | 'choice'} [type] else a number
 * @property {string[][]} [options] of a choice: value and words
 */

/**
 * A row of GET /api/settings.
 * @typedef {{name: string, kind: 'number' | 'whole' | 'switch' | 'text' | 'list' | 'choice', unit?: string, min?: number, max?: number,
 *   options?: string[], about: string}} Setting
 */

/** What the page calls the settings. Their bounds come from the server. @type {{title: string, fields: Field[]}[]} */
export const GROUPS = [
  {
    title: 'Engine and voice',
    fields: [{ key: 'voice', label: 'Voice', unit: '', type: 'choice', options: [['auto', 'automatic']], help: 'The model’s own, or that of a speech program that speaks the language.' }],
  },
  {
    title: 'Preset',
    fields: [{ key: 'preset', label: 'Preset', unit: '', type: 'choice', options: [['', 'by hand'], ['auto', 'auto'], ['sentry', 'sentry'], ['sniper', 'sniper'], ['owl', 'owl'], ['beast', 'beast']], help: 'Sets several of these at once. “auto” follows what the engine keeps up with.' }],
  },
  {
    title: 'Frames per cycle',
    fields: [
      { key: 'capture_fps', label: 'Frames kept', unit: 'per s' },
      { key: 'frames_per_look', label: 'Frames', unit: '' },
      { key: 'frame_stride', label: 'Every n-th frame', unit: '' },
      { key: 'long_side', label: 'Longer edge', unit: 'px' },
      { key: 'max_slices', label: 'Tiles of a frame', unit: 'at most', help: 'Of 448 x 448 px, where the frame is larger.' },
      { key: 'mask_delayed', label: 'Mask the delayed picture', unit: '', type: 'switch', help: 'Viewers then see privacy masks too. It is decoded and encoded again, which costs CPU time.' },
    ],
  },
  {
    title: 'Timing',
    fields: [
      { key: 'change_threshold', label: 'Skip below change of', unit: 'of 255', help: '0 never skips.' },
      { key: 'look_when', label: 'Large models look', unit: '', type: 'choice', options: [['pixels', 'all the time'], ['facts', 'when something happens']], help: 'As the detector of engine sight finds it.' },
      { key: 'look_max_wait', label: 'Longest time between looks', unit: 's', help: 'For “when something happens”.' },
      { key: 'min_interval', label: 'Shortest time between cycles', unit: 's' },
      { key: 'pause_after', label: 'Pause after speech', unit: 's' },
      { key: 'cut_on_instruction', label: 'New instruction interrupts speech', unit: '', type: 'switch' },
    ],
  },
  {
    title: 'Alignment',
    fields: [
      { key: 'fixed_delay', label: 'Fixed delay', unit: 's', help: '0 follows what is measured.' },
      { key: 'quantile', label: 'Comments in time', unit: 'share' },
      { key: 'margin', label: 'Margin', unit: 's' },
    ],
  },
  {
    title: 'How it talks',
    fields: [
      { key: 'talkativeness', label: 'Talkativeness', unit: '1 to 5', help: 'Sets pace, length and the change worth a comment together.' },
      { key: 'voice_gain', label: 'Voice level', unit: 'dB' },
      { key: 'max_tokens', label: 'Longest text', unit: 'tokens' },
      { key: 'speech_max_tokens', label: 'Longest speech', unit: 'tokens' },
      { key: 'repeats', label: 'Repeated comments', unit: '', type: 'choice', options: [['silence', 'skip'], ['retry', 'ask again'], ['allow', 'allow']], help: 'Compared with the last eight.' },
      { key: 'temperature', label: 'Temperature', unit: '', own: true, help: '0 always takes the likeliest word.' },
      { key: 'top_k', label: 'Top k', unit: 'tokens', own: true, help: '0 is all.' },
      { key: 'top_p', label: 'Top p', unit: '', own: true },
      { key: 'repetition_penalty', label: 'Repetition penalty', unit: '', own: true, help: '1 is off.' },
      { key: 'language', label: 'Language', unit: '', type: 'text', help: 'As in “en”, “nl”, “pt-BR”.' },
    ],
  },
  {
    title: 'Hearing the room',
    fields: [
      { key: 'hearing', label: 'Listen to people', unit: '', type: 'choice', wide: true, options: [['off', 'off'], ['orders', 'for orders'], ['captions', 'for captions'], ['all', 'for both']], help: 'Orders come after a wake word, or while “Hold to talk” is held. Captions show what people say.' },
      { key: 'wake_words', label: 'Wake words', unit: '', type: 'list', wide: true, help: 'Separated by commas; each of 4 to 40 letters.' },
      { key: 'manners', label: 'When someone speaks', unit: '', type: 'choice', wide: true, options: [['talk', 'keep talking'], ['duck', 'lower volume'], ['wait', 'wait'], ['interrupt', 'stop']], help: 'Someone with the right to instruct. “Wait” finishes the comment first.' },
      { key: 'max_wait', label: 'Longest wait', unit: 's', help: 'For “wait”.' },
      { key: 'confirm_orders', label: 'The voice confirms spoken orders', unit: '', type: 'switch', help: 'As in “Okay: only the goals”.' },
      { key: 'remarks', label: 'Comments may respond to conversation', unit: '', type: 'switch', help: 'Never used as an instruction. Needs captions.' },
      { key: 'hear_camera', label: 'Transcribe the camera’s sound', unit: '', type: 'switch', help: 'Its captions appear with the delayed picture.' },
    ],
  },
];

/** The settings that have a control elsewhere on the page. */
export const ELSEWHERE = ['speech'];

export class SettingsPanel {
  #fields = new Map();
  #bounded = false;
  #span = h('output', {}, '–');
  #tokens = h('output', {}, '–');
  #how = h('small', {});
  #window = h('output', {}, '–');
  #needs = h('small', {});

  /** @param {import('./state.js').State} state @param {import('./controls.js').Confirm} confirm */
  constructor(state, confirm) {
    this.state = state;
    this.confirm = confirm;
    this.engines = new Engines(state);
    this.engines.onVoices = () => this.draw();
    this.body = h('div', { class: 'settings' });
    GROUPS.forEach((group, i) => {
      const box = h('fieldset', {}, h('legend', {}, group.title));
      if (i === 0) box.append(this.engines.body);
      for (const f of group.fields) box.append(this.#field(f));
      if (i === 0) this.#trial();
      if (i === 2) box.append(this.#sums());
      this.body.append(box);
    });
    state.on('snapshot', () => this.draw());
  }

  /** Called when the drawer opens. */
  shown() {
    this.draw();
    void this.engines.shown();
    if (!this.#bounded) api.settings().then(({ settings }) => this.#bound(settings), () => {}); // the server refuses what is out of bounds
  }

  /** Sets the bounds of the fields, and adds the settings that have none. @param {Setting[]} settings */
  #bound(settings) {
    this.#bounded = true;
    settings = settings.filter((s) => !ELSEWHERE.includes(s.name));
    const others = settings.filter((s) => !this.#fields.has(s.name)).map(fieldOf);
    if (others.length) this.body.append(h('fieldset', {}, h('legend', {}, 'Others'), ...others.map((f) => this.#field(f))));
    for (const { name, kind, min, max, options } of settings) {
      const { f, input } = this.#fields.get(name);
      if (min !== undefined) Object.assign(input, { min, max, step: kind === 'whole' ? 1 : 'any' });
      if (f.type !== 'choice') continue;
      const known = [...input.options].map((o) => o.value);
      input.append(...(options ?? []).filter((o) => !known.includes(o)).map((o) => h('option', { value: o }, o)));
    }
    this.draw();
  }

  /** The voice can be heard before the room has it. */
  #trial() {
    const { input, row, note, f } = this.#fields.get('voice');
    const trial = new VoiceTrial(
      () => ({ voice: input.value, language: this.state.known.snapshot?.settings?.language }),
      (tone, words) => {
        row.dataset.tone = tone;
        note.textContent = words || f.help;
      });
    row.insertBefore(trial.button, note);
  }

  #sums() {
    return h('div', { class: 'window' },
      h('p', { class: 'sum' }, h('span', {}, 'A cycle covers'), this.#span, h('small', {}, '(frames − 1) × n ÷ frames per s')),
      h('p', { class: 'sum' }, h('span', {}, 'and costs at most'), this.#tokens, this.#how),
      h('p', { class: 'sum' }, h('span', {}, 'Pictures to keep'), this.#window, this.#needs));
  }

  /** @param {Field} f */
  #field(f) {
    const id = `set-${f.key}`;
    const note = h('span', { class: 'note', role: 'status' }, f.help ?? '');
    let input;
    if (f.type === 'switch') {
      input = h('input', { type: 'checkbox', id });
    } else if (f.type === 'choice') {
      input = h('select', { id }, ...(f.options ?? []).map(([value, words]) => h('option', { value }, words)));
    } else if (f.type === 'text' || f.type === 'list') {
      input = h('input', { type: 'text', id, maxLength: f.type === 'text' ? 35 : 400, autocomplete: 'off', spellcheck: false });
    } else {
      input = h('input', { type: 'number', id, step: 'any', inputMode: 'decimal', placeholder: f.own ? 'own' : '' });
    }
    const unit = h('span', { class: 'unit', role: 'status' }, f.unit);
    const row = h('p', { class: f.wide ? 'field wide' : 'field' }, h('label', { for: id }, f.label), input, unit, note);
    const entry = { f, input, unit, note, row, dirty: false, turn: 0 };
    this.#fields.set(f.key, entry);
    input.addEventListener('input', () => {
      entry.dirty = true;
      this.#formulas();
    });
    input.addEventListener('change', () => void this.#send(entry));
    return row;
  }

  #value(entry) {
    const { f, input } = entry;
    if (f.type === 'switch') return input.checked;
    if (f.type === 'list') return listOf(input.value);
    return f.type ? input.value.trim() : Number(input.value);
  }

  async #send(entry) {
    const { f, input, row } = entry;
    const turn = ++entry.turn; // an answer to an older value says nothing
    this.confirm.drop(`setting ${f.key}`);
    // Short messages replace the unit, so that nothing moves; only a refusal takes a line.
    const note = (tone, words) => {
      row.dataset.tone = tone;
      entry.unit.textContent = tone === 'wait' || tone === 'on' ? words : f.unit;
      entry.note.textContent = tone === 'bad' ? words : (f.help ?? '');
    };
    if (f.type !== 'switch' && f.type !== 'choice' && (input.value.trim() === '' || !input.checkValidity())) {
      note('bad', input.value.trim() === '' ? 'Enter a value.' : input.validationMessage);
      return;
    }
    const value = this.#value(entry);
    note('wait', 'asked');
    try {
      await api.setSettings({ [f.key]: value });
      if (turn !== entry.turn) return;
      this.confirm.expect(`setting ${f.key}`, (s) => same(s.settings?.[f.key], value), () => {
        entry.dirty = false;
        note('on', 'in force');
        setTimeout(() => row.dataset.tone === 'on' && note('', ''), 2500);
        this.draw();
      }, () => {
        entry.dirty = false;
        note('bad', 'Not confirmed by the room.');
        this.draw();
      });
    } catch (err) {
      if (turn !== entry.turn) return;
      entry.dirty = false;
      note('bad', err.message);
      this.draw();
    }
  }

  draw() {
    const settings = this.state.known.snapshot?.settings;
    if (!settings) return;
    this.#voices(settings.voice);
    for (const entry of this.#fields.values()) {
      const v = settings[entry.f.key];
      entry.input.disabled = v === undefined && !entry.f.own;
      if (v === undefined || entry.dirty || document.activeElement === entry.input && entry.f.type !== 'switch') continue;
      if (entry.f.type === 'switch') entry.input.checked = v;
      else entry.input.value = typeof v === 'number' ? String(Math.round(v * 1000) / 1000) : Array.isArray(v) ? v.join(', ') : v;
    }
    const { preset_in_force: now, preset_reason: why } = this.state.known.snapshot;
    const preset = this.#fields.get('preset');
    if (preset.row.dataset.tone !== 'bad') preset.note.textContent = now ? `Now ${now}${why ? `: ${why}` : ''}.` : preset.f.help;
    this.#formulas();
  }

  /** Lists the voices. @param {string} [now] in force */
  #voices(now) {
    const { input } = this.#fields.get('voice');
    const choices = voiceChoices(this.engines.voices, now ?? '');
    if (choices.map(([id]) => id).join() === [...input.options].map((o) => o.value).join()) return;
    const { value } = input;
    input.replaceChildren(...choices.map(([id, words]) => h('option', { value: id }, words)));
    input.value = value;
  }

  #formulas() {
    const n = (key) => Number(this.#fields.get(key).input.value);
    const [frames, stride, fps] = [n('frames_per_look'), n('frame_stride'), n('capture_fps')];
    const { long_side: side, max_slices: slices, window_size: size } = this.state.known.snapshot ?? {};
    this.#span.textContent = seconds(lookSpan(frames, stride, fps));
    const tokens = lookTokens(frames, side, slices);
    this.#tokens.textContent = Number.isFinite(tokens) ? `${tokens} tokens` : '–';
    this.#how.textContent = Number.isFinite(tokens) ? `pictures of ${side} px, ${isCut(side, slices) ? 'cut' : 'not cut'}; at most ${slices} ${slices === 1 ? 'slice' : 'slices'}` : '';
    const needs = windowNeeds(frames, stride);
    this.#window.textContent = Number.isFinite(needs) ? String(needs) : '–';
    this.#needs.textContent = size >= 1 ? `at most ${size} (window_size)` : '';
    this.#needs.classList.toggle('bad', needs > size);
  }
}

/** The field of a setting that the page has no words for. @param {Setting} s @returns {Field} */
export function fieldOf({ name, kind, unit, options, about }) {
  const label = name[0].toUpperCase() + name.slice(1).replaceAll('_', ' ');
  const type = kind === 'number' || kind === 'whole' ? undefined : kind;
  return { key: name, label, unit: unit ?? '', type, options: options?.map((o) => [o, o]), help: `${about[0].toUpperCase()}${about.slice(1)}.`, own: true };
}

/** The entries of a list with commas. @param {string} text */
export function listOf(text) {
  return text.split(',').map((entry) => entry.trim()).filter(Boolean);
}

/** @param {unknown} a @param {unknown} b */
function same(a, b) {
  if (Array.isArray(a) && Array.isArray(b)) return a.join() === b.join();
  return typeof a === 'number' && typeof b === 'number' ? Math.abs(a - b) < 1e-6 : a === b;
}
