/**
 * An estimate of the server's clock. The score sheet shows times of the server,
 * and a phone's clock may be seconds off.
 *
 * Every observation bounds offset = server - here, in ms:
 *  - a Date header (whole seconds, cut off) bounds it on both sides,
 *  - a past time of the server bounds it from below.
 * The bounds are intersected. If they contradict each other (one of the
 * clocks was set), the newest observation wins.
 */
export class ServerClock {
  #low = -Infinity;
  #high = Infinity;

  /** @param {number} date ms of the header; @param {number} sent @param {number} received local ms */
  observeDate(date, sent, received) {
    if (!Number.isFinite(date)) return;
    this.#narrow(date - received, date + 1000 - sent);
  }

  /** @param {number} moment ms, already past at the server; @param {number} received local ms */
  observePast(moment, received) {
    if (!Number.isFinite(moment)) return;
    // A spoken comment ends when its sound has been played, a little after its packet was
    // written, so such a moment may lie just ahead. It may not widen what the Date header says.
    this.#narrow(Math.min(moment - received, this.#high), Infinity);
  }

  #narrow(low, high) {
    const l = Math.max(this.#low, low);
    const h = Math.min(this.#high, high);
    if (l <= h) {
      this.#low = l;
      this.#high = h;
      return;
    }
    this.#low = low;
    this.#high = high;
  }

  /** The distance of the bounds, ms; Infinity if one is unknown. */
  get uncertainty() {
    return this.#high - this.#low;
  }

  /** server - here in ms; 0 before the first observation. */
  get offset() {
    const { low, high } = { low: this.#low, high: this.#high };
    // Clocks are usually equal: 0 while the bounds allow it.
    if (low <= 0 && high >= 0) return 0;
    if (!Number.isFinite(low)) return Number.isFinite(high) ? high : 0;
    if (!Number.isFinite(high)) return low;
    return (low + high) / 2;
  }

  /** @param {number} local ms @returns {number} ms at the server */
  at(local) {
    return local + this.offset;
  }
}

/** Milliseconds of an RFC 3339 time; NaN when it is missing or Go's zero time. @param {string|undefined} s */
export function moment(s) {
  if (!s || s.startsWith('0001-')) return NaN;
  return Date.parse(s);
}
