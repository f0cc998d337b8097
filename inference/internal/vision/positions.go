package vision

import "slices"

// Positions writes the position ids of an image of rows x cols patches to the
// front of dst, row-major, and returns that part. Row i of n maps to row
// floor(table*i/n) of the learned table, columns likewise; see bucket. It panics
// if dst is shorter than rows*cols.
func (c Config) Positions(dst []int64, rows, cols int) []int64 {
	dst = dst[:rows*cols]
	for x := range cols {
		dst[x] = int64(bucket(x, cols, c.PositionTable))
	}
	// Bottom up, because row 0 holds the columns' buckets until the end.
	for y := rows - 1; y >= 0; y-- {
		base := int64(bucket(y, rows, c.PositionTable) * c.PositionTable)
		for x := range cols {
			dst[y*cols+x] = base + dst[x]
		}
	}
	return dst
}

// bucket returns the entry of patch i of n along one side, in a table of side
// entries. The original computes it with rounded float32 fractions. For some counts
// this puts an index exactly on a bucket's edge one lower; these are recorded.
func bucket(i, n, side int) int {
	b := side * i / n
	if side == 70 && slices.Contains(oneLower[n], uint8(i)) {
		b--
	}
	return b
}

// oneLower lists the indices with a recorded bucket one below the formula's, by the
// number of patches along a side, for a table of 70. Recorded up to 256 patches.
//
//nolint:gochecknoglobals // a table
var oneLower = map[int][]uint8{
	25: {5, 10, 15, 20}, 49: {7, 14, 35, 42}, 50: {5, 10, 15, 20, 30, 40}, 55: {11, 22, 33, 44}, 58: {29},
	77: {55}, 82: {41}, 86: {43}, 94: {47}, 98: {7, 14, 35, 42, 56, 70, 84}, 100: {10, 20, 30, 40, 80},
	110: {11, 22, 33, 44, 66, 88}, 115: {23, 46, 69, 92}, 135: {27, 54}, 147: {21, 63, 126}, 154: {55},
	155: {62, 124}, 164: {82}, 165: {33, 66, 99, 132}, 166: {83}, 172: {86},
	175: {25, 30, 50, 55, 60, 100, 115, 140, 155}, 188: {94}, 189: {27, 54, 108, 135}, 194: {97},
	196: {14, 42, 56, 70, 84, 112, 140}, 200: {20, 40, 80, 120, 160}, 202: {101}, 203: {87, 145, 174},
	205: {41, 82, 123, 164}, 214: {107}, 215: {172}, 217: {62, 124}, 218: {109}, 220: {22, 44, 66, 88, 132, 176},
	230: {23, 46, 69, 92, 115, 138, 161, 184}, 231: {165}, 235: {47, 141}, 244: {122},
	245: {
		7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 84, 98, 105, 112, 119,
		126, 133, 140, 147, 154, 161, 168, 175, 189, 196, 203, 210, 217, 224, 231,
	},
	246: {123},
}
