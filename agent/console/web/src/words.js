/** Figures and times for readers. */

/** "now", "12 s ago", "3 min ago". @param {number} sec */
export function ago(sec) {
  if (!Number.isFinite(sec)) return '';
  if (sec < 1.5) return 'just now';
  if (sec < 90) return `${Math.round(sec)} s ago`;
  if (sec < 5400) return `${Math.round(sec / 60)} min ago`;
  return `${Math.round(sec / 3600)} h ago`;
}

/** "2.4 s"; one digit after the point, none from 100 s on. @param {number} sec */
export function seconds(sec) {
  if (!Number.isFinite(sec)) return '–';
  return `${Math.abs(sec) >= 100 ? Math.round(sec) : sec.toFixed(1)} s`;
}

/** "31 ms", "1.2 s" from a second on. @param {number} sec */
export function millis(sec) {
  if (!Number.isFinite(sec)) return '–';
  if (Math.abs(sec) >= 0.9995) return `${sec.toFixed(1)} s`;
  return `${Math.round(sec * 1000)} ms`;
}

/** "1 comment", "3 comments". @param {number} n @param {string} one @param {string} [many] */
export function count(n, one, many = `${one}s`) {
  return `${n} ${n === 1 ? one : many}`;
}

/**
 * The name of a comment's frame. @param {number} i from 0 @param {number} n
 * @param {number} at ms in the reader's clock, NaN when not known
 */
export function frameName(i, n, at) {
  return `Frame ${i + 1} of ${n}${Number.isFinite(at) ? `, seen at ${clockTime(at)}` : ''}`;
}

/** A clock time with tenths, in the reader's zone. @param {number} ms */
export function clockTime(ms) {
  if (!Number.isFinite(ms)) return '';
  const d = new Date(ms);
  const p = (n) => String(n).padStart(2, '0');
  return `${p(d.getHours())}:${p(d.getMinutes())}:${p(d.getSeconds())}.${Math.floor(d.getMilliseconds() / 100)}`;
}

/** A date with its time, in the reader's zone. @param {number} ms */
export function dateTime(ms) {
  return Number.isFinite(ms) ? new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' }).format(ms) : '';
}
