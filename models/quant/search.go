package quant

import "math"

// The search for the scale of a block of 4-bit codes tries bins steps of the
// inverse scale between low and high, in units of 1/largest magnitude. At 8 the
// largest weight takes the outermost code; above it is clipped. A wider or finer
// search gains only 0.04 % of the error on Gaussian weights.
const (
	bins = 16
	low  = 6.5
	high = 9.0

	perStep = bins / (high - low)
	// The first bin where a weight can take the code 8.
	firstOuter = 6 // 16 * (7.5-6.5) / (9-6.5)
)

// Magnitudes are integers from 0 to one. A table indexed by their upper bits
// holds the steps at which a magnitude's code changes.
const (
	oneBits   = 16
	one       = 1<<oneBits - 1
	tableBits = 12
	// Bins from noBin on collect the changes beyond the last step, which are
	// unused. Several bins avoid a chain of dependent additions to one address.
	noBin = bins
	// outerFrom is the least magnitude that takes the code 8 at any step,
	// rounded down: 7.4 of 9.
	outerFrom = one * 74 / 90
)

// search finds the scale of a block. It is not safe for concurrent use.
//
// With codes c the best scale is sum(wc)/sum(cc), with the squared error
// sum(ww) - sum(wc)^2/sum(cc), so the codes with the largest quotient win.
// Raising the inverse scale changes one code by one at a time. Each weight adds
// its changes to the bins where they happen, and one pass over the bins yields
// the quotient of every step without rounding all weights for each.
//
// One number holds both sums, sum(cc) in its upper half.
type search struct {
	// table holds the code at the lowest step (bits 0-7) and the bins where it
	// grows by one (8-15) and by two (16-23) without reaching 8. No other changes
	// occur between low and high.
	table         [1 << tableBits]uint32
	first, second [2 * bins]uint64
	// outer holds the changes from 7 to 8, which only the sign that maps to -8
	// can take.
	outer [2][2 * bins]uint64
	seen  [2][bins]uint64
}

func newSearch() *search {
	s := &search{}
	for i := range s.table {
		r := (float64(i) + 0.5) / (1 << tableBits)
		c := math.Floor(r*low + 0.5)
		bin := func(c float64) uint32 {
			if b := ((c+0.5)/r - low) * perStep; c < 7 && b < bins {
				return uint32(b)
			}
			return noBin + uint32(i)%bins
		}
		s.table[i] = uint32(c) | bin(c)<<8 | bin(c+1)<<16
	}
	return s
}

// scale returns the unrounded scale of a block. bad is the index of a weight that
// is not finite, or -1.
func (s *search) scale(w []float32, bits int) (scale float32, bad int) {
	top := largestBits(w)
	if top >= 0x7f800000 {
		for i, x := range w {
			if math.Float32bits(x)&0x7f800000 == 0x7f800000 {
				return 0, i
			}
		}
	}
	largest := math.Float32frombits(top)
	if largest < 1e-30 { // no scale distinguishes it from zero
		return 0, -1
	}
	if bits == 8 {
		return scale8(w, largest), -1
	}
	return s.scale4(w, largest), -1
}

const signBit = 1 << 31

// largestBits returns the bits of the largest magnitude; they compare like the
// numbers.
func largestBits(w []float32) uint32 {
	var a, b, c, d uint32
	for len(w) >= 4 {
		a = max(a, math.Float32bits(w[0])&^signBit)
		b = max(b, math.Float32bits(w[1])&^signBit)
		c = max(c, math.Float32bits(w[2])&^signBit)
		d = max(d, math.Float32bits(w[3])&^signBit)
		w = w[4:]
	}
	for _, x := range w {
		a = max(a, math.Float32bits(x)&^signBit)
	}
	return max(a, b, c, d)
}

func (s *search) scale4(w []float32, largest float32) float32 {
	unit := one / largest
	var sum uint64 // of the codes at the lowest step
	for _, x := range w {
		b := math.Float32bits(x)
		a := uint64(uint32(int32(math.Float32frombits(b&^signBit) * unit)))
		e := s.table[a>>(oneBits-tableBits)&(1<<tableBits-1)]
		c := uint64(e & 0xff)
		sum += c * (a + c<<32)
		step := a + (2*c+1)<<32
		s.first[e>>8&(2*bins-1)] += step
		s.second[e>>16&(2*bins-1)] += step + 2<<32
		if a >= outerFrom {
			at := int((7.5*one/float32(a) - low) * perStep)
			s.outer[b>>31][min(uint(at), noBin)] += a + 15<<32
		}
	}
	return s.best(sum) / unit
}

// best evaluates each step twice, with the outer code for positive and for
// negative weights, and returns sum(wc)/sum(cc) of the best. It is negative if
// positive weights take the outer code, -8. best also clears the bins.
func (s *search) best(sum uint64) float32 {
	var side [2]uint64
	best := uint64(0) // the quotient's bits, then side and bin
	for b := range firstOuter {
		sum += s.first[b] + s.second[b]
		s.first[b], s.second[b] = 0, 0
		s.seen[0][b] = sum
		best = max(best, quotient(sum)|uint64(b))
	}
	for b := firstOuter; b < bins; b++ {
		sum += s.first[b] + s.second[b]
		side[0] += s.outer[0][b]
		side[1] += s.outer[1][b]
		s.first[b], s.second[b], s.outer[0][b], s.outer[1][b] = 0, 0, 0, 0
		s.seen[0][b], s.seen[1][b] = sum+side[0], sum+side[1]
		best = max(best, quotient(sum+side[0])|uint64(b), quotient(sum+side[1])|uint64(b)|bins)
	}
	won := s.seen[best/bins&1][best%bins]
	scale := float32(uint32(won)) / float32(won>>32)
	if best&bins == 0 {
		return -scale
	}
	return scale
}

// quotient returns sum(wc)^2/sum(cc) as bits that compare like the numbers, with
// a zero low half. sum(cc) is never 0: the largest weight has a code of at least
// 6.
func quotient(sum uint64) uint64 {
	wc := float32(int64(uint32(sum))) // signed numbers convert faster
	return uint64(math.Float32bits(wc*wc/float32(int64(sum>>32)))) << 32
}

// scale8 maps the extreme to -128 and fits the scale to the codes.
func scale8(w []float32, largest float32) float32 {
	inv := 128 / largest
	for _, x := range w {
		if x == largest {
			inv = -inv
			break
		}
	}
	var wc, cc float32
	for _, x := range w {
		c := float32(min(nearest(x*inv), 127))
		wc += x * c
		cc += c * c
	}
	return wc / cc
}

// nearest rounds half to even. |x| must be below 2^22.
func nearest(x float32) int32 {
	const magic = 3 << 22 // at this size a float32 has no fraction bits
	return int32(math.Float32bits(x+magic)) - 0x4b400000
}

// codes4 maps the last six bits of a rounded number (-32 to 31) to its code plus
// 8, limited to -8 and 7. The search yields no larger numbers: at most high, or
// 1.5 times that for scales so small that float16 rounds them coarsely.
const codes4 = "\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f" +
	"\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07"

// pack4 writes the nearest codes, two to a byte. Missing weights count as zero.
// inv is the inverse of the scale, 0 for a scale of 0.
func pack4(q []byte, w []float32, inv float32) {
	for len(w) >= 2 && len(q) > 0 {
		q[0] = codes4[uint32(nearest(w[0]*inv))%64] | codes4[uint32(nearest(w[1]*inv))%64]<<4
		w, q = w[2:], q[1:]
	}
	if len(w) == 1 && len(q) > 0 {
		q[0] = codes4[uint32(nearest(w[0]*inv))%64] | 0x80
		q = q[1:]
	}
	for i := range q {
		q[i] = 0x88
	}
}

// pack8 writes the nearest codes.
func pack8(q []byte, w []float32, inv float32) {
	for i, x := range w {
		q[i] = byte(min(max(nearest(x*inv), -128), 127) + 128)
	}
	for i := len(w); i < len(q); i++ {
		q[i] = 128
	}
}
