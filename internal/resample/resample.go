// Package resample converts mono sound between sample rates by a polyphase windowed-sinc filter. NewFilter's response is flat up to 0.8
// of the lower Nyquist frequency, half at 0.92, with a stop band of about 80 dB.
package resample

import (
	"fmt"
	"math"
)

const (
	filterTaps = 64   // input samples for one output sample
	filterBeta = 8.0  // Kaiser window: about 80 dB of stop band
	filterCut  = 0.92 // of the lower Nyquist frequency, half way down the slope

	// maxPhases bounds the table of a filter with a row for each phase: every usual rate needs 640 or fewer.
	maxPhases = 1920
	// oddPhases is the table size for other rates. Phases between two rows are interpolated linearly, within (pi/oddPhases)^2/8 of the
	// filter, or -106 dB.
	oddPhases = 512

	minRate = 4000
	maxRate = 192000
)

// Filter is the table of one conversion; read-only, so it may be shared.
type Filter struct {
	up, down int // output and input steps: to/from in lowest terms
	taps     int
	rows     int       // up, or oddPhases
	coef     []float32 // rows of taps coefficients, and one more row for oddPhases
}

// NewFilter computes the table of a conversion, in a few milliseconds. All rates from
// 4000 to 192000 Hz are converted by their exact ratio; other rates are errors.
func NewFilter(from, to int) (*Filter, error) {
	return newFilter(from, to, func(t, scale, half float64) float64 {
		cut := filterCut * scale
		return sinc(cut*t) * kaiser(t/half, filterBeta)
	}, true)
}

// NewTorchFilter computes the table of torchaudio's default conversion: a shorter filter with a
// wider pass band and less attenuation in the stop band. It is for networks that were trained with
// it.
func NewTorchFilter(from, to int) (*Filter, error) {
	const cut, lobes = 0.99, 6
	return newFilter(from, to, func(t, scale, _ float64) float64 {
		t *= cut * scale
		if math.Abs(t) >= lobes {
			return 0
		}
		window := math.Cos(math.Pi / 2 * t / lobes)
		return cut * scale * sinc(t) * window * window
	}, false)
}

// newFilter fills the table with a response, given at times in input samples, for a pass band of
// scale and half taps on each side.
func newFilter(from, to int, response func(t, scale, half float64) float64, level bool) (*Filter, error) {
	for _, rate := range []int{from, to} {
		if rate < minRate || rate > maxRate {
			return nil, fmt.Errorf("sample rate %d Hz: must be between %d and %d Hz; convert the sound first", rate, minRate, maxRate)
		}
	}
	g := gcd(to, from)
	f := &Filter{up: to / g, down: from / g}
	if f.up == f.down {
		return f, nil
	}
	// In units of the input's sampling step. For a higher input rate the pass band
	// is narrower and the filter longer by the same factor.
	scale := min(1, float64(f.up)/float64(f.down))
	f.taps = filterTaps * int(math.Ceil(1/scale))
	half := float64(f.taps / 2)
	f.rows = f.up
	rows := f.up
	if f.up > maxPhases {
		f.rows, rows = oddPhases, oddPhases+1
	}
	f.coef = make([]float32, rows*f.taps)
	row := make([]float64, f.taps)
	for p := range rows {
		sum := 0.0
		for j := range row {
			t := float64(p)/float64(f.rows) - float64(j-f.taps/2+1)
			row[j] = response(t, scale, half)
			sum += row[j]
		}
		if !level {
			sum = 1
		} // or else every phase passes DC unchanged, which avoids a tone at the phase rate
		for j, v := range row {
			f.coef[p*f.taps+j] = float32(v / sum)
		}
	}
	return f, nil
}

// at returns the output at a phase, for the input from tap 0 on.
func (f *Filter) at(phase int, in []float32) float32 {
	if f.rows == f.up {
		return dot(f.coef[phase*f.taps:][:f.taps], in)
	}
	row, part := phase*f.rows/f.up, phase*f.rows%f.up
	below := dot(f.coef[row*f.taps:][:f.taps], in)
	above := dot(f.coef[(row+1)*f.taps:][:f.taps], in)
	return below + (above-below)*float32(part)/float32(f.up)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}

func kaiser(x, beta float64) float64 {
	if x < -1 || x > 1 {
		return 0
	}
	return bessel0(beta*math.Sqrt(1-x*x)) / bessel0(beta)
}

// bessel0 is the modified Bessel function of the first kind, order 0, by its power series.
func bessel0(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > 1e-12*sum; k++ {
		term *= (x / 2 / k) * (x / 2 / k)
		sum += term
	}
	return sum
}

// Sample is a sample of sound: 16 bits, or a float of any scale.
type Sample interface{ int16 | float32 }

// All converts a whole sound by NewFilter's filter. The number of samples is the input's times
// to/from, rounded up.
func All[S Sample](samples []S, from, to int) ([]S, error) {
	f, err := NewFilter(from, to)
	if err != nil {
		return nil, err
	}
	r := New[S](f)
	return r.Flush(r.Append(make([]S, 0, (len(samples)*f.up+f.down-1)/f.down), samples)), nil
}

// Resampler converts one stream of sound. Its output does not depend on how the input
// is cut into calls. Output sample k is at input time k*from/to, without delay; Flush
// returns the last few milliseconds. Not safe for concurrent use.
type Resampler[S Sample] struct {
	f     *Filter
	in    []float32 // input still needed; in[0] is tap 0 of the next output
	phase int       // of the next output
	flush int       // input samples so far, less those whose outputs are out (in units of 1/up input steps)
}

// New prepares the conversion of a stream.
func New[S Sample](f *Filter) *Resampler[S] {
	r := &Resampler[S]{f: f}
	r.reset()
	return r
}

func (r *Resampler[S]) reset() {
	r.phase, r.flush = 0, 0
	r.in = r.in[:0]
	if r.f.taps > 0 {
		r.in = append(r.in, make([]float32, r.f.taps/2-1)...)
	}
}

// Append converts src and appends the samples that are ready to dst.
func (r *Resampler[S]) Append(dst, src []S) []S {
	if r.f.taps == 0 {
		return append(dst, src...)
	}
	r.flush += len(src) * r.f.up
	for len(src) > 0 {
		// Pieces keep the history small.
		n := min(len(src), 4096)
		for _, s := range src[:n] {
			r.in = append(r.in, float32(s))
		}
		src = src[n:]
		dst = r.run(dst, -1)
	}
	return dst
}

// Flush appends the remaining samples, as if silence followed, and resets the Resampler.
func (r *Resampler[S]) Flush(dst []S) []S {
	defer r.reset()
	if r.f.taps == 0 || r.flush <= 0 {
		return dst
	}
	left := (r.flush + r.f.down - 1) / r.f.down
	for range r.f.taps/2 + r.f.down/r.f.up + 1 {
		r.in = append(r.in, 0)
	}
	return r.run(dst, left)
}

// run appends output samples while the input lasts, at most limit unless it is negative.
func (r *Resampler[S]) run(dst []S, limit int) []S {
	f := r.f
	pos := 0
	for limit != 0 && pos+f.taps <= len(r.in) {
		dst = append(dst, round[S](f.at(r.phase, r.in[pos:])))
		limit--
		r.flush -= f.down
		r.phase += f.down
		pos += r.phase / f.up
		r.phase %= f.up
	}
	r.in = r.in[:copy(r.in, r.in[pos:])] // inside, as taps >= 64 times down/up
	return dst
}

// dot multiplies c with the first len(c) samples of x; len(c) is a multiple of 4.
func dot(c, x []float32) float32 {
	x = x[:len(c)]
	var a, b, d, e float32
	for len(c) >= 4 && len(x) >= 4 {
		a += c[0] * x[0]
		b += c[1] * x[1]
		d += c[2] * x[2]
		e += c[3] * x[3]
		c, x = c[4:], x[4:]
	}
	return (a + b) + (d + e)
}

// round converts a result to a sample: the nearest one within 16 bits, or the float as it is.
func round[S Sample](v float32) S {
	if S(1)/2 != 0 {
		return S(v)
	}
	switch {
	case v >= math.MaxInt16:
		v = math.MaxInt16
	case v <= math.MinInt16:
		v = math.MinInt16
	case v < 0:
		v -= 0.5
	default:
		v += 0.5
	}
	return S(v)
}
