package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/cmd/internal/bench"
	"touchline/inference"
	"touchline/inference/conformance/timing"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// stages measures the stages on the device.
func (b *modelBench) stages() {
	m, err := models.OpenBundle(b.Bundle)
	b.Check(err)
	images, batches, speaking := []int{1, 2, 4}, []int{1, 2, 4, 8, 16, 32, 64}, []int{1, 4, 8, 16, 32}
	s, err := timing.TimeStages(b.Context(), m, minicpmo.Options{Config: b.config("auto"), Stock: b.Stock}, timing.StageOptions{
		Runs: b.Runs, Prompt: b.Prompt, Images: images, Rooms: batches, Speaking: speaking,
	})
	b.Check(err)
	row := func(what, key string, runs timing.Runs, goal float64) {
		b.add(what, "ms", key, bench.AllMS(runs), goal, true)
	}
	for _, n := range images {
		row(fmt.Sprintf("vision of %d, 16:9", n), fmt.Sprintf("vision_%d_ms", n), s.Vision[n], map[int]float64{1: 4.7, 4: 10}[n])
	}
	for _, w := range []models.Weights{models.WeightsInt4, models.WeightsFloat16, models.WeightsBFloat16, models.WeightsFloat32} {
		row(fmt.Sprintf("prefill of %d tokens, %s", b.Prompt, w), map[models.Weights]string{models.WeightsFloat16: "prefill_ms"}[w],
			s.Prefill[w], map[models.Weights]float64{models.WeightsInt4: 18, models.WeightsFloat16: 13.5}[w])
		for _, n := range batches {
			goal := map[int]float64{2: 2.22, 4: 2.5, 8: 3.33}[n] // 900, 1600 and 2400 tokens a second
			if w != models.WeightsInt4 {
				goal = 0
			}
			row(fmt.Sprintf("decode step of %d, %s", n, w), "", s.Decode[w][n], goal)
		}
	}
	for _, n := range speaking {
		row(fmt.Sprintf("voice: codes, a step of %d with draws", n), "", s.Speech.Step[n], map[int]float64{1: 1.05, 8: 1.2, 32: 1.5}[n])
		row(fmt.Sprintf("voice: a second of sound of %d", n), "", s.Speech.Sound[n],
			map[int]float64{1: 18, 4: 23, 8: 28, 16: 42, 32: 71}[n])
		row(fmt.Sprintf("voice: a second of sound of %d, beside a saturated decode of %d", n, n), "", s.Speech.Beside[n],
			map[int]float64{32: 93}[n])
	}
	if v := s.Speech; v.Slots > 0 && b.Device == "cuda" {
		const gigabyte = 1e9
		one := func(what, unit string, value, goal float64) { b.add(what, unit, "", []float64{value}, goal, true) }
		one("voice: longest run of an end of a turn, against the median of its length", "times", v.Ends, 2)
		one("voice: time until it is loaded and warm", "s", v.Ready.Seconds(), 0)
		one("voice: of it for ends of turns of every length", "s", v.EndsReady.Seconds(), 15)
		one(fmt.Sprintf("voice: memory besides its %d slots", v.Slots), "GB", float64(v.Used-int64(v.Slots)*v.Slot)/gigabyte, 3)
		one("voice: memory of a slot", "GB", float64(v.Slot)/gigabyte, .42)
	}
	b.found.Device, b.found.Planned, b.found.Used = s.Device, s.Planned, s.Used
}

// rooms measures the cycles of one room, and many rooms.
func (b *modelBench) rooms() {
	e := b.open(b.Bundle, b.config("auto"))
	b.found.Detail, b.found.Switch = e.Status().Detail, e.Stats().Switch
	b.greedy(e)
	b.decode(e, b.Bundle, "auto")
	b.cycle(e)
	b.host(e, "1 room", 1, 0.15)
	if n := e.Stats().SlotsAll; n > 1 {
		b.host(e, fmt.Sprintf("%d rooms", n), n, 1)
	}
	b.many(e)
}

// cards measures many rooms on several GPUs.
func (b *modelBench) cards() {
	var engines []*minicpmo.Engine
	for _, gpu := range b.GPUs {
		c := b.config("auto")
		c.MiniCPM.GPU = gpu
		e := b.open(b.Bundle, c)
		engines = append(engines, e)
		b.found.Detail, b.found.Planned = e.Status().Detail, b.found.Planned+e.Plan().Total()
	}
	b.found.Device, b.found.Used = fmt.Sprintf("%d GPUs", len(engines)), sum(engines).MemoryUsed
	b.many(engines...)
}

func (b *modelBench) config(weights string) minicpmo.Settings {
	c := minicpmo.DefaultSettings()
	c.MaxSlices, c.MaxTokens = 1, b.Answer
	c.MiniCPM.Device, c.MiniCPM.Weights, c.MiniCPM.Runtime = b.Device, weights, b.Library
	c.MiniCPM.GPU = b.GPUs[0]
	c.MiniCPM.SuppressTokens = nil
	c.Voice.Enabled = false
	c.MiniCPM.Queue = 4096 // An open load counts waiting requests instead of dropping them.
	return c
}

// open opens an engine until the end of the part.
func (b *modelBench) open(bundle string, c minicpmo.Settings) *minicpmo.Engine {
	e := b.opened(bundle, c, false)
	b.Check(e.Wait(b.Context()))
	fmt.Fprintf(os.Stderr, "%s: loaded and warm after %.1f s\n", e.Status().Detail, time.Since(started).Seconds())
	return e
}

// opened is open, until answers can begin if staged is set.
func (b *modelBench) opened(bundle string, c minicpmo.Settings, staged bool) *minicpmo.Engine {
	m, err := models.OpenBundle(bundle)
	b.Check(err)
	stage := ""
	e, err := minicpmo.Open(b.Context(), m, minicpmo.Options{
		Stock: b.Stock, Staged: staged,
		Config: c, Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel), Workers: max(1, runtime.GOMAXPROCS(0)-2),
		Progress: func(_ int, detail string) {
			if next, _, _ := strings.Cut(detail, ","); next != stage {
				stage = next
				fmt.Fprintf(os.Stderr, "%6.2f s %s\n", time.Since(started).Seconds(), stage)
			}
		},
	})
	b.Check(err)
	b.Cleanup(func() { b.Fail(e.Close()) })
	return e
}

// readyPause is the time between two answers of the room that comments while the rest loads.
const readyPause = 500 * time.Millisecond

// ready measures a start with the voice, and what answers notice of it.
func (b *modelBench) ready() {
	c := b.config("auto")
	c.Voice.Enabled = true
	e := b.opened(b.Bundle, c, true)
	row := func(what, unit string, value, goal float64) { b.add(what, unit, "", []float64{value}, goal, true) }
	whole := make(chan time.Duration, 1)
	var failed error
	go func() { // ended by Close at the latest
		failed = e.Wait(b.Context())
		whole <- time.Since(started)
	}()
	seen := oneFilm().next(1)
	var last time.Time
	var pause, loaded time.Duration
	for first := true; loaded == 0; {
		r := request(e, b.text(e, seen), b.Answer, 1)
		r.Frames, r.Source = seen, 1
		last = time.Time{}
		for t, err := range e.Answer(b.Context(), r) {
			b.Check(err)
			if t.ID < 0 {
				continue
			}
			now := time.Now()
			if first {
				row("from the start of the process to the first token", "s", now.Sub(started).Seconds(), 8)
				first = false
			}
			if !last.IsZero() && now.Sub(last) > pause {
				pause = now.Sub(last)
				fmt.Fprintf(os.Stderr, "%6.2f s a pause of %v\n", now.Sub(started).Seconds(), pause)
			}
			last = now
		}
		select {
		case loaded = <-whole:
		case <-time.After(readyPause):
		}
	}
	b.Check(failed)
	row("until all is loaded", "s", loaded.Seconds(), 25)
	row("longest pause between two tokens of one room meanwhile", "ms", float64(pause)/1e6, 30)
}

// text returns a prompt of b.Prompt tokens with the frames. As in a room, three fifths of its words come before them: profile and language.
func (b *modelBench) text(e *minicpmo.Engine, frames []inference.Frame) tokenizer.Prompt {
	var parts []tokenizer.Part
	for _, f := range frames {
		g, err := e.Grid(f.Width, f.Height, 1)
		b.Check(err)
		parts = append(parts, tokenizer.Part{Image: &g})
	}
	words := b.words()
	chat := func(n int) tokenizer.Prompt {
		first := n * 3 / 5
		p, err := e.Builder().Chat([]tokenizer.Message{
			{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: words[:first]}}},
			{Role: tokenizer.User, Parts: append(slices.Clone(parts), tokenizer.Part{Text: words[first:n]})},
		}, tokenizer.Options{})
		b.Check(err)
		return p
	}
	tooLong := sort.Search(len(words)+1, func(n int) bool { return len(chat(n).IDs) > b.Prompt })
	return chat(max(0, tooLong-1))
}

// words is more text than a prompt has.
func (b *modelBench) words() string {
	return strings.Repeat("Say in one sentence what is going on. ", b.Prompt/4)
}

// ask runs a request to its end and calls first with the first token.
func ask(ctx context.Context, e *minicpmo.Engine, r minicpmo.Request, first func()) (ids []int32, err error) {
	for t, err := range e.Answer(ctx, r) {
		if err != nil {
			return ids, err
		}
		if t.ID >= 0 {
			if len(ids) == 0 && first != nil {
				first()
			}
			ids = append(ids, t.ID)
		}
	}
	return ids, nil
}

// request returns a request whose answer has the full length: no token ends it.
func request(e *minicpmo.Engine, p tokenizer.Prompt, tokens int, seed uint64) minicpmo.Request {
	r := minicpmo.Request{Prompt: p, Slices: 1, Rules: e.ChatRules(), MaxTokens: tokens, Seed: seed}
	r.Rules.Stop = nil
	return r
}

// greedy fails if the weights repeat one token.
func (b *modelBench) greedy(e *minicpmo.Engine) {
	r := request(e, b.text(e, nil), b.Answer, 1)
	r.Rules.Greedy, r.Rules.RepetitionPenalty = true, 1
	ids, err := ask(b.Context(), e, r, nil)
	b.Check(err)
	distinct := len(slices.Compact(slices.Sorted(slices.Values(ids))))
	fmt.Fprintf(os.Stderr, "greedy answer: %d tokens, %d different: %.60q\n", len(ids), distinct, e.Tokenizer().Decode(ids))
	if len(ids) != b.Answer || distinct < 3 {
		b.Check(errors.New("the model repeats one token in greedy text: its weights are no realistic load"))
	}
}

// half returns the 16-bit floats of the bundle.
func (b *modelBench) half() string {
	m, err := models.OpenBundle(b.Bundle)
	b.Check(err)
	if _, ok := m.Find(models.KindEmbed, models.WeightsBFloat16, models.DeviceCUDA); ok {
		return string(models.WeightsBFloat16)
	}
	return string(models.WeightsFloat16)
}

// alone returns the row name and goal of the weights that decode a single room.
func (b *modelBench) alone(bundle, weights string) (what string, goal float64) {
	m, err := models.OpenBundle(bundle)
	b.Check(err)
	// The order of auto for few rooms.
	order := []models.Weights{models.WeightsInt4, models.WeightsFloat16, models.WeightsBFloat16}
	if b.Device == "cpu" {
		order = []models.Weights{models.WeightsFloat32, models.WeightsInt4}
	}
	for _, w := range order {
		g, ok := m.Find(models.KindDecoder, w, models.Device(b.Device))
		if !ok || weights != "auto" && weights != string(w) {
			continue
		}
		what = fmt.Sprintf("decode of one room, %s", w)
		if w == models.WeightsInt4 {
			return fmt.Sprintf("%s, head int%d", what, g.Head), map[int]float64{8: 480, 4: 500}[g.Head]
		}
		return what, map[models.Weights]float64{models.WeightsFloat16: 180}[w]
	}
	return "decode of one room", 0
}

// warmRuns are not counted.
const warmRuns = 2

// decode measures the token rate of one room after the first token.
func (b *modelBench) decode(e *minicpmo.Engine, bundle, weights string) {
	what, goal := b.alone(bundle, weights)
	p := b.text(e, nil)
	var rates []float64
	for i := range b.Runs + warmRuns {
		var first time.Time
		ids, err := ask(b.Context(), e, request(e, p, b.Answer, uint64(i)), func() { first = time.Now() })
		b.Check(err)
		rates = append(rates, float64(len(ids)-1)/time.Since(first).Seconds())
	}
	b.add(what, "tok/s", map[bool]string{true: "decode_tok_s"}[strings.Contains(what, "fp16")], rates[warmRuns:], goal, false)
}

// again is the number of new tokens of a second look.
const again = 60

// cycle measures whole cycles of one room, each with one new frame and then a second look at the same frames.
func (b *modelBench) cycle(e *minicpmo.Engine) {
	f := oneFilm()
	var firsts, wholes, seconds []time.Duration
	var p, second tokenizer.Prompt
	for i := range b.Runs + warmRuns {
		seen := f.next(1)
		if i == 0 {
			p = b.text(e, seen)
			other := slices.Clone(p.IDs[:again])
			slices.Reverse(other)
			second = tokenizer.Prompt{IDs: slices.Concat(p.IDs[:p.Images[len(p.Images)-1].End], other), Images: p.Images}
		}
		look := func(p tokenizer.Prompt, tokens int, firsts *[]time.Duration) time.Duration {
			r := request(e, p, tokens, uint64(i))
			r.Frames, r.Source = seen, 1<<40
			begin := time.Now()
			_, err := ask(b.Context(), e, r, func() { *firsts = append(*firsts, time.Since(begin)) })
			b.Check(err)
			return time.Since(begin)
		}
		wholes = append(wholes, look(p, b.Answer, &firsts))
		look(second, 1, &seconds)
	}
	what := fmt.Sprintf("%d frames (1 new), %d in", cycleFrames, len(p.IDs))
	b.add("time to first token, "+what, "ms", "first_token_ms", bench.AllMS(firsts[warmRuns:]), 16, true)
	b.add(fmt.Sprintf("second look on the same frames, %d new tokens in: time to first token", again), "ms", "",
		bench.AllMS(seconds[warmRuns:]), 8, true)
	b.add(fmt.Sprintf("whole cycle, %s, %d out", what, b.Answer), "ms", "cycle_ms", bench.AllMS(wholes[warmRuns:]), 105, true)
}

// host measures the host time between two decode steps of rooms.
func (b *modelBench) host(e *minicpmo.Engine, what string, rooms int, goal float64) {
	p := b.text(e, nil)
	p.IDs = p.IDs[:min(16, len(p.IDs))]
	before := e.Stats().Host
	tokens := max(200, 4*b.Answer)
	var wg sync.WaitGroup
	errs := make([]error, rooms)
	for i := range rooms {
		wg.Go(func() { _, errs[i] = ask(b.Context(), e, request(e, p, tokens, uint64(i)), nil) })
	}
	wg.Wait()
	b.Check(cmp.Or(errs...))
	d := between(before, e.Stats().Host)
	b.add("host time between two steps, "+what, "ms", "",
		[]float64{1e3 * d.Quantile(.05), 1e3 * d.Quantile(.5), 1e3 * d.Quantile(.95)}, goal, true)
}

// between returns the difference of two states of a distribution.
func between(before, after minicpmo.Distribution) minicpmo.Distribution {
	d := minicpmo.Distribution{Bounds: after.Bounds, Sum: after.Sum - before.Sum, Count: after.Count - before.Count}
	for i, n := range after.Counts {
		d.Counts = append(d.Counts, n-before.Counts[i])
	}
	return d
}
