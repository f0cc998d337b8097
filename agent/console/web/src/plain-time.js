/** The picture and the voice over HTTP: reading their streams, and when a piece of the voice is played. Without a DOM. */
import { median } from './sync.js';

const MOST = 4 << 20; // bytes of a part
const HEAD = 1 << 10; // bytes of a part's head

/** Joins bytes. @param {Uint8Array} a @param {Uint8Array} b */
export function join(a, b) {
  if (!a.length) return b;
  const out = new Uint8Array(a.length + b.length);
  out.set(a);
  out.set(b, a.length);
  return out;
}

/** Reads the parts of /api/mjpeg: each has a Content-Length, and its X-Timestamp is the moment of the picture in the room. */
export class Parts {
  #rest = new Uint8Array(0);

  /**
   * @param {Uint8Array} bytes the next of the stream
   * @returns {{at: number, data: Uint8Array}[]} the parts that are complete; at in ms, NaN if unknown
   */
  push(bytes) {
    this.#rest = join(this.#rest, bytes);
    const out = [];
    for (;;) {
      const end = headEnd(this.#rest);
      if (end < 0) {
        if (this.#rest.length > HEAD) throw new Error('a part of the pictures without an end of its head');
        return out;
      }
      const head = new TextDecoder().decode(this.#rest.subarray(0, end));
      const field = (name) => Number(new RegExp(`^${name}: *([\\d.]+)`, 'im').exec(head)?.[1] ?? NaN);
      const size = field('Content-Length');
      if (!(size <= MOST)) throw new Error('a part of the pictures without a usable length');
      if (this.#rest.length < end + size) return out;
      out.push({ at: field('X-Timestamp') * 1000, data: this.#rest.slice(end, end + size) });
      this.#rest = this.#rest.slice(end + size);
    }
  }
}

/** The end of the head of the first part, after its empty line; -1 without one. @param {Uint8Array} b */
function headEnd(b) {
  for (let i = 3; i < Math.min(b.length, HEAD); i++) {
    if (b[i] === 10 && b[i - 1] === 13 && b[i - 2] === 10 && b[i - 3] === 13) return i + 1;
  }
  return -1;
}

/** All times in ms. */
const KEPT = 40; // pictures and pieces
const MARGIN = 50; // between the arrival of a piece and its play: the jitter of network and machine
const NEAR = 25; // an offset that is left alone
const FAR = 200; // an offset that does not wait for silence

/**
 * When the voice is played, so that it is heard with the pictures: their moments are on the server's clock, and only
 * differences of its times count.
 */
export class VoicePlan {
  /** @type {{at: number, late: number}[]} how late each picture was on the screen */
  #pictures = [];
  /** @type {number[]} how late each piece arrived */
  #pieces = [];
  #late = NaN; // of the voice

  /** @param {number} at its moment @param {number} now on the screen */
  shown(at, now) {
    this.#pictures.push({ at, late: now - at });
    if (this.#pictures.length > KEPT) this.#pictures.shift();
  }

  /**
   * The moment when a piece is to be heard; NaN for one that is too late.
   * @param {number} at its moment @param {number} now its arrival @param {boolean} silent
   * @param {number} output ms from the player to the loudspeaker
   */
  plan(at, now, silent, output) {
    this.#pieces.push(now - at);
    if (this.#pieces.length > KEPT) this.#pieces.shift();
    const want = this.#want(output);
    const off = Math.abs(want - this.#late);
    if (!(off <= FAR) || (silent && off > NEAR)) this.#late = want;
    return at + this.#late - output < now ? NaN : at + this.#late;
  }

  /** How late the voice should be: as the pictures, of which each stays until the next, but not before it can be. */
  #want(output) {
    const pictures = this.#pictures;
    const stay = median(pictures.slice(1).map((p, i) => p.at - pictures[i].at));
    const seen = median(pictures.map((p) => p.late)) + (stay / 2 || 0);
    const sorted = this.#pieces.toSorted((a, b) => a - b);
    const arrived = sorted[Math.floor(0.9 * (sorted.length - 1))] + MARGIN + output;
    return Number.isFinite(seen) ? Math.max(seen, arrived) : arrived;
  }

  /** How much later the voice is heard than its picture is seen; NaN if unknown. */
  get heardAfterSeen() {
    const pictures = this.#pictures;
    const stay = median(pictures.slice(1).map((p, i) => p.at - pictures[i].at));
    return this.#late - median(pictures.map((p) => p.late)) - (stay / 2 || 0);
  }
}
