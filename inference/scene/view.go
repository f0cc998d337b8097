package scene

import (
	"math"
	"time"

	"touchline/inference"
)

// Sizes in pixels. A cell is a square of the reduced picture, the unit of all
// measurements.
const (
	reducedWidth = 224 // target width of the reduced picture
	cellSide     = 8
	minSide      = 32 // of a picture
	maxSide      = 1 << 14
)

// view is a reduced picture.
type view struct {
	at     time.Duration
	w, h   int // of the reduced luma
	luma   []uint8
	cols   int // cells
	rows   int
	bright []float32 // mean luma of each cell, 0 to 255
	blue   []float32 // mean Cb of each cell less 128
	red    []float32 // mean Cr of each cell less 128
	grain  []float32 // texture: mean deviation of a cell's pixels from its mean

	meanBright, meanBlue, meanRed float64
}

// usable reports whether a frame is complete and large enough to be measured.
func usable(f inference.Frame) bool {
	return f.Width >= minSide && f.Height >= minSide && f.Width <= maxSide && f.Height <= maxSide &&
		len(f.Pix) >= f.Width*f.Height*3
}

// look reduces a frame by an integer factor: each reduced pixel is the mean of a square.
func look(f inference.Frame, v *view) {
	k := max(1, (f.Width+reducedWidth/2)/reducedWidth)
	v.at = f.PTS
	v.w, v.h = f.Width/k, f.Height/k
	v.cols, v.rows = (v.w+cellSide-1)/cellSide, (v.h+cellSide-1)/cellSide
	n := v.cols * v.rows
	v.luma = sized(v.luma, v.w*v.h)
	v.bright, v.blue, v.red, v.grain = sized(v.bright, n), sized(v.blue, n), sized(v.red, n), sized(v.grain, n)
	clear(v.blue)
	clear(v.red)
	area := k * k
	for y := range v.h {
		out := v.luma[y*v.w : (y+1)*v.w]
		blue, red := v.blue[y/cellSide*v.cols:], v.red[y/cellSide*v.cols:]
		for x := range out {
			var r, g, b int
			if k == 2 {
				p := f.Pix[(2*y*f.Width+2*x)*3:]
				q := f.Pix[((2*y+1)*f.Width+2*x)*3:]
				p, q = p[:6], q[:6]
				r = int(p[0]) + int(p[3]) + int(q[0]) + int(q[3])
				g = int(p[1]) + int(p[4]) + int(q[1]) + int(q[4])
				b = int(p[2]) + int(p[5]) + int(q[2]) + int(q[5])
			} else {
				for dy := range k {
					p := f.Pix[((y*k+dy)*f.Width+x*k)*3:]
					for dx := range k {
						r, g, b = r+int(p[dx*3]), g+int(p[dx*3+1]), b+int(p[dx*3+2])
					}
				}
			}
			r, g, b = r/area, g/area, b/area
			l := (77*r + 150*g + 29*b) >> 8
			out[x] = uint8(l)
			blue[x/cellSide] += float32(b - l)
			red[x/cellSide] += float32(r - l)
		}
	}
	v.measure()
}

// measure computes the means and the grain of each cell of a reduced frame.
func (v *view) measure() {
	n := len(v.bright)
	v.meanBright, v.meanBlue, v.meanRed = 0, 0, 0
	for c := range n {
		x0, y0, x1, y1 := v.cell(c)
		count := float32((x1 - x0) * (y1 - y0))
		sum := 0
		for y := y0; y < y1; y++ {
			for _, l := range v.luma[y*v.w+x0 : y*v.w+x1] {
				sum += int(l)
			}
		}
		mean := float32(sum) / count
		whole, off := int(mean+0.5), 0
		for y := y0; y < y1; y++ {
			for _, l := range v.luma[y*v.w+x0 : y*v.w+x1] {
				off += apart(int(l), whole)
			}
		}
		v.bright[c], v.grain[c] = mean, float32(off)/count
		v.blue[c] *= 0.564 / count // Cb and Cr of BT.601
		v.red[c] *= 0.713 / count
		v.meanBright += float64(mean) / float64(n)
		v.meanBlue += float64(v.blue[c]) / float64(n)
		v.meanRed += float64(v.red[c]) / float64(n)
	}
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func apart(a, b int) int {
	if a > b {
		return a - b
	}
	return b - a
}

// cell returns a cell's pixels in the reduced picture; a cell at the right or bottom edge may be smaller.
func (v *view) cell(c int) (x0, y0, x1, y1 int) {
	x0, y0 = c%v.cols*cellSide, c/v.cols*cellSide
	return x0, y0, min(x0+cellSide, v.w), min(y0+cellSide, v.h)
}

// fit is the linear regression of one view's cells on another's: bright' = gain*bright + offset.
type fit struct {
	gain, offset float64
	// alike is the correlation of the cells, 1 for equal views under different light.
	alike float64
}

func fitLight(from, to *view) fit {
	n := float64(len(from.bright))
	mx, my := from.meanBright, to.meanBright
	var xx, yy, xy float64
	for i := range from.bright {
		dx, dy := float64(from.bright[i])-mx, float64(to.bright[i])-my
		xx += dx * dx
		yy += dy * dy
		xy += dx * dy
	}
	if xx < n || yy < n*0.04 { // one flat colour
		return fit{gain: 1, offset: my - mx, alike: 1}
	}
	g := xy / xx
	return fit{gain: g, offset: my - g*mx, alike: xy / math.Sqrt(xx*yy)}
}
