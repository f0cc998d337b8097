/**
 * The controls. A change counts as done when a snapshot of the room has it; until then the
 * control shows it as pending.
 */
import * as api from './api.js';
import { refill } from './panel.js';
import { instructionState, voiceNote } from './view.js';

const PATIENCE = 6000; // ms after which a missing confirmation is reported

/** Waits for the snapshot with a change. */
export class Confirm {
  /** @type {Map<string, {holds: (s: import('./types.js').Snapshot) => boolean, done: () => void, timer: any}>} */
  #open = new Map();

  /** @param {import('./state.js').State} state */
  constructor(state) {
    this.state = state;
    state.on('snapshot', () => this.check());
  }

  /**
   * @param {string} key at most one pending change each
   * @param {(s: import('./types.js').Snapshot) => boolean} holds
   * @param {() => void} done @param {() => void} late
   */
  expect(key, holds, done, late) {
    this.drop(key);
    const timer = setTimeout(late, PATIENCE);
    this.#open.set(key, { holds, done, timer });
    this.check();
  }

  drop(key) {
    clearTimeout(this.#open.get(key)?.timer);
    this.#open.delete(key);
  }

  check() {
    const s = this.state.known.snapshot;
    if (!s) return;
    for (const [key, q] of [...this.#open]) {
      if (!q.holds(s)) continue;
      this.drop(key);
      q.done();
    }
  }
}

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);

/** Whether an instruction waits in a room. @param {import('./types.js').Snapshot | null} s @param {string} text */
const waits = (s, text) => Boolean(s?.waiting?.some((w) => w.instruction === text) && s.instruction !== text);

/** Whether the engine answered in a cycle. @param {import('./types.js').CycleRecord} r */
export const answered = (r) => ['spoken', 'shown', 'silent', 'repeated', 'cut'].includes(r.outcome);

/** A short message at the bottom of the page. */
export class Toast {
  #timer = 0;

  /** @param {string} words */
  say(words) {
    const el = $('toast');
    el.textContent = words;
    el.hidden = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (el.hidden = true), 6000);
  }
}

export class InstructionBox {
  #sent = ''; // sent and not yet in effect
  #stage = 'rest'; // rest, sent, waits, set, acted, done (a command), failed
  #words = '';
  #turn = 0; // of what is sent
  #suggested = '';

  /** @param {import('./state.js').State} state @param {Confirm} confirm */
  constructor(state, confirm) {
    this.state = state;
    this.confirm = confirm;
    $('say').addEventListener('submit', (e) => {
      e.preventDefault();
      void this.send($('instruction').value.trim());
    });
    $('say-clear').addEventListener('click', () => void this.send(''));
    $('instruction').addEventListener('input', () => {
      if (this.#stage !== 'sent') this.#rest();
    });
    state.on('record', (c) => {
      if (this.#stage !== 'set' || (c.record?.instruction ?? '') !== this.#sent || !answered(c.record)) return;
      this.#stage = 'acted';
      this.#say();
    });
    state.on('snapshot', () => {
      const s = state.known.snapshot;
      if (this.#stage === 'waits' && !waits(s, this.#sent)) this.#stage = s.instruction === this.#sent ? 'set' : 'rest';
      this.#say();
    });
    for (const button of $('commands').querySelectorAll('button')) {
      button.addEventListener('click', () => void this.command(button.value));
    }
    this.#say();
  }

  /** Puts a profile's suggestion into the box, unless the reader has typed something. @param {string} text */
  suggest(text) {
    const box = $('instruction');
    box.placeholder = text ? `for example: ${text}` : '';
    if (box.value && box.value !== this.#suggested) return;
    this.#suggested = text;
    box.value = text;
    if (text && document.activeElement === box) box.select();
  }

  /** Sets the placeholder of an empty box. @param {string} text */
  hint(text) {
    if (!$('instruction').value) $('instruction').placeholder = text ? `for example: ${text}` : '';
  }

  /** Sends an instruction; "" clears it. @param {string} text */
  async send(text) {
    if (!text && !this.state.known.snapshot?.instruction) {
      $('instruction').focus();
      if (this.#stage !== 'sent') this.#stage = 'rest';
      this.#say();
      return;
    }
    this.#sent = text;
    this.#stage = 'sent';
    this.confirm.drop('instruction');
    this.#say();
    const turn = ++this.#turn;
    try {
      const before = this.state.known.snapshot?.command?.at;
      const s = await (text ? api.setInstruction(text) : api.clearInstruction());
      if (turn !== this.#turn || this.#stage !== 'sent') {
        this.#clear(text); // something newer is said
        return;
      }
      if (s?.command && s.command.at !== before) {
        this.#did(s.command, text);
        return;
      }
      if (waits(s, text)) {
        this.#stage = 'waits';
        this.#clear(text);
        this.#say();
        return;
      }
      this.confirm.expect('instruction', (s) => (s.instruction ?? '') === text, () => {
        this.#stage = text ? 'set' : 'rest';
        this.#clear(text);
        this.#say();
      }, () => {
        this.#stage = 'failed';
        this.#words = 'Not confirmed by the room yet.';
        this.#say();
      });
    } catch (err) {
      if (turn !== this.#turn) return; // a command in between hides no refusal
      this.#stage = 'failed';
      this.#words = err.message;
      this.#say();
    }
  }

  /** Does a command at once. @param {string} name */
  async command(name) {
    this.confirm.drop('instruction');
    try {
      this.#did((await api.command(name)).command);
    } catch (err) {
      this.#stage = 'failed';
      this.#words = err.message;
      this.#say();
    }
  }

  /** @param {import('./types.js').Done} done @param {string} [text] that was it */
  #did(done, text) {
    this.#stage = 'done';
    this.#words = done.effect;
    this.#clear(text);
    this.#say();
  }

  /** Empties the box, unless something else is typed. @param {string} [text] */
  #clear(text) {
    if ($('instruction').value.trim() === text) $('instruction').value = '';
  }

  #rest() {
    if (this.#stage === 'failed' || this.#stage === 'acted' || this.#stage === 'done') this.#stage = 'rest';
    this.#say();
  }

  #say() {
    const s = this.state.known.snapshot;
    const { tone, words, unread } = instructionState(this.#stage, this.#sent, this.#words, s);
    const el = $('say-state');
    if (el.textContent !== words) el.textContent = words;
    el.title = words;
    el.dataset.tone = tone;
    $('say').classList.toggle('unread', unread);
    for (const id of ['instruction', 'act-now']) $(id).hidden = unread;
    $('say-engines').hidden = !unread;
    $('say-clear').hidden = unread || !s?.instruction;
    const active = s?.monitor_mode === 'ACTIVE';
    for (const button of $('commands').querySelectorAll('button')) {
      if (button.value === 'stop') button.hidden = !active;
      if (button.value === 'go_on') button.hidden = active;
    }
  }
}

export class Profiles {
  #names = '';
  #asked = '';

  /**
   * @param {import('./state.js').State} state @param {Confirm} confirm
   * @param {InstructionBox} box @param {Toast} toast
   */
  constructor(state, confirm, box, toast) {
    Object.assign(this, { state, confirm, box, toast });
    state.on('snapshot', () => this.#draw());
  }

  #draw() {
    const s = this.state.known.snapshot;
    const list = s.profiles ?? [];
    const names = list.map((p) => `${p.name}\n${p.label}`).join('\n\n');
    if (names !== this.#names) {
      this.#names = names;
      refill($('profiles'), list.map((p) => {
        const label = document.createElement('label');
        label.className = 'profile';
        const input = document.createElement('input');
        input.type = 'radio';
        input.id = `choose-${p.name}`;
        input.name = 'profile';
        input.value = p.name;
        input.addEventListener('change', () => void this.#choose(p));
        const span = document.createElement('span');
        span.textContent = p.label || p.name;
        label.append(input, span);
        return label;
      }));
      this.box.hint(list.find((p) => p.name === s.active_profile)?.suggestion ?? '');
    }
    for (const input of $('profiles').querySelectorAll('input')) {
      const label = input.closest('label');
      const active = input.value === s.active_profile;
      label.classList.toggle('active', active);
      label.classList.toggle('asked', input.value === this.#asked && !active);
      // The focus stays on a pending choice.
      if (!this.#asked) input.checked = active;
    }
  }

  async #choose(p) {
    this.#asked = p.name;
    this.#draw();
    try {
      await api.setProfile(p.name);
      this.confirm.expect('profile', (s) => s.active_profile === p.name, () => {
        this.#asked = '';
        this.box.suggest(p.suggestion ?? '');
        this.#draw();
      }, () => {
        this.#asked = '';
        this.toast.say('Profile not confirmed by the room.');
        this.#draw();
      });
    } catch (err) {
      this.#asked = '';
      this.toast.say(err.message);
      this.#draw();
    }
  }
}

export class Voice {
  /**
   * @param {import('./state.js').State} state @param {Confirm} confirm
   * @param {import('./room.js').Viewer} viewer @param {Toast} toast
   */
  constructor(state, confirm, viewer, toast) {
    Object.assign(this, { state, confirm, viewer, toast });
    const stored = readVolume();
    this.volume = stored.volume;
    this.muted = stored.muted;
    $('volume').value = String(Math.round(this.volume * 100));
    this.camera = stored.camera;
    $('camera-volume').value = String(Math.round(this.camera * 100));
    $('camera-volume').addEventListener('input', () => {
      this.camera = Number($('camera-volume').value) / 100;
      this.#apply();
    });
    state.on('known', () => ($('camera-sound').hidden = !state.known.cameraSound));
    $('voice').addEventListener('click', () => void this.#toggle());
    $('mute').addEventListener('click', () => this.mute());
    $('volume').addEventListener('input', () => {
      this.volume = Number($('volume').value) / 100;
      this.muted = this.volume === 0;
      this.#apply();
    });
    $('voice-on').addEventListener('click', () => {
      if (this.muted) this.mute();
      void viewer.startAudio();
    });
    viewer.onBlocked = (blocked) => ($('voice-on').hidden = !blocked);
    state.on('snapshot', () => this.#draw());
    this.#apply();
  }

  mute() {
    this.muted = !this.muted;
    if (!this.muted && this.volume === 0) this.volume = 0.5;
    this.#apply();
  }

  #apply() {
    $('volume').value = String(this.muted ? 0 : Math.round(this.volume * 100));
    $('mute').setAttribute('aria-pressed', String(this.muted));
    this.viewer.setVolume(this.volume, this.muted);
    this.viewer.setCameraVolume(this.camera);
    try {
      localStorage.setItem('touchline.volume', JSON.stringify({ volume: this.volume, muted: this.muted, camera: this.camera }));
    } catch {
      // Private windows may refuse; then the value is not stored.
    }
  }

  #draw() {
    const on = this.state.known.snapshot.settings?.speech ?? this.state.known.snapshot.tts_enabled;
    $('voice').setAttribute('aria-checked', String(Boolean(on)));
    $('voice').disabled = false;
    const note = voiceNote(this.state.known.snapshot);
    if ($('voice-note').textContent !== note) $('voice-note').textContent = note;
    $('voice-note').hidden = !note;
    $('voice-note').title = note;
  }

  async #toggle() {
    const want = $('voice').getAttribute('aria-checked') !== 'true';
    $('voice').classList.add('asked');
    const over = () => $('voice').classList.remove('asked');
    try {
      await api.setSettings({ speech: want });
      this.confirm.expect('speech', (s) => (s.settings?.speech ?? s.tts_enabled) === want, over, () => {
        over();
        this.toast.say(`Voice ${want ? 'on' : 'off'} not confirmed by the room.`);
      });
    } catch (err) {
      over();
      this.toast.say(err.message);
    }
  }
}

function readVolume() {
  try {
    const v = JSON.parse(localStorage.getItem('touchline.volume') ?? '{}');
    const from = (x) => (Number(x) >= 0 && Number(x) <= 1 ? Number(x) : 1);
    return { volume: from(v.volume), muted: v.muted === true, camera: from(v.camera) };
  } catch {
    return { volume: 1, muted: false, camera: 1 };
  }
}
