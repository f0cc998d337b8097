//go:build integration

package audioapi_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/vad"
	"touchline/internal/e2e/sounds"
)

// silero opens the network that finds speech, or skips.
func silero(t *testing.T) *vad.Model {
	t.Helper()
	g := vad.Open(ortRuntime)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	if g.Err() != nil {
		t.Skipf("needs Silero's network: %v", g.Err())
	}
	return g
}

// found counts the utterances in a sound.
func found(t *testing.T, g *vad.Model, sound []float32) (n int) {
	t.Helper()
	d, err := g.Detector()
	require.NoError(t, err)
	s := vad.NewStream(d, audioapi.Speech(), func(e vad.Event) {
		if e.Kind == vad.Began {
			n++
		}
	})
	require.NoError(t, s.Write(sound))
	require.NoError(t, s.Flush())
	require.NoError(t, d.Close())
	return n
}

// loud is the effective value of a sound.
func loud(sound []float32) float64 {
	sum := 0.0
	for _, v := range sound {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(max(1, len(sound))))
}

// beside is a sound in a background, from a second on, with a second after it, so many dB above it.
func beside(sound, background []float32, dB float64) []float32 {
	const second = inference.RecognizerRate
	out := make([]float32, len(sound)+2*second)
	copy(out, background)
	gain := float32(math.Pow(10, dB/20) * loud(out) / loud(sound))
	for i, v := range sound {
		out[second+i] += gain * v
	}
	return out
}

// burst is breath through a throat: noise, and a voice of a pitch, as loud as each is, around two formants.
func burst(r *rand.Rand, length time.Duration, pitch, voice, noise float64, formants [2]float64) []float32 {
	n := int(length * inference.RecognizerRate / time.Second)
	out := make([]float32, n)
	var state [2][2]float64
	for i := range out {
		at := float64(i) / inference.RecognizerRate
		x := noise*r.NormFloat64() + voice*(math.Mod(at*pitch, 1)-0.5)
		y := 0.0
		for k, f := range formants {
			const width = 120
			w, c := 2*math.Pi*f/inference.RecognizerRate, math.Exp(-math.Pi*width/inference.RecognizerRate)
			v := x*(1-c) + 2*c*math.Cos(w)*state[k][0] - c*c*state[k][1]
			state[k][1], state[k][0] = state[k][0], v
			y += v
		}
		out[i] = float32(y * math.Exp(-4*float64(i)/float64(n)))
	}
	return out
}

// cough is an explosion of breath with a short voiced end; laugh is "ha" some times.
func cough(r *rand.Rand) []float32 {
	f := [2]float64{600 + 300*r.Float64(), 1400 + 800*r.Float64()}
	out := burst(r, time.Duration(60+r.IntN(80))*time.Millisecond, 0, 0, 1, f)
	return append(out, burst(r, time.Duration(80+r.IntN(120))*time.Millisecond, 90+120*r.Float64(), 0.5, 0.5, f)...)
}

func laugh(r *rand.Rand) []float32 {
	f := [2]float64{650 + 200*r.Float64(), 1200 + 400*r.Float64()}
	pitch := 150 + 250*r.Float64()
	var out []float32
	for range 3 + r.IntN(5) {
		out = append(out, burst(r, 40*time.Millisecond, 0, 0, 0.4, f)...)
		out = append(out, burst(r, time.Duration(70+r.IntN(60))*time.Millisecond, pitch, 1, 0.15, f)...)
		out = append(out, make([]float32, inference.RecognizerRate*(60+r.IntN(60))/1000)...)
		pitch *= 0.95
	}
	return out
}

// speakers are the voices of the programs that most systems have.
func speakers() (out [][]string) {
	for _, name := range []string{"slt", "rms", "awb", "kal16", "kal"} {
		out = append(out, []string{"flite", "-voice", name})
	}
	for _, name := range []string{
		"en-gb", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-029", "en-us+f2", "en-gb+f3", "en-us+m3", "en-gb+m7", "en-us+f4", "en-gb+f1", "en-us+m1",
		"en-gb+m4", "en-us+m6", "en-gb+f5",
	} {
		out = append(out, []string{"espeak-ng", "-v", name})
	}
	return out
}

// burstCount is the number of coughs, and of laughs.
const burstCount = 280

// TestWhatOpensTheDetector measures Silero's network with the usual settings: how much speech it finds in noise, and what else passes.
func TestWhatOpensTheDetector(t *testing.T) {
	g := silero(t)
	noise := sounds.Crowd(t, 10*time.Minute)
	require.Zero(t, found(t, g, noise), "the crowd of ten minutes")
	at := 0
	background := func() []float32 {
		at = (at + 7*inference.RecognizerRate) % (len(noise) - 20*inference.RecognizerRate)
		return noise[at:]
	}
	// opened counts the sounds that open it, each a number of dB above the crowd.
	opened := func(sounds [][]float32, dB float64) (n int) {
		for _, sound := range sounds {
			n += min(1, found(t, g, beside(sound, background(), dB)))
		}
		return n
	}
	said := func(voices [][]string, texts ...string) (out [][]float32) {
		for _, voice := range voices {
			for _, text := range texts {
				out = append(out, sounds.Say(t, text, voice...))
			}
		}
		return out
	}
	sentences := said(speakers(), "A goal for the reds! One nil, in the last minute.", "The keeper pushes it away.", "Stop the commentary, please.",
		"What a match!", "Tell us who has the ball.", "Number nine runs down the left.", "Speak Dutch from now on.")
	words := said(speakers(), "No!", "Yes.", "Stop.", "Goal!", "Go.", "Hey!", "Quiet.")
	r := rand.New(rand.NewPCG(1, 2))
	var coughs, laughs [][]float32
	for range burstCount {
		coughs, laughs = append(coughs, cough(r)), append(laughs, laugh(r))
	}
	own := 0
	for _, sound := range sentences[:35] { // of flite
		quiet := make([]float32, len(sound)+inference.RecognizerRate)
		for i, v := range sound {
			quiet[i] = v * 0.25 // -12 dB
		}
		own += min(1, found(t, g, quiet))
	}
	whole, short, coughed, laughed := opened(sentences, 10), opened(words, 10), opened(coughs, 20), opened(laughs, 20)
	t.Logf("10 minutes of crowd: none; at 10 dB over it: %d of %d sentences, %d of %d single words; at 20 dB: %d of %d coughs, %d of %d laughs; "+
		"the own voice at -12 dB: %d of 35", whole, len(sentences), short, len(words), coughed, burstCount, laughed, burstCount, own)
	require.GreaterOrEqual(t, whole*100, len(sentences)*95)
	require.GreaterOrEqual(t, short*100, len(words)*95)
	require.Zero(t, coughed)
	require.Zero(t, laughed)
}
