package stages

import "math"

// Limit bounds the differences from a recorded tensor: Exact bounds float32, without TF32 on CUDA; Half bounds float16.
type Limit struct {
	Exact, Half float64
	Of          Share
}

// Share selects the value that a float16 bound is relative to.
type Share uint8

const (
	// OfNothing bounds the largest absolute difference.
	OfNothing Share = iota
	// OfLargest bounds the largest difference as a share of the tensor's largest value, which depends on the weights.
	OfLargest
	// OfRMS bounds the rms of the differences as a share of the rms of the values. Noise of the spectrum moves the phase of a sound, so
	// its largest difference says little; a difference above click is audible.
	OfRMS
)

// Shares for float16.
const (
	halfMu       = 1.6e-3
	halfMel      = 8.1e-4
	halfVelocity = 1.7e-3 // each step adds to it; measured on an H200: 1.2e-3 and 1.4e-3
	halfSpectrum = 2.3e-3
	halfWave     = 4e-3 // for a chunk; measured on an H200: 1.9e-3
	halfShort    = 6e-3 // for a few frames
	click        = 3e-2 // a difference
)

// limits are the limits by stage: the pitch is in Hz, short is for the sound of a few frames, and inverse for the sound of the same run's
// own spectrum.
type limits struct{ condition, mu, velocity, mel, pitch, source, spectrum, wave, short, inverse Limit }

func agreed() limits {
	return limits{
		condition: Limit{1e-5, 2e-3, OfNothing}, mu: Limit{1e-5, halfMu, OfLargest},
		velocity: Limit{5e-5, halfVelocity, OfLargest}, mel: Limit{5e-5, halfMel, OfLargest},
		pitch: Limit{2e-4, 1e-3, OfNothing}, source: Limit{1e-4, 1e-4, OfNothing}, spectrum: Limit{3e-4, halfSpectrum, OfLargest},
		wave: Limit{3e-4, halfWave, OfRMS}, short: Limit{3e-4, halfShort, OfRMS}, inverse: Limit{3e-4, 3e-4, OfNothing},
	}
}

// Compare returns the difference of numbers from the recorded ones, and its bound. NaN counts as infinite.
func (l Limit) Compare(want, got []float32, exact bool) (off, bound float64) {
	var most, largest, errors, values float64
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		most, largest = max(most, d), max(largest, math.Abs(float64(w)))
		errors += d * d
		values += float64(w) * float64(w)
	}
	share := func(part, whole float64) float64 {
		if part == 0 { // also 0/0
			return 0
		}
		return part / whole
	}
	switch {
	case exact:
		return most, l.Exact
	case l.Of == OfLargest:
		return share(most, largest), l.Half
	case l.Of == OfRMS:
		if rms := math.Sqrt(share(errors, values)); !(rms/l.Half < most/click) {
			return rms, l.Half
		}
		return most, click
	}
	return most, l.Half
}
