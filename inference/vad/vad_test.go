package vad_test

import (
	"compress/gzip"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/conformance/stages"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/vad"
	"touchline/internal/wav"
)

// unzip returns the content of a file.
func unzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}

// clip returns a recording of the recognizer's tests.
func clip(t *testing.T, name string) []float32 {
	t.Helper()
	sound, rate, err := wav.Parse(unzip(t, "../../models/testdata/qwen3-asr/audio/"+name+".wav.gz"))
	require.NoError(t, err)
	require.Equal(t, inference.RecognizerRate, rate)
	return sound
}

// network opens the Silero network, or skips.
func network(t *testing.T) *vad.Model {
	t.Helper()
	orttest.NoLeaks(t)
	library := orttest.Library(t)
	if _, err := os.Stat(filepath.Join(filepath.Dir(library), vad.FileName)); err != nil {
		t.Skipf("needs %s, which `make runtime` fetches", vad.FileName)
	}
	g := vad.Open(library)
	require.NoError(t, g.Err())
	require.Equal(t, "silero", g.String())
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// TestSilero compares the probabilities with those of the network's own package, of several streams in turn.
func TestSilero(t *testing.T) {
	g := network(t)
	checked := 0
	sound := func(name string) ([]float32, error) { return clip(t, name), nil }
	require.NoError(t, stages.Speech(g, unzip(t, "testdata/silero.json.gz"), sound, func(got, want float64, name string, frame int) {
		require.InDelta(t, want, got, 1e-5, "%s %d", name, frame)
		checked++
	}))
	require.Greater(t, checked, 500)
	d, err := g.Detector()
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	_, err = d.Detect(make([]float32, 7200))
	require.ErrorContains(t, err, "a frame has 512 samples, not 7200", "an error, never speech")
}

// TestNoNetwork: without its file the model works by loudness, and says so.
func TestNoNetwork(t *testing.T) {
	orttest.NoLeaks(t)
	g := vad.Open(t.TempDir())
	require.Error(t, g.Err())
	require.Equal(t, "loudness", g.String())
	require.NoError(t, g.Close())
	d, err := g.Detector()
	require.NoError(t, err)
	sound := make([]float32, 4*16000)
	for i := range sound {
		sound[i] = 0.001 * float32(math.Sin(float64(i)))
		if i >= 2*16000 && i < 3*16000 {
			sound[i] *= 200
		}
	}
	frames := slices.Collect(slices.Chunk(sound, vad.FrameSamples))
	for i, frame := range frames {
		p, err := d.Detect(frame)
		require.NoError(t, err)
		if at := i * vad.FrameSamples; at > 2*16000 && at < 3*16000-vad.FrameSamples {
			require.Greater(t, p, 0.5, "%d", i)
		} else if at < 2*16000-vad.FrameSamples || at > 3*16000 {
			require.Less(t, p, 0.35, "%d", i)
		}
	}
	p, err := d.Detect(slices.Repeat([]float32{float32(math.NaN())}, vad.FrameSamples))
	require.NoError(t, err)
	require.Less(t, p, 0.5)
}

// script detects speech where it was written.
type script struct {
	speech map[int]float64 // by frame
	n      int
}

func (s *script) Detect([]float32) (float64, error) { s.n++; return s.speech[s.n-1], nil }
func (s *script) Close() error                      { return nil }

// spoken is speech in frames from and up to others.
func spoken(spans ...[2]int) *script {
	s := &script{speech: map[int]float64{}}
	for _, span := range spans {
		for i := span[0]; i < span[1]; i++ {
			s.speech[i] = 0.9
		}
	}
	return s
}

// utterance is what a stream said of one utterance.
type utterance struct {
	begin, speech, end, last int64
	sound                    []float32
	cut, open                bool
}

// collector checks the order of events and keeps the utterances.
type collector struct {
	tb  testing.TB
	all []utterance
}

func (c *collector) event(e vad.Event) {
	switch n := len(c.all) - 1; e.Kind {
	case vad.Began:
		if n >= 0 {
			require.False(c.tb, c.all[n].open)
			require.GreaterOrEqual(c.tb, e.At, c.all[n].end)
		}
		require.GreaterOrEqual(c.tb, e.Speech, e.At)
		c.all = append(c.all, utterance{begin: e.At, speech: e.Speech, open: true})
	case vad.Heard:
		require.True(c.tb, c.all[n].open)
		require.Equal(c.tb, c.all[n].begin+int64(len(c.all[n].sound)), e.At)
		c.all[n].sound = append(c.all[n].sound, e.Sound...)
	case vad.Ended:
		u := &c.all[n]
		require.True(c.tb, u.open)
		require.Greater(c.tb, e.At, u.begin)
		require.LessOrEqual(c.tb, e.Speech, e.At)
		require.LessOrEqual(c.tb, e.At-u.begin, int64(len(u.sound)))
		if !e.Cut {
			require.Equal(c.tb, u.begin+int64(len(u.sound)), e.At)
		}
		u.sound = u.sound[:e.At-u.begin]
		u.end, u.last, u.cut, u.open = e.At, e.Speech, e.Cut, false
	}
}

// ramp is sound whose samples tell where they are.
func ramp(n int) []float32 {
	sound := make([]float32, n)
	for i := range sound {
		sound[i] = float32(i) / (1 << 24)
	}
	return sound
}

// run writes sound in pieces, and flushes.
func run(t *testing.T, d vad.Detector, cfg vad.Config, sound []float32, piece int) []utterance {
	t.Helper()
	c := &collector{tb: t}
	s := vad.NewStream(d, cfg, c.event)
	for p := range slices.Chunk(sound, piece) {
		require.NoError(t, s.Write(p))
	}
	require.Equal(t, int64(len(sound)), s.Now())
	require.NoError(t, s.Flush())
	for _, u := range c.all {
		require.Equal(t, sound[u.begin:u.end], u.sound)
	}
	return c.all
}

const f = vad.FrameSamples

func TestStream(t *testing.T) {
	tests := []struct {
		name   string
		d      *script
		cfg    vad.Config
		frames int
		want   []utterance
	}{
		{"silence", spoken(), vad.Config{}, 100, nil},
		{
			"one utterance: 300 ms before, 500 ms after", spoken([2]int{20, 30}),
			vad.Config{},
			100,
			[]utterance{{begin: 20*f - 4800, speech: 20 * f, end: 46 * f, last: 30 * f}},
		},
		{
			"at the begin, and not ended", spoken([2]int{0, 30}),
			vad.Config{},
			40,
			[]utterance{{begin: 0, end: 40 * f, last: 30 * f}},
		},
		{
			"a short pause does not end it", spoken([2]int{20, 30}, [2]int{44, 50}),
			vad.Config{},
			100,
			[]utterance{{begin: 20*f - 4800, speech: 20 * f, end: 66 * f, last: 50 * f}},
		},
		{
			"two utterances share no sample", spoken([2]int{10, 20}, [2]int{37, 40}),
			vad.Config{},
			100,
			[]utterance{{begin: 10*f - 4800, speech: 10 * f, end: 36 * f, last: 20 * f}, {begin: 36 * f, speech: 37 * f, end: 56 * f, last: 40 * f}},
		},
		{
			"a cough is no utterance", spoken([2]int{20, 26}, [2]int{40, 50}),
			vad.Config{Least: 250 * time.Millisecond},
			100,
			[]utterance{{begin: 40*f - 4800, speech: 40 * f, end: 66 * f, last: 50 * f}},
		},
		{
			"speech with short breaks is one", spoken([2]int{20, 23}, [2]int{25, 30}),
			vad.Config{Least: 250 * time.Millisecond},
			100,
			[]utterance{{begin: 20*f - 4800, speech: 20 * f, end: 46 * f, last: 30 * f}},
		},
		{
			"a cough at the end", spoken([2]int{97, 100}),
			vad.Config{Least: 250 * time.Millisecond},
			100, nil,
		},
		{
			"other settings", spoken([2]int{10, 20}),
			vad.Config{Threshold: 0.85, Pause: 64 * time.Millisecond, Before: -1},
			100,
			[]utterance{{begin: 10 * f, speech: 10 * f, end: 22 * f, last: 20 * f}},
		},
		{
			"steady speech", spoken([2]int{20, 30}),
			vad.Config{Steady: vad.SteadySpeech},
			100,
			[]utterance{{begin: 20*f - 4800, speech: 20 * f, end: 46 * f, last: 30 * f}},
		},
		{
			"syllables of a laugh", spoken([2]int{20, 24}, [2]int{26, 31}, [2]int{33, 39}),
			vad.Config{Steady: vad.SteadySpeech},
			100, nil,
		},
		{
			"a short word before steady speech belongs to it", spoken([2]int{20, 23}, [2]int{33, 40}),
			vad.Config{Steady: vad.SteadySpeech},
			100,
			[]utterance{{begin: 20*f - 4800, speech: 20 * f, end: 56 * f, last: 40 * f}},
		},
		{
			"a short word long before does not", spoken([2]int{20, 23}, [2]int{43, 50}),
			vad.Config{Steady: vad.SteadySpeech},
			100,
			[]utterance{{begin: 43*f - 4800, speech: 43 * f, end: 66 * f, last: 50 * f}},
		},
		{"under the threshold", spoken([2]int{10, 20}), vad.Config{Threshold: 0.95}, 100, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, &script{speech: tt.d.speech}, tt.cfg, ramp(tt.frames*f), 1000)
			for i := range got {
				got[i].sound = nil
			}
			require.Equal(t, tt.want, got)
		})
	}
}

// TestSteady: speech is steady where its loudness has no dip, though it may rise and fall.
func TestSteady(t *testing.T) {
	for _, tt := range []struct {
		name   string
		levels []float64 // of each half of a frame, in dB
		want   int
	}{
		{"even", []float64{0}, 1},
		{"small dips", []float64{0, 0, 0, -3, -3, 0}, 1},
		{"dips of a laugh", []float64{0, 0, 0, 0, 0, -5, -12, -12, 0}, 0},
		{"one deep dip each 200 ms", []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -6}, 0},
		{"one deep dip each 300 ms", []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -6}, 1},
		{"falls and falls", []float64{0, -3, -6, -9, -12, -15, -18, -21, -24, -27, -30, -33, -36, -39, -42}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sound := ramp(100 * f)
			for i := range sound {
				at := max(0, i-20*f) / (f / 2)
				sound[i] = float32(math.Pow(10, tt.levels[at%len(tt.levels)]/20) * 0.3)
			}
			require.Len(t, run(t, spoken([2]int{20, 60}), vad.Config{Steady: vad.SteadySpeech}, sound, 1000), tt.want)
		})
	}
}

// TestLongLaugh: what is no utterance is not kept.
func TestLongLaugh(t *testing.T) {
	d := &script{speech: map[int]float64{}}
	for i := range 3000 {
		d.speech[i] = 0.6
	}
	c := &collector{tb: t}
	s := vad.NewStream(d, vad.Config{Steady: vad.SteadySpeech, Most: 2 * time.Second}, c.event)
	require.NoError(t, s.Write(ramp(3000*f)))
	require.Empty(t, c.all)
	require.Equal(t, int64(3000*f), s.Now())
	for i := range 20 {
		d.speech[3000+i] = 0.9
	}
	require.NoError(t, s.Write(ramp(20*f)))
	require.NotEmpty(t, c.all)
	require.GreaterOrEqual(t, c.all[0].begin, int64(3000*f-3*16000))
}

// TestHysteresis: an utterance goes on between the thresholds, and does not begin there.
func TestHysteresis(t *testing.T) {
	d := spoken([2]int{10, 12})
	for i := 12; i < 60; i++ {
		d.speech[i] = 0.4
	}
	got := run(t, d, vad.Config{}, ramp(200*f), f)
	require.Len(t, got, 1)
	require.Equal(t, int64(76*f), got[0].end)
}

// TestCut: an utterance without a pause is cut in the quietest 100 ms of its last 5 s, and no sample is lost.
func TestCut(t *testing.T) {
	sound := make([]float32, 70*16000)
	for i := range sound {
		sound[i] = 0.25
		if at := i % (28 * 16000); at > 27*16000 && at < 27*16000+3200 {
			sound[i] = 0.01
		}
	}
	got := run(t, nil, vad.Config{}, sound, 777)
	require.Len(t, got, 3)
	require.Equal(t, int64(0), got[0].begin)
	for i, u := range got {
		require.LessOrEqual(t, len(u.sound), 30*16000)
		require.Equal(t, i < 2, u.cut)
		if i > 0 {
			require.Equal(t, got[i-1].end, u.begin)
			require.Less(t, sound[u.begin], float32(0.02), "where it is quiet")
		}
	}
	require.Equal(t, int64(len(sound)), got[2].end)
}

func TestFlushAndClear(t *testing.T) {
	c := &collector{tb: t}
	s := vad.NewStream(nil, vad.Config{}, c.event)
	require.NoError(t, s.Flush(), "nothing to end")
	require.NoError(t, s.Write(make([]float32, 100)))
	require.Equal(t, int64(100), s.Now())
	require.False(t, s.Clear())
	require.NoError(t, s.Write(make([]float32, 700)))
	require.NoError(t, s.Flush())
	require.Len(t, c.all, 1)
	require.Equal(t, int64(100), c.all[0].begin)
	require.Equal(t, int64(800), c.all[0].end)
	require.NoError(t, s.Write(make([]float32, 600)))
	require.True(t, s.Clear())
	require.Equal(t, int64(1400), s.Now())
}

// TestRealSpeech: synthetic speech has the utterances that the network's own package finds, within its padding.
func TestRealSpeech(t *testing.T) {
	d, err := network(t).Detector()
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	got := run(t, d, vad.Config{}, clip(t, "speech13"), 4096)
	require.NotEmpty(t, got)
	require.Contains(t, []int64{7 * f, 8 * f}, got[0].speech, "its package says 3,616, with 480 samples before")
}

func FuzzStream(fz *testing.F) {
	fz.Add(uint64(1), uint16(40), uint16(500), uint16(300), uint16(0), uint16(2000))
	fz.Add(uint64(7), uint16(900), uint16(0), uint16(9), uint16(1), uint16(33))
	fz.Fuzz(func(t *testing.T, seed uint64, frames, pause, before, piece, most uint16) {
		random := rand.New(rand.NewPCG(seed, 1))
		probs := map[int]float64{}
		p := 0.0
		for i := range int(frames%1000) + 2 {
			if random.IntN(9) == 0 {
				p = random.Float64()
			}
			probs[i] = p
		}
		sound := make([]float32, int(frames%1000)*f+random.IntN(f))
		for i := range sound {
			sound[i] = float32(random.NormFloat64() * 0.1)
		}
		cfg := vad.Config{
			Pause: time.Duration(pause%2000) * time.Millisecond, Before: time.Duration(before%1000) * time.Millisecond,
			Most: time.Duration(most%30000) * time.Millisecond,
		}
		whole := run(t, &script{speech: probs}, cfg, sound, max(1, len(sound)))
		require.Equal(t, whole, run(t, &script{speech: probs}, cfg, sound, int(piece%3000)+1), "pieces do not matter")
	})
}
