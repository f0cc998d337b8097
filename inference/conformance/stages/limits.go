package stages

import "math"

// Limit bounds the differences of a tensor from the recorded one: Exact is the largest in float32, without TF32 on CUDA; Half is of
// float16.
type Limit struct {
	Exact, Half float64
	Of          Share
}

// Share says what the bound of float16 is a share of.
type Share uint8

const (
	// OfNothing bounds the largest difference.
	OfNothing Share = iota
	// OfLargest bounds the largest difference as a share of the tensor's largest value. It grows with what the weights make of the tensor.
	OfLargest
	// OfRMS bounds the rms of the differences as a share of that of the values. Noise of the spectrum moves the phase of a sound, so its
	// largest difference says little; above click it is heard.
	OfRMS
)

// Shares of float16.
const (
	halfMu       = 1.6e-3
	halfMel      = 8.1e-4
	halfVelocity = 1.7e-3 // a step adds a part of it; measured on an H200: 1.2e-3 and 1.4e-3
	halfSpectrum = 2.3e-3
	halfWave     = 4e-3 // of a chunk; measured on an H200: 1.9e-3
	halfShort    = 6e-3 // of a few frames
	click        = 3e-2 // a difference
)

// limits are the agreed ones: of the condition, mu, the velocity of the spectrogram, the spectrogram, the pitch (Hz), the source, the
// spectrum, the sound, that of a few frames, and the sound of the spectrum that the same run had.
type limits struct{ condition, mu, velocity, mel, pitch, source, spectrum, wave, short, inverse Limit }

func agreed() limits {
	return limits{
		condition: Limit{1e-5, 2e-3, OfNothing}, mu: Limit{1e-5, halfMu, OfLargest},
		velocity: Limit{5e-5, halfVelocity, OfLargest}, mel: Limit{5e-5, halfMel, OfLargest},
		pitch: Limit{2e-4, 1e-3, OfNothing}, source: Limit{1e-4, 1e-4, OfNothing}, spectrum: Limit{3e-4, halfSpectrum, OfLargest},
		wave: Limit{3e-4, halfWave, OfRMS}, short: Limit{3e-4, halfShort, OfRMS}, inverse: Limit{3e-4, 3e-4, OfNothing},
	}
}

// Compare returns how far numbers are from as many recorded ones, and the bound of that. What is no number is infinitely far.
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
		if part == 0 { // of nothing, too
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
