package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/qwen3asr"
	"touchline/internal/quantile"
	"touchline/models"
)

// The work of the rows of speech recognition. Answers of random weights do not end by themselves, so they have as many tokens as speech
// usually has.
const (
	clipSeconds, clipTokens = 30, 100
	firstSeconds            = 10
	liveSeconds, liveTokens = 8, 8
	liveStep                = inference.RecognizerRate / 2
	manySpeakers            = 64
)

// noise is sound as loud and soft as syllables are, the same in every run.
func noise(seconds int) []float32 {
	const syllable = inference.RecognizerRate / 5
	s, random := make([]float32, seconds*inference.RecognizerRate), uint32(1)
	for i := range s {
		random = random*1664525 + 1013904223
		level := float32(i%syllable) / syllable
		s[i] = (float32(random>>8)/(1<<23) - 1) * level * .3
	}
	return s
}

// ears measures a bundle of speech recognition.
func (b *bench) ears(ctx context.Context, bundle *models.Bundle) error {
	if err := b.earStages(ctx, bundle); err != nil {
		return err
	}
	large := bundle.Manifest.Dims.Decoder.Hidden > 1024
	goal := func(small, big float64) float64 {
		if large {
			return big
		}
		return small
	}
	seconds := max(min(liveSeconds, int(b.Duration.Seconds())), 1)
	err := b.hear(bundle, 1, func(e *qwen3asr.Engine) error {
		for _, n := range []int{1, manySpeakers} {
			took, _, err := b.clips(ctx, e, n, noise(firstSeconds))
			if err != nil {
				return err
			}
			what := fmt.Sprintf("first token of a clip of %d s, %d at once, p95", firstSeconds, n)
			b.add(what, "ms", fmt.Sprintf("first_10s_%d", n), []float64{quantile.Of(took, .95)}, ofN(n, 20, 200), true)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.hear(bundle, clipTokens, func(e *qwen3asr.Engine) error {
		for _, n := range []int{1, manySpeakers} {
			_, speeds, err := b.clips(ctx, e, n, noise(clipSeconds))
			if err != nil {
				return err
			}
			what := fmt.Sprintf("clip of %d s with %d tokens, %d at once", clipSeconds, clipTokens, n)
			b.add(what, "x real time", fmt.Sprintf("clip_30s_%d", n), speeds, ofN(n, goal(165, 110), goal(2000, 1350)), false)
		}
		for _, n := range []int{1, manySpeakers} {
			took, err := live(ctx, e, n, seconds)
			if err != nil {
				return err
			}
			what := fmt.Sprintf("live text each 0.5 s of %d s, %d speakers", seconds, n)
			b.add(what, "ms", "", took, 0, true)
			b.add(what+", p95", "ms", fmt.Sprintf("live_8s_%d", n), []float64{quantile.Of(took, .95)}, ofN(n, 40, 150), true)
		}
		if b.Aligner == "" {
			return nil
		}
		var speeds []float64
		sound := noise(60)
		for i := range b.Runs + 1 { // the first one loads the aligner
			begin := time.Now()
			if _, err := e.Align(ctx, sound, "one two three four five six seven eight nine ten", "en"); err != nil {
				return err
			}
			if i > 0 {
				speeds = append(speeds, 60/time.Since(begin).Seconds())
			}
		}
		b.add("alignment of 60 s", "x real time", "align_60s", speeds, 1000, false)
		return nil
	})
}

// hear opens an engine whose answers have so many tokens.
func (b *bench) hear(bundle *models.Bundle, tokens int, work func(e *qwen3asr.Engine) error) error {
	o := b.earOptions()
	o.MaxTokens, o.StepTokens = tokens, liveTokens
	e, err := qwen3asr.Open(context.Background(), bundle, o)
	if err != nil {
		return err
	}
	b.found.Detail, b.found.Planned = e.Status().Detail, e.Plan().Total()
	return errors.Join(work(e), e.Close())
}

func (b *bench) earOptions() qwen3asr.Options {
	return qwen3asr.Options{Device: b.Device, Runtime: b.Library, Aligner: b.Aligner}
}

// earStages measures the runs of the device alone.
func (b *bench) earStages(ctx context.Context, bundle *models.Bundle) error {
	s, err := qwen3asr.TimeStages(ctx, bundle, b.earOptions(), b.Runs, []int{1, 2, 4, 8, 16, 32, 64}, time.Now)
	if err != nil {
		return err
	}
	b.found.Device = s.Device
	for n := 1; n <= manySpeakers; n *= 2 {
		b.add(fmt.Sprintf("encoder, %d windows of 8 s", n), "ms", "", milliseconds(s.Encode[n]), 0, true)
	}
	for n := 1; n <= manySpeakers; n *= 2 {
		b.add(fmt.Sprintf("prompts of %d positions, %d at once", s.Positions, n), "ms", "", milliseconds(s.Prefill[n]), 0, true)
	}
	for n := 1; n <= manySpeakers; n *= 2 {
		b.add(fmt.Sprintf("decode step of %d answers", n), "ms", "", milliseconds(s.Decode[n]), 0, true)
	}
	return nil
}

// clips transcribes n clips at once, several times: how long each took, in ms, and the speed of all together.
func (b *bench) clips(ctx context.Context, e *qwen3asr.Engine, n int, sound []float32) (took, speeds []float64, err error) {
	seconds := float64(len(sound)*n) / inference.RecognizerRate
	for i := range max(b.Runs/3, 1) + 1 {
		all := make([]float64, n)
		failed := make([]error, n)
		begin := time.Now()
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() {
				for _, err := range e.Transcribe(ctx, sound, inference.Hearing{}) {
					failed[k] = errors.Join(failed[k], err)
				}
				all[k] = milli(time.Since(begin))
			})
		}
		wg.Wait()
		if err := errors.Join(failed...); err != nil {
			return nil, nil, err
		}
		if i > 0 { // the first time warms up
			took, speeds = append(took, all...), append(speeds, seconds/time.Since(begin).Seconds())
		}
	}
	return took, speeds, nil
}

// live hears n utterances in real time, whose steps are spread evenly: how long after each step its text came, in ms.
func live(ctx context.Context, e *qwen3asr.Engine, n, seconds int) (took []float64, err error) {
	const every = 500 * time.Millisecond
	sound := noise(seconds)
	begin := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range n {
		wg.Go(func() {
			u, failed := e.Listen(ctx, inference.Hearing{})
			for i := 0; failed == nil && i < len(sound); i += liveStep {
				due := begin.Add(every*time.Duration(k)/time.Duration(n) + every*time.Duration(i/liveStep+1))
				<-time.After(time.Until(due))
				if _, failed = u.Hear(ctx, sound[i:i+liveStep]); failed != nil {
					break
				}
				mu.Lock()
				took = append(took, milli(time.Since(due)))
				mu.Unlock()
			}
			if u != nil {
				failed = errors.Join(failed, u.Close())
			}
			mu.Lock()
			err = errors.Join(err, failed)
			mu.Unlock()
		})
	}
	wg.Wait()
	return took, err
}

// ofN is one of two goals: for one at a time, and for many.
func ofN(n int, one, many float64) float64 {
	if n == 1 {
		return one
	}
	return many
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// recognizes opens the bundle if it is one of speech recognition.
func (c *benchModelCmd) recognizes() (*models.Bundle, error) {
	b, err := models.OpenBundle(c.Bundle)
	if err != nil || b.Manifest.Task != models.TaskRecognition {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "bench: speech recognition:", b.Manifest.Name)
	return b, nil
}
