/**
 * The span and the cost of a cycle, and the pictures it needs: the formulas of docs/tuning.md, which
 * `touchline check` prints too.
 */

/** Tokens of one tile of a picture in MiniCPM-o 4.5: 64 and a mark on either side. */
export const TOKENS_PER_TILE = 66;

/** The edge of a tile, px; a picture whose area is no larger is not cut. */
export const TILE_SIDE = 448;

/**
 * The time from the oldest to the newest picture of a cycle, s.
 * @param {number} frames @param {number} stride @param {number} fps
 */
export function lookSpan(frames, stride, fps) {
  if (!(frames >= 1) || !(stride >= 1) || !(fps > 0)) return NaN;
  return ((frames - 1) * stride) / fps;
}

/**
 * Whether a picture of 16:9 is processed in tiles as well.
 * @param {number} longSide px @param {number} maxSlices
 */
export function isCut(longSide, maxSlices) {
  return Math.min(Math.ceil((longSide * longSide * 9) / 16 / (TILE_SIDE * TILE_SIDE)), maxSlices) > 1;
}

/**
 * The most tokens of the pictures of a cycle, for pictures of 16:9: one tile each,
 * and one more for each part of a cut picture.
 * @param {number} frames @param {number} longSide px @param {number} maxSlices
 */
export function lookTokens(frames, longSide, maxSlices) {
  if (!(frames >= 1) || !(longSide >= 1) || !(maxSlices >= 1)) return NaN;
  return frames * TOKENS_PER_TILE * (isCut(longSide, maxSlices) ? 1 + maxSlices : 1);
}

/** The number of pictures in the window of a cycle. @param {number} frames @param {number} stride */
export function windowNeeds(frames, stride) {
  return frames >= 1 && stride >= 1 ? (frames - 1) * stride + 1 : NaN;
}
