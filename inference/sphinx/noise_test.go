package sphinx_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/sphinx"
)

// tones are bursts of a tone, a quarter of a second each, with as much silence between them.
func tones(seconds int) []float32 {
	out := make([]float32, seconds*inference.RecognizerRate)
	for i := range out {
		if i/4000%2 == 1 {
			out[i] = 0.3 * float32(math.Sin(2*math.Pi*700*float64(i)/inference.RecognizerRate))
		}
	}
	return out
}

func energy(a, b []float32) (sum float64) {
	for i := range a {
		d := float64(a[i])
		if b != nil {
			d -= float64(b[i])
		}
		sum += d * d
	}
	return sum
}

func TestReduceNoise(t *testing.T) {
	plain := tones(2)
	rng := rand.New(rand.NewPCG(1, 1))
	noisy := make([]float32, len(plain))
	for i := range noisy {
		noisy[i] = plain[i] + 0.05*float32(rng.NormFloat64())
	}
	before, after := energy(noisy, plain), energy(sphinx.ReduceNoise(noisy), plain)
	require.Less(t, after, before/10, "10 dB less noise")

	require.Less(t, energy(sphinx.ReduceNoise(plain), plain), energy(plain, nil)/1e5, "a sound without noise stays")
	require.Zero(t, energy(sphinx.ReduceNoise(make([]float32, 8000)), nil))
	for _, n := range []int{0, 1, 511, 513, 2000, 3000} {
		require.Len(t, sphinx.ReduceNoise(plain[:n]), n)
	}
}

// TestSamples: all sound has a faint noise, silence too, below that of speech.
func TestSamples(t *testing.T) {
	level := func(pcm []byte) float64 { // of the noise before the sound
		sum := 0.0
		const n = 2400
		for i := range n {
			v := float64(int16(uint16(pcm[2*i]) | uint16(pcm[2*i+1])<<8))
			sum += v * v
		}
		return math.Sqrt(sum / n)
	}
	silent := level(sphinx.Samples(make([]float32, 16000)))
	require.InDelta(t, 3, silent, 1)
	spoken := level(sphinx.Samples(tones(1)))
	require.InDelta(t, 0.3/math.Sqrt2*32767*0.0178, spoken, 40)
	require.NotPanics(t, func() { sphinx.Samples(nil) })
}
