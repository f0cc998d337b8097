/**
 * The server's events. The browser's EventSource reconnects after a broken connection,
 * but not after an error answer, and does not notice a silent one. This class covers both.
 */
import * as api from './api.js';
import { pause, spread } from './backoff.js';

const NAMES = ['snapshot', 'history', 'status', 'caption', 'record', 'alert', 'heard', 'lost'];
const ENDED = ['expired_token', 'revoked_link']; // the codes of a link that was valid
const LOOK = 2; // s between checks for a removed room
const DOUBT = 20_000; // ms without an event after which the server is checked

/**
 * @typedef {object} Handlers
 * @property {(name: string, data: any) => void} event
 * @property {(link: 'connecting' | 'open' | 'lost' | 'locked' | 'gone', retryIn?: number, why?: string) => void} link why: how a right ended
 * @property {import('./clock.js').ServerClock} clock
 *
 * @typedef {object} Stream the events, by default those of this page's room
 * @property {string} url @property {string[]} names
 * @property {(opts: object) => Promise<any>} probe checks that the server answers
 */
export class Events {
  /** @type {EventSource | null} */
  #source = null;
  #attempt = 0;
  #timer = 0;
  #watch = 0;
  #heard = 0;
  /** @type {Handlers} */
  #on;

  /** @type {Stream} */
  #stream;

  /** @param {Handlers} handlers @param {Partial<Stream>} [stream] */
  constructor(handlers, stream = {}) {
    this.#on = handlers;
    this.#stream = { url: api.inRoom('/events'), names: NAMES, probe: api.status, ...stream };
  }

  open() {
    clearTimeout(this.#timer);
    clearInterval(this.#watch);
    this.#source?.close();
    const source = new EventSource(this.#stream.url);
    this.#source = source;
    this.#heard = Date.now();
    for (const name of this.#stream.names) {
      source.addEventListener(name, (e) => {
        this.#heard = Date.now();
        this.#attempt = 0;
        let data;
        try {
          data = JSON.parse(e.data);
        } catch {
          return; // an incomplete event of a server that ended
        }
        this.#on.event(name, data);
      });
    }
    source.addEventListener('expired', (e) => {
      let why = '';
      try {
        why = JSON.parse(e.data).message;
      } catch {
        // an incomplete event of a server that ended
      }
      this.close();
      this.#on.link('locked', 0, why);
    });
    source.onopen = () => {
      this.#heard = Date.now();
      this.#on.link('open');
    };
    source.onerror = () => {
      source.close();
      if (this.#source === source) void this.#broken();
    };
    this.#watch = setInterval(() => {
      if (Date.now() - this.#heard < DOUBT) return;
      this.#heard = Date.now();
      this.#stream.probe({ clock: this.#on.clock }).catch(() => {
        if (this.#source === source) void this.#broken();
      });
    }, 5000);
  }

  /** Finds the cause, reports it, and retries. */
  async #broken() {
    clearInterval(this.#watch);
    this.#source?.close();
    this.#source = null;
    const wait = pause(this.#attempt++);
    this.#on.link('lost', wait);
    try {
      await this.#stream.probe({ clock: this.#on.clock });
    } catch (err) {
      if (this.#source) return; // opened again meanwhile
      if (err instanceof api.ApiError && err.status === 404) {
        await this.#absent();
        return;
      }
      if (err instanceof api.ApiError && (err.status === 401 || err.status === 403)) {
        this.#on.link('locked', 0, ENDED.includes(err.code) ? err.message : '');
        return;
      }
    }
    if (this.#source) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.open(), spread(wait));
  }

  /** Waits until the room has a commentator again. */
  async #absent() {
    clearTimeout(this.#timer);
    this.#on.link('gone');
    try {
      await this.#stream.probe({ clock: this.#on.clock });
      this.open();
      return;
    } catch {
      if (this.#source) return; // opened again meanwhile
    }
    this.#timer = setTimeout(() => void this.#absent(), spread(LOOK));
  }

  close() {
    clearTimeout(this.#timer);
    clearInterval(this.#watch);
    this.#source?.close();
    this.#source = null;
  }
}
