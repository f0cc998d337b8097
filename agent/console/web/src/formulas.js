/**
 * What a cycle covers and costs, and how many pictures it needs. The same
 * formulas stand in docs/tuning.md and are printed by `touchline check`.
 */

/** Tokens of one tile of a picture in MiniCPM-o 4.5: 64 and a mark on either side. */
export const TOKENS_PER_TILE = 66;

/** The edge of a tile, px; a picture whose area is no larger is not cut. */
export const TILE_SIDE = 448;

/**
 * How much time a look covers, s.
 * @param {number} frames @param {number} stride @param {number} fps
 */
export function lookSpan(frames, stride, fps) {
  if (!(frames >= 1) || !(stride >= 1) || !(fps > 0)) return NaN;
  return (frames * stride) / fps;
}

/**
 * Whether a picture of 16:9 is shown in parts as well as whole.
 * @param {number} longSide px @param {number} maxSlices
 */
export function isCut(longSide, maxSlices) {
  return Math.min(Math.ceil((longSide * longSide * 9) / 16 / (TILE_SIDE * TILE_SIDE)), maxSlices) > 1;
}

/**
 * The most tokens that the pictures of a look cost, for pictures of 16:9: each is
 * one tile, and one more for every part it is cut into.
 * @param {number} frames @param {number} longSide px @param {number} maxSlices
 */
export function lookTokens(frames, longSide, maxSlices) {
  if (!(frames >= 1) || !(longSide >= 1) || !(maxSlices >= 1)) return NaN;
  return frames * TOKENS_PER_TILE * (isCut(longSide, maxSlices) ? 1 + maxSlices : 1);
}

/** How many pictures the window must hold for a cycle. @param {number} frames @param {number} stride */
export function windowNeeds(frames, stride) {
  return frames >= 1 && stride >= 1 ? (frames - 1) * stride + 1 : NaN;
}
