/**
 * What a window costs and covers. The same formulas stand in docs/tuning.md.
 */

/** Tokens of one slice of a picture in MiniCPM-o. */
export const TOKENS_PER_SLICE = 64;

/**
 * How much time a window covers, s: from its oldest to its newest frame.
 * @param {number} frames @param {number} stride @param {number} fps
 */
export function windowSpan(frames, stride, fps) {
  if (!(frames >= 1) || !(stride >= 1) || !(fps > 0)) return NaN;
  return ((frames - 1) * stride) / fps;
}

/** How many tokens a window costs. @param {number} frames @param {number} slices per picture */
export function windowTokens(frames, slices) {
  if (!(frames >= 1) || !(slices >= 1)) return NaN;
  return frames * TOKENS_PER_SLICE * slices;
}
