package sphinx

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"

	"touchline/inference"
)

const (
	// window and hop are the samples of a spectrum and between two: 32 and 8 ms.
	window = 512
	hop    = 128
	bins   = window/2 + 1
	// edge is how many spectra at each end of a sound reach beyond it.
	edge = window / hop
	// quietShare is the share of a sound's spectra that have no speech in a bin.
	quietShare = 0.3
	// quietToMean is the ratio of the mean power of noise to the power of its quietest smoothed spectra.
	quietToMean = 1.15
	// follow is the weight of the previous spectrum in the ratio of speech to noise.
	follow = 0.95
	// leastRatio and mostRatio bound the ratio of speech to noise.
	leastRatio, mostRatio = 0.003, 1000
)

// leastGain is the gain of a bin without speech: -20 dB.
const leastGain = 0.1

// reduceNoise returns sound with less steady noise, by the log-spectral amplitude estimator of Ephraim and Malah (1985). The noise of
// each frequency is measured in the quietest parts of the sound.
func reduceNoise(sound []float32) []float32 {
	spectra := transform(sound)
	if len(spectra) <= 4*edge {
		return sound // too short for a measure of its noise
	}
	noise := noisePower(spectra)
	before := make([]float64, bins) // speech-to-noise ratio of the previous spectrum
	for _, s := range spectra {
		for k := range bins {
			ratio := min(power(s[k])/noise[k], mostRatio)
			speech := max(follow*before[k]+(1-follow)*max(ratio-1, 0), leastRatio)
			share := speech / (1 + speech)
			gain := min(share*math.Exp(expIntegral(share*ratio)/2), 1)
			before[k] = gain * gain * ratio
			gain = max(gain, leastGain)
			s[k] *= complex(gain, 0)
			if k > 0 && k < window/2 {
				s[window-k] *= complex(gain, 0)
			}
		}
	}
	return restore(spectra, len(sound))
}

func power(v complex128) float64 { return real(v)*real(v) + imag(v)*imag(v) + 1e-12 }

// sine is the window before the transform and after its inverse.
func sine(i int) float64 { return math.Sin(math.Pi * (float64(i) + 0.5) / window) }

// transform returns the spectra of a sound.
func transform(sound []float32) [][]complex128 {
	out := make([][]complex128, (len(sound)+window)/hop+1)
	for f := range out {
		s := make([]complex128, window)
		for i := range s {
			if at := (f+1)*hop - window + i; at >= 0 && at < len(sound) {
				s[i] = complex(float64(sound[at])*sine(i), 0)
			}
		}
		fourier(s, false)
		out[f] = s
	}
	return out
}

// restore returns the sound of spectra, which it changes.
func restore(spectra [][]complex128, n int) []float32 {
	out := make([]float32, n)
	for f, s := range spectra {
		fourier(s, true)
		for i, v := range s {
			if at := (f+1)*hop - window + i; at >= 0 && at < n {
				out[at] += float32(real(v) * sine(i) * 2 * hop / window)
			}
		}
	}
	return out
}

// noisePower returns the power of steady noise in each bin.
func noisePower(spectra [][]complex128) []float64 {
	smooth := make([][]float64, len(spectra)) // over three bins
	for f, s := range spectra {
		smooth[f] = make([]float64, bins)
		for k := range smooth[f] {
			from, to := max(0, k-1), min(bins-1, k+1)
			for i := from; i <= to; i++ {
				smooth[f][k] += power(s[i]) / float64(to-from+1)
			}
		}
	}
	out := make([]float64, bins)
	levels := make([]float64, 0, len(spectra))
	for k := range out {
		levels = levels[:0]
		for f := edge; f < len(spectra)-edge; f++ { // over nine spectra
			sum := 0.0
			for i := f - edge; i <= f+edge; i++ {
				sum += smooth[i][k]
			}
			levels = append(levels, sum/(2*edge+1))
		}
		slices.Sort(levels)
		out[k] = levels[int(quietShare*float64(len(levels)))] * quietToMean
	}
	return out
}

// expIntegral returns the integral of exp(-t)/t from x (Abramowitz and Stegun 5.1.53 and 5.1.56).
func expIntegral(x float64) float64 {
	x = max(x, 1e-6)
	if x < 1 {
		return -math.Log(x) - 0.57721566 + x*(0.99999193+x*(-0.24991055+x*(0.05519968+x*(-0.00976004+x*0.00107857))))
	}
	return math.Exp(-x) / x * (x*x + 2.334733*x + 0.250621) / (x*x + 3.330657*x + 1.681534)
}

// fourier transforms a in place; its length is a power of two.
func fourier(a []complex128, inverse bool) {
	n, sign := len(a), -1.0
	if inverse {
		sign = 1
	}
	for i, j := 1, 0; i < n; i++ {
		bit := n / 2
		for ; j&bit != 0; bit /= 2 {
			j ^= bit
		}
		if j ^= bit; i < j {
			a[i], a[j] = a[j], a[i]
		}
	}
	for size := 2; size <= n; size *= 2 {
		step := cmplx.Rect(1, sign*2*math.Pi/float64(size))
		for i := 0; i < n; i += size {
			w := complex(1, 0)
			for j := i; j < i+size/2; j++ {
				u, v := a[j], a[j+size/2]*w
				a[j], a[j+size/2] = u+v, u-v
				w *= step
			}
		}
	}
	if inverse {
		for i := range a {
			a[i] /= complex(float64(n), 0)
		}
	}
}

const (
	// floorBelow is the level of the noise that is added to all sound, relative to the level of its speech: -35 dB. The model
	// does not work on digital silence, and badly on voices without any noise.
	floorBelow = 0.0178
	// leastFloor is the least level of that noise.
	leastFloor = 3.0 / 32768
	// floorColour is the share of each sample of the added noise in the next: its level falls with the frequency, as in a room.
	floorColour = 0.9
	// around is the noise before and after a sound, in frames.
	around = 15
)

// speechLevel returns the level of the louder part of a sound.
func speechLevel(sound []float32) float64 {
	const loudest = 15 // of its parts: 0.3 s
	var levels []float64
	for part := range slices.Chunk(sound, inference.RecognizerRate/50) {
		sum := 0.0
		for _, v := range part {
			sum += float64(v) * float64(v)
		}
		levels = append(levels, sum/float64(len(part)))
	}
	slices.Sort(levels)
	levels = levels[max(0, len(levels)-loudest):]
	sum := 0.0
	for _, v := range levels {
		sum += v
	}
	return math.Sqrt(sum / float64(max(1, len(levels))))
}

// samples returns sound as 16-bit PCM for the model: its steady noise is replaced by a faint one.
func samples(sound []float32) []byte {
	sound = reduceNoise(sound)
	rng := rand.New(rand.NewPCG(1, 2))
	level := max(leastFloor, floorBelow*speechLevel(sound))
	const pad = around * inference.RecognizerRate / frameRate
	out := make([]byte, 0, 2*(len(sound)+2*pad))
	noise, fresh := 0.0, math.Sqrt(1-floorColour*floorColour)
	add := func(v float32) {
		noise = floorColour*noise + fresh*rng.NormFloat64()
		n := int16(min(max((float64(v)+level*noise)*math.MaxInt16, math.MinInt16), math.MaxInt16))
		out = append(out, byte(n), byte(n>>8))
	}
	for range pad {
		add(0)
	}
	for _, v := range sound {
		add(v)
	}
	for range pad {
		add(0)
	}
	return out
}
