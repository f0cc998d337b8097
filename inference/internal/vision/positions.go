package vision

import "slices"

// Positions writes the position ids of an image of rows x cols patches to the
// front of dst, row-major, and returns that part. Row i of n falls into bucket
// floor(table*i/n) of the learned table's rows, columns likewise; see bucket.
// It panics if dst is shorter than rows*cols.
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

// bucket is where index i of n patches along one side lies in a table of side
// entries. The original computes it with rounded float32 fractions, which for
// some counts puts an index that lies exactly on a bucket's edge one lower;
// those were recorded from it.
func bucket(i, n, side int) int {
	b := side * i / n
	if side == 70 && slices.Contains(oneLower(n), uint8(i)) {
		b--
	}
	return b
}

// oneLower lists the indices whose recorded bucket is one below the formula's,
// for n patches along a side and a table of 70. Recorded up to 256 patches.
func oneLower(n int) []uint8 { //nolint:funlen // a table
	switch n {
	case 25:
		return []uint8{5, 10, 15, 20}
	case 49:
		return []uint8{7, 14, 35, 42}
	case 50:
		return []uint8{5, 10, 15, 20, 30, 40}
	case 55:
		return []uint8{11, 22, 33, 44}
	case 58:
		return []uint8{29}
	case 77:
		return []uint8{55}
	case 82:
		return []uint8{41}
	case 86:
		return []uint8{43}
	case 94:
		return []uint8{47}
	case 98:
		return []uint8{7, 14, 35, 42, 56, 70, 84}
	case 100:
		return []uint8{10, 20, 30, 40, 80}
	case 110:
		return []uint8{11, 22, 33, 44, 66, 88}
	case 115:
		return []uint8{23, 46, 69, 92}
	case 135:
		return []uint8{27, 54}
	case 147:
		return []uint8{21, 63, 126}
	case 154:
		return []uint8{55}
	case 155:
		return []uint8{62, 124}
	case 164:
		return []uint8{82}
	case 165:
		return []uint8{33, 66, 99, 132}
	case 166:
		return []uint8{83}
	case 172:
		return []uint8{86}
	case 175:
		return []uint8{25, 30, 50, 55, 60, 100, 115, 140, 155}
	case 188:
		return []uint8{94}
	case 189:
		return []uint8{27, 54, 108, 135}
	case 194:
		return []uint8{97}
	case 196:
		return []uint8{14, 42, 56, 70, 84, 112, 140}
	case 200:
		return []uint8{20, 40, 80, 120, 160}
	case 202:
		return []uint8{101}
	case 203:
		return []uint8{87, 145, 174}
	case 205:
		return []uint8{41, 82, 123, 164}
	case 214:
		return []uint8{107}
	case 215:
		return []uint8{172}
	case 217:
		return []uint8{62, 124}
	case 218:
		return []uint8{109}
	case 220:
		return []uint8{22, 44, 66, 88, 132, 176}
	case 230:
		return []uint8{23, 46, 69, 92, 115, 138, 161, 184}
	case 231:
		return []uint8{165}
	case 235:
		return []uint8{47, 141}
	case 244:
		return []uint8{122}
	case 245:
		return []uint8{
			7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 84, 98, 105, 112,
			119, 126, 133, 140, 147, 154, 161, 168, 175, 189, 196, 203, 210, 217, 224, 231,
		}
	case 246:
		return []uint8{123}
	}
	return nil
}
