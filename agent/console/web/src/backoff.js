/** How soon to try again: the page plays within 3 s of a server's return, however long that was away. */

const SOON = 15; // attempts, one a second

/** Seconds before the next attempt, when so many were in vain. @param {number} attempt from 0 */
export function pause(attempt) {
  if (attempt === 0) return 0.4;
  return attempt < SOON ? 1 : 2;
}

/** Spreads what many pages would do at once. @param {number} seconds @returns {number} ms */
export const spread = (seconds) => seconds * 1000 * (0.9 + Math.random() * 0.2);

/**
 * livekit-client's reconnectPolicy. It mends what is broken for a moment; its own policy waits
 * up to 7 s between attempts, where joining anew comes sooner.
 */
export const mending = {
  /** @param {{elapsedMs: number}} context @returns {number | null} ms, null to give up */
  nextRetryDelayInMs: ({ elapsedMs }) => (elapsedMs < 3000 ? 300 : null),
};
