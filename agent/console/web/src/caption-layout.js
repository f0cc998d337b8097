/** Captions without a DOM: line breaks, and the choice between two sources. */

/**
 * Breaks text into lines, greedily, so that more words never change a full line.
 * A word wider than a line is cut.
 * @param {string} text
 * @param {(s: string) => number} measure width of a string
 * @param {number} max width of a line
 * @returns {string[][]} lines of words
 */
export function breakLines(text, measure, max) {
  const words = text.split(/\s+/).filter(Boolean);
  /** @type {string[][]} */
  const lines = [];
  let line = [];
  for (const word of words) {
    for (const piece of fit(word, measure, max)) {
      if (line.length > 0 && measure([...line, piece].join(' ')) > max) {
        lines.push(line);
        line = [];
      }
      line.push(piece);
    }
  }
  if (line.length > 0) lines.push(line);
  return lines;
}

/** @param {string} word @param {(s: string) => number} measure @param {number} max */
function fit(word, measure, max) {
  if (measure(word) <= max) return [word];
  const pieces = [];
  let piece = '';
  for (const ch of word) {
    if (piece && measure(piece + ch) > max) {
      pieces.push(piece);
      piece = '';
    }
    piece += ch;
  }
  pieces.push(piece);
  return pieces;
}

/** Display time of a finished caption, ms: time to read it, within bounds. @param {string} text */
export function linger(text) {
  return Math.min(6000, Math.max(2200, text.length * 45));
}

/** Chooses what a screen reader says: each comment once, when it is whole, as single words would stutter. */
export class Announcer {
  #last = '';

  /**
   * The text to announce; "" for none.
   * @param {{segment: string, text: string, final: boolean, spoken: boolean} | null} c the present caption
   * @param {{captions: boolean, voice: boolean}} on whether captions are on, and whether this page plays the voice
   */
  next(c, on) {
    if (!c?.final || c.segment === this.#last) return '';
    this.#last = c.segment;
    return on.captions && !(on.voice && c.spoken) ? c.text : '';
  }
}

/** An unfinished caption without new words for so long has ended, ms. */
const ABANDONED = 12_000;

/**
 * One caption at a time, from two sources: the room's text stream, which is
 * in step with the voice, and the server's events, which replace the
 * stream when it is missing or stalls. Time is an argument, ms.
 */
export class CaptionTrack {
  /** @type {Map<string, {room: string, roomAt: number, events: string, at: number, final: boolean, finalAt: number, cycle: number, spoken: boolean}>} */
  #segments = new Map();
  #current = '';

  /** @param {string} segment @param {string} text so far @param {boolean} final @param {number} now */
  fromRoom(segment, text, final, now) {
    const s = this.#take(segment);
    if (text.length >= s.room.length || !s.final) s.room = text;
    s.roomAt = now;
    s.at = now;
    this.#finish(s, final, now);
  }

  /** @param {import('./types.js').Caption} c @param {number} now */
  fromEvents(c, now) {
    const s = this.#take(c.segment);
    s.events = c.text || s.events + (c.delta || '');
    s.cycle = c.cycle;
    s.spoken = c.spoken;
    s.at = now;
    this.#finish(s, c.final, now);
  }

  /**
   * The present caption.
   * @param {number} now
   * @returns {{segment: string, text: string, final: boolean, cycle: number, spoken: boolean} | null} spoken: by the voice too
   */
  current(now) {
    const s = this.#segments.get(this.#current);
    if (!s) return null;
    const text = this.#text(s, now);
    if (!text || (s.final ? now - s.finalAt > linger(text) : now - s.at > ABANDONED)) return null;
    return { segment: this.#current, text, final: s.final, cycle: s.cycle, spoken: s.spoken };
  }

  /** Removes all captions, as after a restart of the server. */
  clear() {
    this.#segments.clear();
    this.#current = '';
  }

  #text(s, now) {
    if (!s.room) return s.events;
    const stalled = s.events.length > s.room.length && (s.final || now - s.roomAt > 1000);
    return stalled ? s.events : s.room;
  }

  #take(segment) {
    let s = this.#segments.get(segment);
    if (!s) {
      s = { room: '', roomAt: -Infinity, events: '', at: 0, final: false, finalAt: 0, cycle: 0, spoken: true };
      this.#segments.set(segment, s);
      this.#current = segment;
      while (this.#segments.size > 8) this.#segments.delete(this.#segments.keys().next().value);
    }
    return s;
  }

  #finish(s, final, now) {
    if (!final || s.final) return;
    s.final = true;
    s.finalAt = now;
  }
}
