package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/cmd/internal/bench"
	"touchline/inference"
	"touchline/inference/conformance/timing"
	"touchline/inference/live"
	"touchline/inference/minicpmo"
	"touchline/inference/qwen3asr"
	"touchline/inference/step"
	"touchline/inference/tokenizer"
	"touchline/internal/quantile"
	"touchline/models"
)

// Workload of the speech recognition rows. A model with random weights does not stop by itself, so each answer has the number of tokens
// that speech usually has.
const (
	clipSeconds, clipTokens = 30, 100
	firstSeconds            = 10
	liveSeconds, liveTokens = 8, 8
	liveStep                = inference.RecognizerRate / 2
	alignSeconds            = 60
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
func (b *modelBench) ears(bundle *models.Bundle) {
	b.earStages(bundle)
	clipGoals := map[int]float64{1: 165, manySpeakers: 2000}
	if bundle.Manifest.Dims.Decoder.Hidden > 1024 { // the larger model
		clipGoals = map[int]float64{1: 110, manySpeakers: 1350}
	}
	b.Run.Part(func() {
		e := b.recognizer(bundle, 1)
		for _, n := range []int{1, manySpeakers} {
			took, _ := b.clips(e, n, noise(firstSeconds))
			b.add(fmt.Sprintf("first token of a clip of %d s, %d at once, p95", firstSeconds, n), "ms", fmt.Sprintf("first_10s_%d", n),
				[]float64{quantile.Of(took, .95)}, map[int]float64{1: 20, manySpeakers: 200}[n], true)
		}
	})
	e := b.recognizer(bundle, clipTokens)
	for _, n := range []int{1, manySpeakers} {
		_, speeds := b.clips(e, n, noise(clipSeconds))
		b.add(fmt.Sprintf("clip of %d s with %d tokens, %d at once", clipSeconds, clipTokens, n), "x real time",
			fmt.Sprintf("clip_30s_%d", n), speeds, clipGoals[n], false)
	}
	seconds := max(min(liveSeconds, int(b.Duration.Seconds())), 1)
	for _, n := range []int{1, manySpeakers} {
		took, err := speak(b.Context(), e, n, seconds, nil)
		b.Check(err)
		what := fmt.Sprintf("live text each 0.5 s of %d s, %d speakers", seconds, n)
		b.add(what, "ms", "", took, 0, true)
		b.add(what+", p95", "ms", fmt.Sprintf("live_8s_%d", n), []float64{quantile.Of(took, .95)},
			map[int]float64{1: 40, manySpeakers: 150}[n], true)
	}
	if b.Interim != "" {
		b.interims(e, seconds)
	}
	if b.Aligner == "" {
		return
	}
	var speeds []float64
	for range b.Runs + 1 {
		begin := time.Now()
		_, err := e.Align(b.Context(), noise(alignSeconds), "one two three four five six seven eight nine ten", "en")
		b.Check(err)
		speeds = append(speeds, alignSeconds/time.Since(begin).Seconds())
	}
	b.add("alignment of 60 s", "x real time", "align_60s", speeds[1:], 1000, false) // the first one loads the aligner
}

// interims measures live speech with its final texts, by the engine alone and with the interim texts of a faster one.
func (b *modelBench) interims(e *qwen3asr.Engine, seconds int) {
	bundle, err := models.OpenBundle(b.Interim)
	b.Check(err)
	o := b.earOptions()
	o.Aligner, o.MaxTokens, o.StepTokens, o.Priority = "", clipTokens, liveTokens, step.Interim
	fast, err := qwen3asr.Open(b.Context(), bundle, o)
	b.Check(err)
	b.Cleanup(func() { b.Fail(fast.Close()) })
	busy := func() time.Duration { return e.Stats().Device + fast.Stats().Device }
	for _, by := range []struct {
		name   string
		r      inference.Recognizer
		memory int64
	}{
		{"alone", e, e.Plan().Total()},
		{"with a faster model", live.Pair(e, fast, zerolog.Nop()), e.Plan().Total() + fast.Plan().Total()},
	} {
		_, err := speak(b.Context(), by.r, manySpeakers, 1, nil) // to warm up
		b.Check(err)
		var finals []float64
		begin, before := time.Now(), busy()
		took, err := speak(b.Context(), by.r, manySpeakers, seconds, &finals)
		b.Check(err)
		share := 100 * (busy() - before).Seconds() / time.Since(begin).Seconds()
		what := fmt.Sprintf("%d speakers, %s: ", manySpeakers, by.name)
		b.add(what+"interim text", "ms", "", took, 0, true)
		b.add(what+"interim text, p95", "ms", "", []float64{quantile.Of(took, .95)}, 0, true)
		b.add(what+"final text", "ms", "", finals, 0, true)
		b.add(what+"final text, p95", "ms", "", []float64{quantile.Of(finals, .95)}, 0, true)
		b.add(what+"device busy", "%", "", []float64{share}, 0, true)
		b.add(what+"planned memory", "GB", "", []float64{float64(by.memory) / 1e9}, 0, true)
	}
}

// recognizer opens an engine for answers of a number of tokens, until the end of the part.
func (b *modelBench) recognizer(bundle *models.Bundle, tokens int) *qwen3asr.Engine {
	o := b.earOptions()
	o.MaxTokens, o.StepTokens = tokens, liveTokens
	e, err := qwen3asr.Open(b.Context(), bundle, o)
	b.Check(err)
	b.Cleanup(func() { b.Fail(e.Close()) })
	b.found.Detail, b.found.Planned = e.Status().Detail, e.Plan().Total()
	return e
}

func (b *modelBench) earOptions() qwen3asr.Options {
	return qwen3asr.Options{Device: b.Device, Runtime: b.Library, Aligner: b.Aligner}
}

// earStages measures the runs of the device alone.
func (b *modelBench) earStages(bundle *models.Bundle) {
	sizes := []int{1, 2, 4, 8, 16, 32, manySpeakers}
	s, err := timing.TimeHearing(b.Context(), bundle, b.earOptions(), b.Runs, sizes, time.Now)
	b.Check(err)
	b.found.Device = s.Device
	for _, stage := range []struct {
		name string
		runs map[int]timing.Runs
	}{
		{"encoder, %d windows of 8 s", s.Encode},
		{fmt.Sprintf("prompts of %d positions, %%d at once", s.Positions), s.Prefill},
		{"decode step of %d answers", s.Decode},
	} {
		for _, n := range sizes {
			b.add(fmt.Sprintf(stage.name, n), "ms", "", bench.AllMS(stage.runs[n]), 0, true)
		}
	}
}

// clips transcribes n clips at once, several times: how long each took, in ms, and the speed of all together.
func (b *modelBench) clips(e *qwen3asr.Engine, n int, sound []float32) (took, speeds []float64) {
	seconds := float64(len(sound)*n) / inference.RecognizerRate
	for i := range max(b.Runs/3, 1) + 1 {
		all := make([]float64, n)
		failed := make([]error, n)
		begin := time.Now()
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() {
				for _, err := range e.Transcribe(b.Context(), sound, inference.Hearing{}) {
					failed[k] = errors.Join(failed[k], err)
				}
				all[k] = bench.MS(time.Since(begin))
			})
		}
		wg.Wait()
		b.Check(errors.Join(failed...))
		if i > 0 { // the first time warms up
			took, speeds = append(took, all...), append(speeds, seconds/time.Since(begin).Seconds())
		}
	}
	return took, speeds
}

// speak has n utterances recognized in real time, whose steps are spread evenly: how long after each step its text came, in ms. With
// finals, they end one after the other, and it adds how long their final texts took.
func speak(ctx context.Context, r inference.Recognizer, n, seconds int, finals *[]float64) (took []float64, err error) {
	const every = 500 * time.Millisecond
	sound := noise(seconds)
	begin := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range n {
		wg.Go(func() {
			sound := sound
			if finals != nil {
				sound = sound[:(1+k%seconds)*inference.RecognizerRate]
			}
			u, failed := r.Listen(ctx, inference.Hearing{})
			for i := 0; failed == nil && i < len(sound); i += liveStep {
				due := begin.Add(every*time.Duration(k)/time.Duration(n) + every*time.Duration(i/liveStep+1))
				<-time.After(time.Until(due))
				if _, failed = u.Hear(ctx, sound[i:i+liveStep]); failed != nil {
					break
				}
				mu.Lock()
				took = append(took, bench.MS(time.Since(due)))
				mu.Unlock()
			}
			if failed == nil && finals != nil {
				ended := time.Now()
				_, failed = u.Finish(ctx, nil)
				mu.Lock()
				*finals = append(*finals, bench.MS(time.Since(ended)))
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

// beside measures the cycles of many rooms: alone, with many speakers on the same GPU, and with spoken comments as well.
func (b *modelBench) beside() {
	bundle, err := models.OpenBundle(b.Ears)
	b.Check(err)
	m, err := models.OpenBundle(b.Bundle)
	b.Check(err)
	c := b.config("auto")
	if m.Manifest.Dims.Speech != nil {
		c.Voice.Enabled, c.Voice.Slots = true, speakers
	}
	e := b.open(b.Bundle, c)
	p := b.text(e, oneFilm().next(cycleFrames))
	b.cycles(e, p, 1, ", to warm up")
	alone := b.cycles(e, p, 2, " alone")
	ears := b.recognizer(bundle, clipTokens)
	_, err = speak(b.Context(), ears, manySpeakers, 2, nil) // to warm up
	b.Check(err)
	var both float64
	took := b.talking(ears, func() { both = b.cycles(e, p, 3, fmt.Sprintf(" beside %d who speak", manySpeakers)) })
	b.found.Detail, b.found.Device = e.Status().Detail+", "+ears.Status().Detail, "one device"
	b.found.Planned = e.Stats().MemoryPlanned + ears.Plan().Total()
	b.add(fmt.Sprintf("%d rooms beside %d who speak: p95 of a cycle to that alone", b.Rooms[0], manySpeakers), "x", "",
		[]float64{both / alone}, 1.3, true)
	b.add(fmt.Sprintf("live text each 0.5 s, %d speakers beside %d rooms, p95", manySpeakers, b.Rooms[0]), "ms", "",
		[]float64{quantile.Of(took, .95)}, 0, true)
	if !c.Voice.Enabled {
		return
	}
	looks := b.written(e, p, b.Rooms[0], 4)
	took = b.talking(ears, func() {
		ended := make(chan error, 1)
		go func() { ended <- looks.run(b.Context()) }()
		b.Cleanup(func() {
			if err := errors.Join(<-ended, looks.err); err != nil {
				b.Fail(err)
			}
		})
		b.comments(e)
	})
	b.add(fmt.Sprintf("%d rooms beside %d who speak and the voice: cycle, p95", looks.rooms, manySpeakers), "ms", "",
		[]float64{bench.MS(quantile.Of(looks.whole, .95))}, 0, true)
	b.add(fmt.Sprintf("live text each 0.5 s, %d speakers beside %d rooms and the voice, p95", manySpeakers, b.Rooms[0]), "ms", "",
		[]float64{quantile.Of(took, .95)}, 0, true)
}

// talking runs work while many speak, one utterance after the other, and returns how long each text took, in ms.
func (b *modelBench) talking(ears *qwen3asr.Engine, work func()) (took []float64) {
	b.Run.Part(func() {
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() {
			var err error
			for err == nil && ctx.Err() == nil {
				var more []float64
				more, err = speak(ctx, ears, manySpeakers, liveSeconds, nil)
				took = append(took, more...)
			}
			ended <- err
		}()
		b.Cleanup(func() {
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				b.Fail(err)
			}
		})
		work()
	})
	return took
}

// cycles measures the cycles of a load, and returns their 95th percentile in ms.
func (b *modelBench) cycles(e *minicpmo.Engine, p tokenizer.Prompt, number uint64, what string) float64 {
	l := b.written(e, p, b.Rooms[0], number)
	b.Check(l.run(b.Context()))
	b.Check(l.err)
	b.add(fmt.Sprintf("%d rooms%s: cycle", l.rooms, what), "ms", "", bench.AllMS(l.whole), 0, true)
	p95 := bench.MS(quantile.Of(l.whole, .95))
	fmt.Fprintf(os.Stderr, "%d rooms%s: %d cycles, p95 %.0f ms, %d dropped, running after each third %v\n",
		l.rooms, what, l.arrived, p95, l.dropped, l.backlog)
	return p95
}
