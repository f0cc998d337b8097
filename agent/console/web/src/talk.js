/**
 * Hold to talk: while the button is held, this browser's microphone is in the room, and what it hears is an order.
 */
import * as api from './api.js';
import { RoomError } from './room.js';

const LONGEST = 58_000; // ms; the server ends it after a minute
const SPOKEN = 5000; // ms that a message stays

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);

/**
 * Whether the button works, and why not.
 * @param {import('./view.js').Known} k
 * @param {{secure: boolean, microphone: boolean, rights: string[]}} here of this browser
 * @returns {{able: boolean, reason: string, offer: string}} offer: the mode that makes it work, where this client may set it
 */
export function talkState(k, here) {
  const no = (reason, offer = '') => ({ able: false, reason, offer });
  if (!here.secure) return no('Browsers allow the microphone on secure pages only. Open this page by https, or on localhost.');
  if (!here.microphone) return no('This device has no microphone.');
  if (k.link !== 'open' || !k.status) return no('The server does not answer.');
  const may = here.rights.includes('instruct');
  if (!may) return no('This link does not allow orders.');
  if (k.room !== 'joined' || !k.agent) return no('This page is not in the room: a microphone needs a media connection.');
  if (k.mayTalk === false) return no('The room does not allow a microphone on this page.');
  const mode = k.status.hearing ?? '';
  if (mode !== 'orders' && mode !== 'all') {
    const offer = here.rights.includes('settings') ? (mode === 'captions' ? 'all' : 'orders') : '';
    return no('The commentator does not listen for orders.', offer);
  }
  return { able: true, reason: '', offer: '' };
}

/** A refusal of the microphone in words. @param {unknown} err */
export function microphoneSentence(err) {
  switch (err instanceof Error ? err.name : '') {
    case 'NotAllowedError':
    case 'SecurityError':
      return 'The browser was not allowed to use the microphone. Allow it beside the address and try again.';
    case 'NotFoundError':
    case 'OverconstrainedError':
      return 'This device has no microphone.';
    case 'NotReadableError':
    case 'AbortError':
      return 'The microphone is in use by another program.';
    default:
      return err instanceof RoomError || err instanceof api.ApiError ? err.message : 'The microphone could not be used in the room.';
  }
}

/** @returns {Promise<MediaStreamTrack>} */
async function microphone() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true }, video: false });
  return stream.getAudioTracks()[0];
}

/**
 * One hold after the other: each has its microphone, which ends with it. Without a DOM.
 */
export class Hold {
  /** @type {AbortController | null} */
  #held = null;
  /** @type {Promise<void>} */
  #last = Promise.resolve();

  /**
   * @param {{open: () => Promise<any>, publish: (track: any) => Promise<{heard: Promise<void>, end: () => Promise<void>}>}} room
   * @param {(stage: 'off' | 'opening' | 'on' | 'failed', err?: unknown) => void} tell
   */
  constructor(room, tell) {
    this.room = room;
    this.tell = tell;
  }

  get held() {
    return this.#held !== null;
  }

  press() {
    if (this.#held) return;
    const held = new AbortController();
    this.#held = held;
    this.tell('opening');
    this.#last = this.#last.then(() => this.#run(held.signal));
  }

  release() {
    this.#held?.abort();
    this.#held = null;
  }

  /** The end of all holds so far. */
  get over() {
    return this.#last;
  }

  /** @param {AbortSignal} signal aborted by the release */
  async #run(signal) {
    const released = new Promise((done) => (signal.aborted ? done(undefined) : signal.addEventListener('abort', done, { once: true })));
    let track = null;
    try {
      if (!signal.aborted) track = await this.room.open();
      if (!signal.aborted && track) {
        const talk = await this.room.publish(track);
        void talk.heard.then(() => signal.aborted || this.tell('on'));
        await released;
        await talk.end();
      }
      if (!this.#held) this.tell('off');
    } catch (err) {
      if (!signal.aborted) this.#held = null;
      this.tell('failed', err);
    } finally {
      track?.stop();
    }
  }
}

export class Talk {
  #microphone = true;
  #message = '';
  #asked = false;
  #stage = 'off';
  #timer = 0;
  #limit = 0;

  /**
   * @param {import('./state.js').State} state @param {import('./controls.js').Confirm} confirm @param {import('./room.js').Viewer} viewer
   * @param {() => string[]} rights of this client
   */
  constructor(state, confirm, viewer, rights) {
    Object.assign(this, { state, confirm, rights });
    this.hold = new Hold({ open: microphone, publish: (track) => viewer.talk(track) }, (stage, err) => this.#tell(stage, err));
    const button = $('talk');
    button.addEventListener('pointerdown', (e) => {
      if (e.button !== 0) return;
      button.setPointerCapture(e.pointerId);
      this.press();
    });
    for (const end of ['pointerup', 'pointercancel', 'lostpointercapture']) button.addEventListener(end, () => this.release());
    button.addEventListener('contextmenu', (e) => e.preventDefault()); // of a long touch
    button.addEventListener('keydown', (e) => this.#key(e, true));
    button.addEventListener('keyup', (e) => this.#key(e, false));
    button.addEventListener('click', (e) => {
      if (e.detail !== 0 || e.pointerType) return; // one of a screen reader: it holds until the next
      if (this.hold.held) this.release();
      else this.press();
    });
    $('talk-offer').addEventListener('click', () => void this.#listen());
    addEventListener('blur', () => this.release());
    document.addEventListener('visibilitychange', () => document.hidden && this.release());
    state.on('known', () => this.draw());
    navigator.mediaDevices?.addEventListener?.('devicechange', () => void this.#look());
    void this.#look();
    this.draw();
  }

  #key(e, down) {
    if (e.key !== ' ' && e.key !== 'Enter') return;
    e.preventDefault(); // no click follows
    if (!down) this.release();
    else if (!e.repeat) this.press();
  }

  /** Looks for a microphone; browsers tell of it before they allow it. */
  async #look() {
    const list = await navigator.mediaDevices?.enumerateDevices?.().catch(() => null);
    if (list) this.#microphone = list.some((d) => d.kind === 'audioinput');
    this.draw();
  }

  get #now() {
    return talkState(this.state.known, {
      secure: globalThis.isSecureContext && Boolean(navigator.mediaDevices?.getUserMedia), microphone: this.#microphone, rights: this.rights(),
    });
  }

  press() {
    if (!this.#now.able) {
      this.#note('');
      $('talk-box').classList.add('open');
      return;
    }
    clearTimeout(this.#limit);
    this.#limit = setTimeout(() => {
      this.release();
      this.#note('Orders end after a minute.');
    }, LONGEST);
    this.#note('');
    this.hold.press();
  }

  release() {
    clearTimeout(this.#limit);
    this.hold.release();
  }

  #tell(stage, err) {
    this.#stage = stage === 'failed' ? 'off' : stage;
    if (stage === 'failed') this.#note(microphoneSentence(err));
    if (stage === 'failed' && err?.name === 'NotFoundError') void this.#look();
    this.draw();
  }

  /** Shows a message for a while. @param {string} words */
  #note(words) {
    clearTimeout(this.#timer);
    this.#message = words;
    $('talk-box').classList.toggle('open', words !== '');
    this.#timer = setTimeout(() => {
      this.#message = '';
      $('talk-box').classList.remove('open');
      this.draw();
    }, SPOKEN);
    this.draw();
  }

  /** Turns spoken orders on. */
  async #listen() {
    const { offer } = this.#now;
    if (!offer || this.#asked) return;
    this.#asked = true;
    this.draw();
    const over = (words) => {
      this.#asked = false;
      this.#note(words);
    };
    try {
      await api.setSettings({ hearing: offer });
      this.confirm.expect('hearing', (s) => s.settings?.hearing === offer, () => {
        over('');
        if ([document.body, $('talk-offer')].includes(document.activeElement)) $('talk').focus();
      }, () => over('Not confirmed by the room.'));
    } catch (err) {
      over(err.message);
    }
  }

  draw() {
    const now = this.#now;
    if (!now.able && this.hold.held) this.release();
    const button = $('talk');
    const words = { off: 'Hold to talk', opening: 'One moment…', on: 'Speak now' }[this.#stage];
    if ($('talk-words').textContent !== words) $('talk-words').textContent = words;
    button.dataset.stage = this.#stage;
    button.setAttribute('aria-pressed', String(this.#stage !== 'off'));
    button.setAttribute('aria-disabled', String(!now.able));
    button.title = now.able ? 'Hold, and say an order (t)' : now.reason;
    const said = this.#message || now.reason;
    if ($('talk-reason').textContent !== said) $('talk-reason').textContent = said;
    $('talk-note').hidden = !said;
    $('talk-offer').hidden = !now.offer || this.#message !== '';
    $('talk-offer').disabled = this.#asked;
  }
}
