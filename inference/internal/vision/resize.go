package vision

import (
	"math"
	"slices"
	"sync"
)

const (
	// weightBits is the fixed-point precision of a filter weight.
	weightBits = 22
	// lowBits splits a weight into two 16-bit halves for multiply-add.
	lowBits = 12
	// group is the number of taps in a vector step.
	group = 4
	// slack is the maximum number of bytes that a vector step accesses beyond its input or output.
	slack = 32
	// keptFilters is the maximum number of filters kept between pictures.
	keptFilters = 8
)

// level is the instruction set of the passes. All give the same bytes.
type level uint8

const (
	levelPlain level = iota // plain Go
	levelAVX2
	levelVNNI // AVX2 and the 8-bit dot product of AVX-512
)

// Scaler resizes pictures and keeps its buffers between them. It gives the same bytes as Pillow. Not safe for concurrent use.
type Scaler struct {
	kernel  func(x float64) float64
	support float64 // the kernel is 0 beyond it

	filters []*filter // most recently used first
	bands   []band    // of a picture, at the same time
	level   level
}

// band is the work on some rows of a result, and its buffers.
type band struct {
	middle []byte // after the horizontal pass
	edge   []byte // the last rows of a picture, with room to read beyond
}

// NewBilinear returns a bilinear Scaler.
func NewBilinear() *Scaler { return newScaler(bilinear, 1, 1) }

func newScaler(kernel func(x float64) float64, support float64, bands int) *Scaler {
	return &Scaler{kernel: kernel, support: support, bands: make([]band, bands), level: bestLevel()}
}

// filter holds the source pixels of each output pixel and their weights, for one
// side of a picture: Pillow's kernel, widened for shrinking.
type filter struct {
	in, out int
	taps    int     // per output pixel, a multiple of group; unused ones have weight 0
	first   []int32 // first source pixel of each output pixel
	offset  []int32 // the same in bytes of packed RGB
	used    []int32 // number of used taps of each output pixel
	weights []int32 // [out][taps]
	// split holds the weights for the horizontal pass, low halves of a group
	// and then its high halves; pairs for the vertical one, two by two.
	split, pairs []int16
	// digits holds a group's weights as signed digits of base 256, lowest first.
	digits []int8
	reach  int // bytes from the start of a row that a vector pass may read
}

// filter returns the filter from in to out pixels.
func (s *Scaler) filter(in, out int) *filter {
	for i, f := range s.filters {
		if f.in == in && f.out == out {
			copy(s.filters[1:i+1], s.filters[:i])
			s.filters[0] = f
			return f
		}
	}
	f := newFilter(in, out, s.kernel, s.support)
	if len(s.filters) == keptFilters {
		s.filters = s.filters[:keptFilters-1]
	}
	s.filters = slices.Insert(s.filters, 0, f)
	return f
}

// newFilter computes a filter. The explicit conversions to float64 prevent fused
// multiply-adds, which round differently.
func newFilter(in, out int, kernel func(x float64) float64, support float64) *filter {
	scale := float64(in) / float64(out)
	stretch := max(scale, 1)
	support *= stretch
	f := &filter{in: in, out: out, first: make([]int32, out), offset: make([]int32, out), used: make([]int32, out)}
	raw := make([]float64, out*(int(math.Ceil(support))*2+1))
	width := len(raw) / out
	for i := range out {
		center := (float64(i) + .5) * scale
		lo := max(int(float64(center-support)+.5), 0)
		n := min(int(float64(center+support)+.5), in) - lo
		ks := raw[i*width:][:n]
		var sum float64
		for j := range ks {
			ks[j] = kernel(float64(float64(float64(j+lo)-center)+.5) * (1 / stretch))
			sum += ks[j]
		}
		if sum != 0 {
			for j := range ks {
				ks[j] /= sum
			}
		}
		f.first[i], f.offset[i], f.used[i] = int32(lo), int32(3*lo), int32(n)
		f.taps = max(f.taps, n)
	}
	f.taps = (f.taps + group - 1) / group * group
	f.weights = make([]int32, out*f.taps)
	f.split = make([]int16, 2*out*f.taps)
	f.pairs = make([]int16, 2*out*f.taps)
	f.digits = make([]int8, 3*out*f.taps)
	for i := range out {
		for j := range int(f.used[i]) {
			k := raw[i*width+j] * (1 << weightBits)
			w := int32(k + math.Copysign(.5, k))
			low, high := int16(w&(1<<lowBits-1)), int16(w>>lowBits)
			at := i*f.taps + j
			f.weights[at] = w
			f.split[2*(at-at%group)+at%group], f.split[2*(at-at%group)+group+at%group] = low, high
			f.pairs[2*(at-at%2)+at%2], f.pairs[2*(at-at%2)+2+at%2] = low, high
			for d := range 3 {
				digit := int8(w)
				f.digits[3*(at-at%group)+d*group+at%group] = digit
				w = (w - int32(digit)) >> 8
			}
		}
		f.reach = max(f.reach, int(f.offset[i])+3*f.taps+slack)
	}
	return f
}

func bilinear(x float64) float64 { return max(0, 1-math.Abs(x)) }

// bicubic is Pillow's kernel with a = -0.5.
func bicubic(x float64) float64 {
	const a = -.5
	x = math.Abs(x)
	switch {
	case x < 1:
		return float64(float64(float64(float64((a+2)*x)-(a+3))*x)*x) + 1
	case x < 2:
		return (float64((float64((x-5)*x)+8)*x) - 4) * a
	default:
		return 0
	}
}

// Scale resizes a picture of packed RGB into buf, which grows as needed, and returns it with
// the stride of its rows. It rounds to 8 bits after the horizontal and after the
// vertical pass, and skips a pass that changes nothing.
func (s *Scaler) Scale(buf []byte, from Size, pix []byte, to Size) ([]byte, int) {
	stride := (3*to.W+15)/16*16 + 16
	buf = grow(buf, stride*to.H+slack)
	p := pass{s.level, s.filter(from.W, to.W), s.filter(from.H, to.H), from, pix, buf, stride}
	if len(s.bands) == 1 {
		s.bands[0].scale(&p, 0, to.H)
	} else {
		s.together(p)
	}
	return buf, stride
}

// pass is the work on a picture.
type pass struct {
	level        level
	across, down *filter
	from         Size
	pix, buf     []byte
	stride       int // of buf
}

// together works on all bands at the same time.
func (s *Scaler) together(p pass) {
	together(len(s.bands), p.down.out, func(i, from, to int) { s.bands[i].scale(&p, from, to) })
}

// together divides [0,all) into n parts and works on them at the same time.
func together(n, all int, work func(part, from, to int)) {
	var others sync.WaitGroup
	for i := range n - 1 {
		others.Go(func() { work(i, all*i/n, all*(i+1)/n) })
	}
	work(n-1, all*(n-1)/n, all)
	others.Wait()
}

// scale computes the rows [from, to) of the result.
func (b *band) scale(p *pass, from, to int) {
	down, stride := p.down, p.stride
	if down.in == down.out || from == to {
		b.rows(p, p.buf[from*stride:], from, to-from)
		return
	}
	base := int(down.first[from])
	// With room for the second row of the last pair, and for reads of unused taps.
	b.middle = grow(b.middle, stride*(int(down.first[to-1]+down.used[to-1])-base+1+group)+slack)
	done := base
	for y := from; y < to; y++ {
		// Only the needed rows, so that they are still in the cache.
		if need := int(down.first[y] + down.used[y]); need > done {
			ahead := min(need+(need-done)%2, down.in)
			b.rows(p, b.middle[(done-base)*stride:], done, ahead-done)
			done = ahead
		}
		src := b.middle[(int(down.first[y])-base)*stride:]
		out := p.buf[y*stride:]
		if p.level == levelPlain {
			down.column(out[:3*p.across.out], src, stride, y)
		} else {
			down.columnFast(out, src, stride, y, 3*p.across.out)
		}
	}
}

// rows writes the horizontal pass of n rows from first on.
func (b *band) rows(p *pass, dst []byte, first, n int) {
	across, width := p.across, 3*p.across.out
	for y := first; y < first+n; y += 2 {
		two := min(2, first+n-y)
		src, distance := b.source(p.pix, p.from, y, two, across.reach)
		out := dst[(y-first)*p.stride:]
		switch {
		case across.in == across.out:
			for i := range two {
				copy(out[i*p.stride:][:width], src[i*distance:])
			}
		case p.level == levelPlain:
			for i := range two {
				across.row(out[i*p.stride:][:width], src[i*distance:])
			}
		default:
			across.rowsFast(p.level, out, p.stride, src, distance, two)
		}
	}
}

// source returns one or two rows of the picture and their stride. It copies the last
// rows of a picture to a buffer that allows reads beyond them.
func (b *band) source(pix []byte, from Size, y, n, reach int) (src []byte, distance int) {
	row := 3 * from.W
	if (y+n-1)*row+reach <= len(pix) {
		return pix[y*row:], row
	}
	b.edge = grow(b.edge, 2*max(reach, row))
	distance = max(reach, row)
	for i := range n {
		copy(b.edge[i*distance:], pix[(y+i)*row:][:row])
	}
	return b.edge, distance
}

// row is the horizontal pass of one row in plain Go.
func (f *filter) row(dst, src []byte) {
	for i := range f.out {
		n := int(f.used[i])
		ws := f.weights[i*f.taps:][:n]
		px := src[f.offset[i]:][:3*n]
		r, g, b := int32(1<<(weightBits-1)), int32(1<<(weightBits-1)), int32(1<<(weightBits-1))
		for _, w := range ws {
			r += w * int32(px[0])
			g += w * int32(px[1])
			b += w * int32(px[2])
			px = px[3:]
		}
		dst[3*i], dst[3*i+1], dst[3*i+2] = clip(r), clip(g), clip(b)
	}
}

// column is the vertical pass of output row y in plain Go; src starts at its first
// source row.
func (f *filter) column(dst, src []byte, stride, y int) {
	ws := f.weights[y*f.taps:][:f.used[y]]
	for x := range dst {
		sum := int32(1 << (weightBits - 1))
		at := x
		for _, w := range ws {
			sum += w * int32(src[at])
			at += stride
		}
		dst[x] = clip(sum)
	}
}

func clip(sum int32) byte { return byte(max(0, min(255, sum>>weightBits))) }

// grow returns a buffer of n bytes, reusing buf if it is large enough.
func grow(buf []byte, n int) []byte {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]byte, n)
}
