//go:build gpu

package qwen3asr_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/qwen3asr"
	"touchline/models"
)

// gpu opens the bundle MODELS_DIR/qwen3-asr on the GPU, of real or random weights. Answers have as many ids as
// usual speech: those of random weights do not end by themselves.
func gpu(tb testing.TB) *qwen3asr.Engine {
	tb.Helper()
	dir, _ := os.LookupEnv("MODELS_DIR")
	b, err := models.OpenBundle(filepath.Join(dir, "qwen3-asr"))
	require.NoError(tb, err)
	e, err := qwen3asr.Open(tb.Context(), b, qwen3asr.Options{
		Runtime: orttest.Library(tb), MaxTokens: 90, StepTokens: 8, Aligner: os.Getenv("ALIGNER_DIR"),
	})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, e.Close()) })
	tb.Log(e.Plan())
	return e
}

func second(n int) int { return n * inference.RecognizerRate }

// BenchmarkTranscribe hears recordings of a minute, several at once.
func BenchmarkTranscribe(b *testing.B) {
	e := gpu(b)
	clip := clip(b, "speech35")
	sound := append(slices.Clone(clip), clip...)[:second(60)]
	for _, n := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("recordings=%d", n), func(b *testing.B) {
			for b.Loop() {
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() {
						for _, err := range e.Transcribe(b.Context(), sound, inference.Hearing{}) {
							require.NoError(b, err)
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(n*60)*float64(b.N)/b.Elapsed().Seconds(), "x-realtime")
		})
	}
}

// BenchmarkHear hears utterances of 20 s step by step, as fast as they answer.
func BenchmarkHear(b *testing.B) {
	e := gpu(b)
	sound := clip(b, "speech35")[:second(20)]
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("utterances=%d", n), func(b *testing.B) {
			var mu sync.Mutex
			var steps, finals []time.Duration
			for b.Loop() {
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() {
						u, err := e.Listen(b.Context(), inference.Hearing{})
						require.NoError(b, err)
						defer u.Close()
						for from := 0; from < len(sound); from += second(1) / 2 {
							begin := time.Now()
							_, err := u.Hear(b.Context(), sound[from:from+second(1)/2])
							require.NoError(b, err)
							mu.Lock()
							steps = append(steps, time.Since(begin))
							mu.Unlock()
						}
						begin := time.Now()
						_, err = u.Finish(b.Context(), nil)
						require.NoError(b, err)
						mu.Lock()
						finals = append(finals, time.Since(begin))
						mu.Unlock()
					})
				}
				wg.Wait()
			}
			slices.Sort(steps)
			slices.Sort(finals)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(steps[len(steps)/2]), "step-p50-ms")
			b.ReportMetric(ms(steps[len(steps)*95/100]), "step-p95-ms")
			b.ReportMetric(ms(finals[len(finals)/2]), "final-p50-ms")
			b.ReportMetric(float64(n*20)*float64(b.N)/b.Elapsed().Seconds(), "x-realtime")
		})
	}
}

// TestManyOnGPU: many at once hear what one alone hears, but for the rounding of other sizes of runs.
func TestManyOnGPU(t *testing.T) {
	e := gpu(t)
	sound := clip(t, "speech13")
	hear := func() (texts []string) {
		for part, err := range e.Transcribe(t.Context(), sound, inference.Hearing{Language: "en"}) {
			require.NoError(t, err)
			texts = append(texts, part.Text)
		}
		return texts
	}
	alone := hear()
	require.NotEmpty(t, alone[0])
	require.Equal(t, alone, hear())
	var wg sync.WaitGroup
	var mu sync.Mutex
	same := 0
	for range 64 {
		wg.Go(func() {
			got := hear()
			mu.Lock()
			defer mu.Unlock()
			if slices.Equal(alone, got) {
				same++
			}
		})
	}
	wg.Wait()
	t.Logf("%d of 64 are the same; %+v", same, e.Stats())
	if e.Recognizes().WordTimes {
		begin := time.Now()
		words, err := e.Align(t.Context(), sound, "one two three four", "en")
		require.NoError(t, err)
		require.Len(t, words, 4)
		t.Logf("first alignment after %v", time.Since(begin))
		begin = time.Now()
		_, err = e.Align(t.Context(), sound, "one two three four", "en")
		require.NoError(t, err)
		t.Logf("next alignment after %v", time.Since(begin))
	}
}
