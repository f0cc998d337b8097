package worlds

import (
	"math"

	"touchline/media"
	"touchline/worlds/paint"
)

// The frame counter is a strip of black and white squares in the lower right
// corner, whose unit is the picture's width / counterUnits:
//
//	a black frame one square wide around two rows of 16 squares,
//	24 bits of the number and 8 of CRC, highest first,
//	with a white square in the left and the right side of the frame, upper row.
//
// All places are fractions of the picture, so that any scale reads alike.
const (
	counterUnits = 80
	counterCols  = 18
	counterRows  = 4
	counterBits  = 24
)

// CounterMax is the largest number that the counter shows; it starts again from 0 after it.
const CounterMax = 1<<counterBits - 1

// crc8 with the polynomial x^8+x^2+x+1 (ITU-T I.432.1), started at 0xff so
// that an all-black strip is no number.
func crc8(n uint32) uint8 {
	crc := uint8(0xff)
	for _, b := range []uint8{uint8(n >> 16), uint8(n >> 8), uint8(n)} {
		crc ^= b
		for range 8 {
			if crc&0x80 != 0 {
				crc = crc<<1 ^ 0x07
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// counterCell returns the content of a square of the strip: the number of a bit, or -1 with the
// frame's colour.
func counterCell(col, row int) (bit int, white bool) {
	if row > 0 && row < counterRows-1 && col > 0 && col < counterCols-1 {
		return (row-1)*16 + col - 1, false
	}
	return -1, row == 1
}

// counterEdges are the pixel edges of a square in a picture of the given size.
func counterEdges(width, height, col, row int) (x0, y0, x1, y1 float64) {
	unit := float64(width) / counterUnits
	left := float64(width) - float64(counterCols+1)*unit
	top := float64(height) - float64(counterRows+1)*unit
	return left + float64(col)*unit, top + float64(row)*unit, left + float64(col+1)*unit, top + float64(row+1)*unit
}

// WriteCounter draws the number n (modulo 2^24) into an I420 picture of the
// given even size, in place. It does nothing if the buffer's size is not right.
func WriteCounter(i420 []byte, width, height int, n uint32) {
	if width < counterUnits || height < counterUnits/2 || width > maxSide || height > maxSide {
		return
	}
	if width%2+height%2 != 0 || len(i420) != paint.I420Size(width, height) {
		return
	}
	writeCounter(paint.NewCanvas(i420, width, height), n)
}

func writeCounter(c paint.Canvas, n uint32) {
	n &= CounterMax
	word := n<<8 | uint32(crc8(n))
	for row := range counterRows {
		for col := range counterCols {
			bit, white := counterCell(col, row)
			if bit >= 0 {
				white = word>>(31-bit)&1 == 1
			}
			val := uint8(16)
			if white {
				val = 235
			}
			fx0, fy0, fx1, fy1 := counterEdges(c.W, c.H, col, row)
			x0, y0 := int(math.Round(fx0)), int(math.Round(fy0))
			x1, y1 := int(math.Round(fx1)), int(math.Round(fy1))
			c.Y.Fill(x0, y0, x1, y1, val)
			c.U.Fill(x0/2, y0/2, (x1+1)/2, (y1+1)/2, 128)
			c.V.Fill(x0/2, y0/2, (x1+1)/2, (y1+1)/2, 128)
		}
	}
}

// ReadCounter reads the number from a decoded picture of any size. ok is false if there is no
// counter or its checksum is wrong.
func ReadCounter(f media.VideoFrame) (n uint32, ok bool) {
	if f.Width <= 0 || f.Height <= 0 || f.Width > maxSide || f.Height > maxSide || len(f.Pix) < f.Width*f.Height*3 {
		return 0, false
	}
	return readCounter(f.Width, f.Height, func(x, y int) int {
		p := f.Pix[(y*f.Width+x)*3:]
		return (77*int(p[0]) + 150*int(p[1]) + 29*int(p[2])) >> 8
	})
}

// ReadCounterI420 reads the number from an I420 picture, whose luma plane comes first and has no padding; ok is false without a readable
// number.
func ReadCounterI420(i420 []byte, width, height int) (n uint32, ok bool) {
	if width <= 0 || height <= 0 || width > maxSide || height > maxSide || len(i420) < width*height {
		return 0, false
	}
	return readCounter(width, height, func(x, y int) int { return int(i420[y*width+x]) })
}

// minContrast is the smallest contrast between the frame's black and white, of 255.
const minContrast = 60

// maxSide is the largest width or height of a picture.
const maxSide = 1 << 15

func readCounter(width, height int, luma func(x, y int) int) (uint32, bool) {
	if width < counterUnits || height < (counterRows+1)*width/counterUnits+2 {
		return 0, false
	}
	// mean of the middle half of a square
	mean := func(col, row int) float64 {
		x0, y0, x1, y1 := counterEdges(width, height, col, row)
		dx, dy := (x1-x0)/4, (y1-y0)/4
		left, right := int(math.Round(x0+dx)), int(math.Round(x1-dx))
		top, bottom := int(math.Round(y0+dy)), int(math.Round(y1-dy))
		right, bottom = max(right, left+1), max(bottom, top+1)
		sum, count := 0, 0
		for y := max(top, 0); y < min(bottom, height); y++ {
			for x := max(left, 0); x < min(right, width); x++ {
				sum += luma(x, y)
				count++
			}
		}
		return float64(sum) / float64(max(count, 1))
	}
	black, white, blacks, whites := 0.0, 0.0, 0.0, 0.0
	for row := range counterRows {
		for col := range counterCols {
			switch bit, isWhite := counterCell(col, row); {
			case bit >= 0:
			case isWhite:
				white += mean(col, row)
				whites++
			default:
				black += mean(col, row)
				blacks++
			}
		}
	}
	black, white = black/blacks, white/whites
	if white-black < minContrast {
		return 0, false
	}
	half := (black + white) / 2
	var word uint32
	for row := 1; row < counterRows-1; row++ {
		for col := 1; col < counterCols-1; col++ {
			word <<= 1
			if mean(col, row) > half {
				word |= 1
			}
		}
	}
	n := word >> 8
	return n, crc8(n) == uint8(word)
}
