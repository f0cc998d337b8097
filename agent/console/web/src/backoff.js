/** Retry intervals: the page plays within 3 s after the server is back, even after a long outage. */

const SOON = 15; // attempts, one a second

/** Seconds before the next attempt, after so many failures. @param {number} attempt from 0 */
export function pause(attempt) {
  if (attempt === 0) return 0.4;
  return attempt < SOON ? 1 : 2;
}

/** Adds jitter, so that many pages do not act at once. @param {number} seconds @returns {number} ms */
export const spread = (seconds) => seconds * 1000 * (0.9 + Math.random() * 0.2);

/**
 * livekit-client's reconnectPolicy for short interruptions. The library's default waits up to 7 s between
 * attempts; a new join is faster.
 */
export const mending = {
  /** @param {{elapsedMs: number}} context @returns {number | null} ms, null to give up */
  nextRetryDelayInMs: ({ elapsedMs }) => (elapsedMs < 3000 ? 300 : null),
};
