//go:build integration

package qwen3asr_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/qwen3asr"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// bundles has the converted small checkpoints by name; the first test that needs one makes it.
var bundles struct {
	sync.Mutex

	dir string
}

func bundle(tb testing.TB, name string) string {
	tb.Helper()
	bundles.Lock()
	defer bundles.Unlock()
	if bundles.dir == "" {
		dir, err := os.MkdirTemp("", "qwen3asr") //nolint:usetesting // outlives the test
		require.NoError(tb, err)
		bundles.dir = dir
	}
	dir := filepath.Join(bundles.dir, name)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	src, err := checkpoint.Open(filepath.Join(tiny, name))
	require.NoError(tb, err)
	defer src.Close()
	require.NoError(tb, convert.Convert(tb.Context(), src, dir, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}))
	return dir
}

func options(tb testing.TB) qwen3asr.Options {
	tb.Helper()
	return qwen3asr.Options{Runtime: orttest.Library(tb), Device: "cpu", Threads: 1, Slots: 8, Part: time.Minute, ContextTokens: 64, MaxTokens: 40}
}

func open(tb testing.TB, o qwen3asr.Options) *qwen3asr.Engine {
	tb.Helper()
	b, err := models.OpenBundle(bundle(tb, "checkpoint"))
	require.NoError(tb, err)
	e, err := qwen3asr.Open(tb.Context(), b, o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, e.Close()) })
	return e
}

// transcript is a case of transcribe.json.
type transcript struct {
	Clip, Context  string
	LanguageIn     string `json:"language_in"`
	Text, Language string
	Padded         *string `json:"text_padded100"`
}

func transcripts(tb testing.TB) []transcript {
	tb.Helper()
	var all struct {
		Cases []transcript
		Most  int `json:"max_new_tokens"`
	}
	golden(tb, "transcribe", &all)
	require.Equal(tb, 40, all.Most)
	var cases []transcript
	for _, c := range all.Cases {
		if c.Clip == "click" || c.Clip == "vowel" {
			continue // of less than half a second, which this engine pads
		}
		if c.Padded != nil {
			c.Text = *c.Padded
		}
		cases = append(cases, c)
	}
	require.Len(tb, cases, 14)
	return cases
}

func (c transcript) hear(tb testing.TB, e inference.Recognizer) {
	tb.Helper()
	sound := clip(tb, c.Clip)
	var got []inference.Transcript
	for t, err := range e.Transcribe(tb.Context(), sound, inference.Hearing{Language: c.LanguageIn, Context: c.Context}) {
		require.NoError(tb, err)
		got = append(got, t)
	}
	require.Len(tb, got, 1)
	require.Equal(tb, c.Text, got[0].Text, "%s %q %s", c.Clip, c.Context, c.LanguageIn)
	want, err := qwen3asr.LanguageName(c.LanguageIn)
	require.NoError(tb, err)
	require.Equal(tb, qwen3asr.LanguageTag(want), got[0].Language)
	require.True(tb, got[0].Final)
	require.Equal(tb, time.Duration(len(sound))*time.Second/inference.RecognizerRate, got[0].End)
	require.Positive(tb, got[0].Audio)
	require.LessOrEqual(tb, got[0].Tokens, 40)
}

func TestTranscribe(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, options(t))
	for _, c := range transcripts(t) {
		c.hear(t, e)
	}
	require.EqualValues(t, 14, e.Stats().Files)
}

func TestTranscribeManyAtOnce(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, options(t))
	var wg sync.WaitGroup
	for range 3 {
		for _, c := range transcripts(t) {
			wg.Go(func() { c.hear(t, e) })
		}
	}
	wg.Wait()
	s := e.Stats()
	require.EqualValues(t, 42, s.Files)
	require.Less(t, s.Encodes, s.Windows, "windows of several recordings were encoded at once")
	require.Less(t, s.Steps, s.Tokens, "several answers were written at once")
	require.Zero(t, s.Waiting)
}

func TestTranscribeLong(t *testing.T) {
	orttest.NoLeaks(t)
	var want struct {
		Clip string
		Max  float64 `json:"max_chunk_sec"`
		Raw  []string
		Text string
	}
	golden(t, "long", &want)
	o := options(t)
	o.Part = time.Duration(want.Max * float64(time.Second))
	e := open(t, o)
	var texts []string
	end := time.Duration(0)
	for p, err := range e.Transcribe(t.Context(), clip(t, want.Clip), inference.Hearing{}) {
		require.NoError(t, err)
		require.Equal(t, end, p.Start)
		end = p.End
		texts = append(texts, p.Text)
	}
	require.Len(t, texts, len(want.Raw))
	require.Equal(t, want.Text, strings.Join(texts, ""), "the original joins them without spaces")
	require.Equal(t, 35*time.Second, end.Round(time.Second))
}

func TestUtterance(t *testing.T) {
	orttest.NoLeaks(t)
	var runs []run
	golden(t, "streaming", &runs)
	for _, r := range runs {
		if r.Short {
			continue // its first chunks are too short for this engine
		}
		o := options(t)
		o.Official, o.Step, o.FreeSteps, o.FreeTokens, o.StepTokens = true, time.Duration(r.Chunk*1e9), r.FreeChunks, r.FreeTokens, r.MaxTokens
		e := open(t, o)
		u, err := e.Listen(t.Context(), inference.Hearing{Context: r.Context, Language: r.Language})
		require.NoError(t, err)
		sound, from := clip(t, r.Clip), 0
		for i, s := range r.Steps {
			hear := u.Hear
			if s.Kind == "finish" {
				hear = u.Finish
			}
			got, err := hear(t.Context(), sound[from:s.Samples])
			require.NoError(t, err)
			require.Equal(t, strings.TrimSpace(s.Text), got.Text, "%s %d", r.Clip, i)
			require.Equal(t, s.Kind == "finish", got.Final)
			require.Equal(t, qwen3asr.LanguageTag(s.Language), got.Language)
			from = s.Samples
		}
		require.NoError(t, u.Close())
		require.NoError(t, e.Close())
	}
}

func TestUtteranceFinal(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, options(t))
	sound := clip(t, "speech13")
	u, err := e.Listen(t.Context(), inference.Hearing{})
	require.NoError(t, err)
	for from := 0; from < len(sound)-5000; from += 5000 {
		got, err := u.Hear(t.Context(), sound[from:from+5000])
		require.NoError(t, err)
		require.False(t, got.Final)
	}
	rest := len(sound) % 5000
	got, err := u.Finish(t.Context(), sound[len(sound)-rest:])
	require.NoError(t, err)
	for whole, err := range e.Transcribe(t.Context(), sound, inference.Hearing{}) {
		require.NoError(t, err)
		require.Equal(t, whole.Text, got.Text, "a final hears all sound anew")
	}
	require.NoError(t, u.Close())
	_, err = u.Hear(t.Context(), sound)
	require.Error(t, err)
	again, err := e.Listen(t.Context(), inference.Hearing{})
	require.NoError(t, err)
	empty, err := again.Finish(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, empty.Final)
	require.Empty(t, empty.Text)
	require.NoError(t, again.Close())
}

func TestAlign(t *testing.T) {
	orttest.NoLeaks(t)
	o := options(t)
	o.Aligner = bundle(t, "aligner")
	e := open(t, o)
	require.True(t, e.Recognizes().WordTimes)
	var cases []struct {
		Clip, Language, Text string
		Items                []struct {
			Text  string
			Start float64 `json:"start_time"`
			End   float64 `json:"end_time"`
		}
	}
	golden(t, "align/align", &cases)
	for _, c := range cases {
		sound := clip(t, c.Clip)
		end := float64(len(sound)) / inference.RecognizerRate
		words, err := e.Align(t.Context(), sound, c.Text, c.Language)
		require.NoError(t, err)
		require.Len(t, words, len(c.Items))
		for i, w := range words {
			require.Contains(t, w.Text, c.Items[i].Text[:1])
			require.InDelta(t, min(c.Items[i].Start, end), w.Start.Seconds(), 1e-4, "%s %d", c.Clip, i)
			require.InDelta(t, min(c.Items[i].End, end), w.End.Seconds(), 1e-4)
		}
	}
	words, err := e.Align(t.Context(), clip(t, "speech2"), " … ", "en")
	require.NoError(t, err)
	require.Empty(t, words)
	_, err = e.Align(t.Context(), make([]float32, 181*inference.RecognizerRate), "long", "en")
	require.ErrorContains(t, err, "align it in parts")
	for part, err := range e.Transcribe(t.Context(), clip(t, "speech13"), inference.Hearing{WordTimes: true}) {
		require.NoError(t, err)
		require.NotEmpty(t, part.Words)
	}
}

func TestNoAligner(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, options(t))
	_, err := e.Align(t.Context(), clip(t, "speech2"), "words", "en")
	require.ErrorIs(t, err, inference.ErrNoWordTimes)
	_, err = e.Listen(t.Context(), inference.Hearing{WordTimes: true})
	require.ErrorIs(t, err, inference.ErrNoWordTimes)
	_, err = e.Listen(t.Context(), inference.Hearing{Language: "tlh"})
	require.ErrorContains(t, err, "this model hears")
}
