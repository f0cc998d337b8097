/** The engines and voices of the settings drawer. */
import * as api from './api.js';
import { h } from './panel.js';

/**
 * The name of an engine, and what there is to know of it.
 * @param {import('./types.js').EngineOption} o
 * @returns {{title: string, words: string}}
 */
export function engineWords(o) {
  switch (o.engine) {
    case 'scene':
      return { title: 'Scene', words: 'No model: says what measurably changed in the picture.' };
    case 'nano':
      return { title: 'Nano', words: 'A small model in this program, trained on the generated worlds.' };
    case 'sight':
      return { title: 'Sight', words: 'Two small networks in this program: finds people, vehicles, animals and text, and follows them.' };
    case 'minicpmo':
      return { title: o.program ?? 'Built-in model', words: 'A model in this program.' };
    case 'remote':
      return { title: o.model || 'The only model of the server', words: `${o.program ?? 'Model server'} at ${(o.server ?? '').replace(/^https?:\/\//, '').replace(/\/v1$/, '')}.${o.notes ? ` Learnt: ${o.notes}.` : ''}` };
    default:
      return { title: o.program ?? o.engine.replace(/^./, (c) => c.toUpperCase()), words: 'An engine in this program.' };
  }
}

/** Whether two are the same engine. @param {import('./types.js').EngineChoice | undefined} a @param {import('./types.js').EngineChoice} b */
const same = (a, b) => Boolean(a) && ['engine', 'model', 'server'].every((k) => (a[k] ?? '') === (b[k] ?? ''));

/**
 * The state of an engine in the list.
 * @param {import('./types.js').EngineOption} o @param {import('./types.js').EngineChange} [change] under way
 * @returns {{words: string, tone: '' | 'on' | 'wait' | 'bad'}}
 */
export function engineState(o, change) {
  if (o.refused) return { words: `${o.refused}.`, tone: 'bad' };
  if (change && same(change, o)) {
    return { words: `loading ${change.percent} %${change.pauses ? '; comments pause until then, picture and sound go on' : ''}`, tone: 'wait' };
  }
  if (o.in_force) return { words: change?.pauses ? 'not loaded: there is no memory for both' : 'in force', tone: change?.pauses ? '' : 'on' };
  return { words: '', tone: '' };
}

/**
 * The choices of a voice: those that speak the language, and the one in force.
 * @param {import('./types.js').VoiceOption[]} voices @param {string} now
 * @returns {string[][]} values and words
 */
export function voiceChoices(voices, now) {
  const out = [['auto', 'automatic'], ...voices.filter((v) => v.speaks).map((v) => [v.id, v.id.replace(':', ' ')])];
  if (now && !out.some(([id]) => id === now)) out.push([now, now.replace(':', ' ')]);
  return out;
}

/** What a voice says to be tried, by language. */
const SAMPLES = {
  en: 'A goal for the reds!', nl: 'Een doelpunt voor rood!', de: 'Ein Tor für Rot!', fr: 'Un but pour les rouges !', es: '¡Gol de los rojos!',
  it: 'Un gol per i rossi!', pt: 'Um gol dos vermelhos!',
};

/** A short sentence of a language; digits where none is known. @param {string} [language] */
export const sample = (language) => SAMPLES[(language ?? 'en').toLowerCase().split('-')[0]] ?? '1, 2, 3.';

/** A button that speaks a short sentence in a voice, in this browser only. */
export class VoiceTrial {
  /** @type {AudioContext | null} */
  #audio = null;
  /** @type {AudioBufferSourceNode | null} */
  #playing = null;

  /** @param {() => {voice: string, language?: string}} chosen @param {(tone: string, words: string) => void} say */
  constructor(chosen, say) {
    this.chosen = chosen;
    this.say = say;
    this.button = h('button', { class: 'link', type: 'button', id: 'voice-try', 'data-needs': 'speak', title: 'Hear this voice, in this browser only' }, 'Try it');
    this.button.addEventListener('click', () => void (this.#playing ? this.#playing.stop() : this.#try()));
  }

  async #try() {
    const { voice, language } = this.chosen();
    this.button.disabled = true;
    this.say('', '');
    try {
      this.#audio ??= new AudioContext();
      const samples = await api.speech({ input: sample(language), voice, language: language ?? '' });
      const sound = this.#audio.createBuffer(1, Math.max(samples.length, 1), 24000);
      sound.copyToChannel(samples, 0);
      this.#playing = new AudioBufferSourceNode(this.#audio, { buffer: sound });
      this.#playing.connect(this.#audio.destination);
      this.#playing.onended = () => {
        this.#playing = null;
        this.button.textContent = 'Try it';
      };
      await this.#audio.resume();
      this.#playing.start();
      this.button.textContent = 'Stop';
    } catch (err) {
      this.say('bad', err.message);
    }
    this.button.disabled = false;
  }
}

export class Engines {
  #list = h('div', { class: 'picks', id: 'engines' });
  #note = h('p', { class: 'note', role: 'status', id: 'engine-said' });
  #again = h('button', { class: 'link', type: 'button', id: 'engines-again' }, 'Look for model servers again');
  /** @type {import('./types.js').EngineOption[]} */
  #options = [];
  /** @type {import('./types.js').VoiceOption[]} */
  voices = [];
  onVoices = () => {};
  /** What the list was read for: the engine in force, whether a change is under way, and the language. */
  #of = '';
  #problem = ''; // of the server, as last seen

  /** @param {import('./state.js').State} state */
  constructor(state) {
    this.state = state;
    this.body = h('div', { class: 'engines' }, this.#list, this.#note, this.#again);
    this.#again.addEventListener('click', () => void this.load());
    state.on('snapshot', () => this.draw());
  }

  /** The drawer was opened. */
  shown() {
    this.#problem = '';
    this.#say('', '', '');
    return this.load();
  }

  /** Reads the list. */
  async load() {
    this.#again.disabled = true;
    const of = this.#of = this.#now();
    let failed = '';
    try {
      const known = await api.engines();
      if (of !== this.#of) return; // a newer list is on its way
      this.#options = known.engines;
      this.voices = known.voices ?? [];
      this.#over('list');
      this.onVoices();
    } catch (err) {
      if (of !== this.#of) return;
      failed = err.message;
    }
    this.#again.disabled = false;
    this.draw();
    if (failed) this.#say('list', 'bad', failed);
  }

  #now() {
    const s = this.state.known.snapshot;
    return `${s?.engine}\n${Boolean(s?.engine_change)}\n${s?.settings?.language}`;
  }

  draw() {
    if (!this.body.isConnected || !this.#of) return;
    if (this.#of !== this.#now()) void this.load();
    const s = this.state.known.snapshot;
    this.#options.forEach((o, i) => {
      const row = this.#list.children[i] ?? this.#list.appendChild(this.#row(i));
      const { title, words } = engineWords(o);
      const { words: state, tone } = engineState(o, s?.engine_change);
      const [name, about, how] = row.children;
      name.textContent = title;
      about.textContent = words;
      how.textContent = state;
      how.dataset.tone = tone;
      row.disabled = Boolean(o.refused);
      row.setAttribute('aria-pressed', String(o.in_force));
    });
    while (this.#list.children.length > this.#options.length) this.#list.lastChild.remove();
    const problem = s?.engine_problem ?? '';
    if (problem === this.#problem) return;
    this.#problem = problem;
    if (problem) this.#say('problem', 'bad', `${problem[0].toUpperCase()}${problem.slice(1)}.`);
    else this.#over('problem');
  }

  /** @param {number} i */
  #row(i) {
    const row = h('button', { class: 'pick', type: 'button' }, h('b', {}), h('small', {}), h('small', { class: 'note', role: 'status' }));
    row.addEventListener('click', () => void this.#choose(this.#options[i]));
    return row;
  }

  /** @param {import('./types.js').EngineOption} o */
  async #choose({ engine, model, server }) {
    this.#say('choice', 'wait', 'Asked.');
    try {
      await api.setEngine({ engine, model, server });
      this.#over('choice');
    } catch (err) {
      this.#say('choice', 'bad', err.message);
    }
  }

  /** @param {string} of list, problem or choice @param {string} tone @param {string} words */
  #say(of, tone, words) {
    Object.assign(this.#note.dataset, { of, tone });
    this.#note.textContent = words;
  }

  /** Removes what is said, unless it is of something else. @param {string} of */
  #over(of) {
    if (this.#note.dataset.of === of) this.#say('', '', '');
  }
}
