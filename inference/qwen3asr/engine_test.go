//go:build integration

package qwen3asr_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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
	require.Less(t, s.Prompts, s.Files, "several prompts were fed at once")
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
			// Half a second at a time, as live speech comes: the step is the engine's.
			for s.Kind != "finish" && s.Samples-from > 8000 {
				_, err := u.Hear(t.Context(), sound[from:from+8000])
				require.NoError(t, err)
				from += 8000
			}
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
	// Each part of a long recording has its own words.
	parts := 0
	for part, err := range e.Transcribe(t.Context(), slices.Repeat(clip(t, "speech13"), 6), inference.Hearing{WordTimes: true}) {
		require.NoError(t, err)
		parts++
		var said strings.Builder
		for _, w := range part.Words {
			require.GreaterOrEqual(t, w.Start, part.Start)
			require.LessOrEqual(t, w.End, part.End)
			said.WriteString(w.Text)
		}
		require.NotEmpty(t, said.String())
		require.Equal(t, strings.Join(strings.Fields(part.Text), ""), strings.Join(strings.Fields(said.String()), ""))
	}
	require.Greater(t, parts, 1)
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

func TestCancel(t *testing.T) {
	orttest.NoLeaks(t)
	o := options(t)
	o.MaxTokens = 400
	e := open(t, o)
	sound := clip(t, "speech13")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range e.Transcribe(ctx, sound, inference.Hearing{}) {
		require.ErrorIs(t, err, context.Canceled)
	}
	u, err := e.Listen(t.Context(), inference.Hearing{})
	require.NoError(t, err)
	_, err = u.Hear(ctx, sound[:32000])
	require.ErrorIs(t, err, context.Canceled)
	got, err := u.Hear(t.Context(), sound[32000:64000])
	require.NoError(t, err, "the next call goes on")
	require.Equal(t, 4*time.Second, got.End)
	require.NotEmpty(t, got.Text)
	hearing := make(chan error)
	go func() {
		_, err := u.Finish(t.Context(), nil)
		hearing <- err
	}()
	require.NoError(t, u.Close())
	require.NoError(t, u.Close())
	if err := <-hearing; err != nil { // else it was quicker
		require.ErrorContains(t, err, "was closed")
	}
	_, err = u.Finish(t.Context(), nil)
	require.ErrorContains(t, err, "was closed")
	for _, err := range e.Transcribe(t.Context(), append(slices.Clone(sound), sound...), inference.Hearing{}) {
		require.NoError(t, err)
		break // leaves the rest
	}
	require.NoError(t, e.Close())
	require.Zero(t, e.Stats().Waiting)
}

func TestClose(t *testing.T) {
	orttest.NoLeaks(t)
	o := options(t)
	o.MaxTokens = 400
	e := open(t, o)
	require.Equal(t, inference.PhaseReady, e.Status().Phase)
	require.Contains(t, e.Status().Detail, "8 slots of 1024 positions")
	var wg sync.WaitGroup
	sound := clip(t, "speech13")
	for range 12 {
		wg.Go(func() {
			for _, err := range e.Transcribe(t.Context(), sound, inference.Hearing{}) {
				if err != nil {
					require.ErrorIs(t, err, qwen3asr.ErrClosed)
				}
			}
		})
	}
	require.NoError(t, e.Close())
	wg.Wait()
	require.NoError(t, e.Close())
	require.Equal(t, inference.PhaseUnloaded, e.Status().Phase)
	_, err := e.Align(t.Context(), sound, "word", "en")
	require.ErrorIs(t, err, inference.ErrNoWordTimes)
	for _, err := range e.Transcribe(t.Context(), sound, inference.Hearing{}) {
		require.ErrorIs(t, err, qwen3asr.ErrClosed)
	}
}

// TestLongUtterance: speech that goes on is cut where it is quiet, and its text only grows by parts.
func TestLongUtterance(t *testing.T) {
	orttest.NoLeaks(t)
	o := options(t)
	o.Part, o.Step, o.Aligner = 10*time.Second, 2*time.Second, bundle(t, "aligner")
	e := open(t, o)
	sound := clip(t, "speech35")
	u, err := e.Listen(t.Context(), inference.Hearing{WordTimes: true})
	require.NoError(t, err)
	defer u.Close()
	step := 2 * inference.RecognizerRate
	for from := 0; from+step <= len(sound); from += step {
		got, err := u.Hear(t.Context(), sound[from:from+step])
		require.NoError(t, err)
		require.Equal(t, time.Duration(from+step)*time.Second/inference.RecognizerRate, got.End)
	}
	got, err := u.Finish(t.Context(), sound[len(sound)/step*step:])
	require.NoError(t, err)
	var texts []string
	for part, err := range e.Transcribe(t.Context(), sound, inference.Hearing{WordTimes: true}) {
		require.NoError(t, err)
		texts = append(texts, part.Text)
		for _, w := range part.Words {
			require.LessOrEqual(t, part.Start, w.Start)
			require.LessOrEqual(t, w.End, part.End)
		}
	}
	require.Greater(t, len(texts), 3)
	// A recording's last parts are cut again, the end of an utterance is not.
	same := inference.JoinTranscripts(texts[:len(texts)-2]...)
	require.Equal(t, same, got.Text[:len(same)])
	require.NotEmpty(t, got.Words)
	require.True(t, slices.IsSortedFunc(got.Words, func(a, b inference.Word) int { return int(a.Start - b.Start) }))
}

func TestTemperature(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, options(t))
	seen := map[string]bool{}
	for range 4 {
		for part, err := range e.Transcribe(t.Context(), clip(t, "speech2"), inference.Hearing{Temperature: 2}) {
			require.NoError(t, err)
			seen[part.Text] = true
		}
	}
	require.Greater(t, len(seen), 1)
	_, err := e.Listen(t.Context(), inference.Hearing{Temperature: -1})
	require.ErrorContains(t, err, "temperature")
}

func TestOpenRefuses(t *testing.T) {
	orttest.NoLeaks(t)
	b, err := models.OpenBundle(bundle(t, "checkpoint"))
	require.NoError(t, err)
	aligner, err := models.OpenBundle(bundle(t, "aligner"))
	require.NoError(t, err)
	try := func(b *models.Bundle, change func(o *qwen3asr.Options)) error {
		o := options(t)
		change(&o)
		_, err := qwen3asr.Open(t.Context(), b, o)
		require.Error(t, err)
		return err
	}
	require.ErrorContains(t, try(aligner, func(*qwen3asr.Options) {}), "expected a model of speech recognition")
	require.ErrorContains(t, try(b, func(o *qwen3asr.Options) { o.Aligner = b.Dir }), "expected an aligner")
	require.ErrorContains(t, try(b, func(o *qwen3asr.Options) { o.Slots = 3 }), "slots: must be a power of two")
	require.ErrorContains(t, try(b, func(o *qwen3asr.Options) { o.Step = time.Millisecond }), "step: must be between 100ms and 10s")
	require.ErrorContains(t, try(b, func(o *qwen3asr.Options) { o.Part = 3 * time.Minute }), "max_len: parts of 3m0s")
	var no *qwen3asr.DoesNotFitError
	require.ErrorAs(t, try(b, func(o *qwen3asr.Options) { o.SetFree(1000) }), &no)
	require.ErrorContains(t, no, "the model needs")
	require.Contains(t, no.Plan.String(), "8 slots of 1024 positions")
	o := options(t)
	o.Slots = 0
	o.SetFree(1 << 40)
	require.Equal(t, 4, open(t, o).Stats().Slots)
	o.SetFree(no.Plan.Total() - 1)
	require.LessOrEqual(t, open(t, o).Stats().Slots, 4, "as many as fit")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = qwen3asr.Open(ctx, b, options(t))
	require.ErrorIs(t, err, context.Canceled)
}

// TestDisturbances: recordings are heard exactly beside speakers who stop, leave and come again at any moment.
func TestDisturbances(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, options(t))
	sound := clip(t, "speech13")
	var speakers, recordings sync.WaitGroup
	for i := range 4 {
		speakers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				u, err := e.Listen(ctx, inference.Hearing{})
				require.NoError(t, err)
				var leaves sync.WaitGroup
				steps, stops, moment := random.IntN(18), random.IntN(2) == 0, random.IntN(500)
				leave := func() {
					for range moment {
						runtime.Gosched()
					}
					if stops {
						cancel()
					}
					_ = u.Close()
				}
				for n := range 18 {
					if n == steps {
						leaves.Go(leave)
					}
					if _, err := u.Hear(ctx, sound[n*12000:][:12000]); err != nil {
						break
					}
				}
				_, _ = u.Finish(ctx, nil)
				leaves.Wait()
				cancel()
			}
		})
	}
	for _, c := range transcripts(t) {
		recordings.Go(func() { c.hear(t, e) })
	}
	recordings.Wait()
	speakers.Wait()
	require.NoError(t, e.Close())
	require.Zero(t, e.Held(), "all slots are free")
	s := e.Stats()
	require.Zero(t, s.Waiting)
	require.Zero(t, s.Failed)
	require.Positive(t, s.Partials)
}
