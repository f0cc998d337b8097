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

	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// rooms measures the cycles of one room, and many rooms.
func (b *bench) rooms(ctx context.Context) error {
	e, err := b.open(ctx, b.Bundle, "auto")
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	b.found.Detail, b.found.Switch = e.Status().Detail, e.Stats().Switch
	if err := b.greedy(ctx, e); err != nil {
		return err
	}
	if err := b.decodeOn(ctx, e, b.Bundle, "auto"); err != nil {
		return err
	}
	if err := b.cycle(ctx, e); err != nil {
		return err
	}
	if err := b.host(ctx, e); err != nil {
		return err
	}
	return b.many(ctx, e)
}

func (b *bench) config(weights string) minicpmo.Settings {
	c := minicpmo.DefaultSettings()
	c.MaxSlices, c.MaxTokens = 1, b.Answer
	c.MiniCPM.Device, c.MiniCPM.Weights, c.MiniCPM.Runtime = b.Device, weights, b.Library
	c.MiniCPM.SuppressTokens = nil
	c.Voice.Enabled = false
	c.MiniCPM.Queue = 4096 // An open load counts waiting requests instead of dropping them.
	return c
}

func (b *bench) open(ctx context.Context, bundle, weights string) (*minicpmo.Engine, error) {
	return b.openWith(ctx, bundle, b.config(weights))
}

func (b *bench) openWith(ctx context.Context, bundle string, c minicpmo.Settings) (*minicpmo.Engine, error) {
	m, err := models.OpenBundle(bundle)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	e, err := minicpmo.Open(ctx, m, minicpmo.Options{
		Config: c, Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel), Workers: max(1, runtime.GOMAXPROCS(0)-2),
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%s: loaded and warm in %v\n", e.Status().Detail, time.Since(begin).Round(100*time.Millisecond))
	return e, nil
}

func milliseconds(runs []time.Duration) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = float64(r) / float64(time.Millisecond)
	}
	return out
}

// stages measures the stages on the device.
func (b *bench) stages(ctx context.Context) error {
	m, err := models.OpenBundle(b.Bundle)
	if err != nil {
		return err
	}
	s, err := minicpmo.TimeStages(ctx, m, minicpmo.Options{Config: b.config("auto")}, minicpmo.StageOptions{
		Runs: b.Runs, Prompt: b.Prompt, Images: []int{1, 2, 4}, Rooms: []int{1, 2, 4, 8, 16, 32, 64},
		Speaking: []int{1, 4, 8, 16, 32},
	})
	if err != nil {
		return err
	}
	for _, n := range []int{1, 2, 4} {
		b.add(fmt.Sprintf("vision of %d, 16:9", n), "ms", fmt.Sprintf("vision_%d_ms", n), milliseconds(s.Vision[n]),
			map[int]float64{1: 4.7, 4: 10}[n], true)
	}
	for _, w := range []models.Weights{models.WeightsInt4, models.WeightsFloat16, models.WeightsFloat32} {
		b.add(fmt.Sprintf("prefill of %d tokens, %s", b.Prompt, w), "ms", map[models.Weights]string{models.WeightsFloat16: "prefill_ms"}[w],
			milliseconds(s.Prefill[w]), map[models.Weights]float64{models.WeightsInt4: 18, models.WeightsFloat16: 13.5}[w], true)
		for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
			b.add(fmt.Sprintf("decode step of %d, %s", n, w), "ms", "", milliseconds(s.Decode[w][n]), 0, true)
		}
	}
	b.spoken(s.Speech)
	b.found.Device, b.found.Planned, b.found.Used = s.Device, s.Planned, s.Used
	return nil
}

// spoken adds the rows of the voice.
func (b *bench) spoken(s minicpmo.SpeechStages) {
	for _, n := range []int{1, 4, 8, 16, 32} {
		b.add(fmt.Sprintf("voice: codes, a step of %d with draws", n), "ms", "", milliseconds(s.Step[n]),
			map[int]float64{1: 1.05, 8: 1.2, 32: 1.5}[n], true)
		b.add(fmt.Sprintf("voice: a second of sound of %d", n), "ms", "", milliseconds(s.Sound[n]),
			map[int]float64{1: 18, 4: 23, 8: 28, 16: 42, 32: 71}[n], true)
		b.add(fmt.Sprintf("voice: a second of sound of %d, beside a saturated decode of %d", n, n), "ms", "", milliseconds(s.Beside[n]),
			map[int]float64{32: 93}[n], true)
	}
	if s.Slots > 0 && b.Device == "cuda" {
		const gigabyte = 1e9
		b.add("voice: longest run of an end of a turn, against the median of its length", "times", "", []float64{s.Ends}, 2, true)
		b.add("voice: time until it is loaded and warm", "s", "", []float64{s.Ready.Seconds()}, 0, true)
		b.add("voice: of it for ends of turns of every length", "s", "", []float64{s.EndsReady.Seconds()}, 15, true)
		b.add(fmt.Sprintf("voice: memory besides its %d slots", s.Slots), "GB", "",
			[]float64{float64(s.Used-int64(s.Slots)*s.Slot) / gigabyte}, 3, true)
		b.add("voice: memory of a slot", "GB", "", []float64{float64(s.Slot) / gigabyte}, .42, true)
	}
}

// text returns a prompt of b.Prompt tokens with the frames.
func (b *bench) text(e *minicpmo.Engine, frames []inference.Frame) (tokenizer.Prompt, error) {
	var parts []tokenizer.Part
	for _, f := range frames {
		g, err := e.Grid(f.Width, f.Height, 1)
		if err != nil {
			return tokenizer.Prompt{}, err
		}
		parts = append(parts, tokenizer.Part{Image: &g})
	}
	words := strings.Repeat("Say in one sentence what is going on. ", b.Prompt/4)
	chat := func(n int) (tokenizer.Prompt, error) {
		return e.Builder().Chat([]tokenizer.Message{{
			Role: tokenizer.User, Parts: append(slices.Clone(parts), tokenizer.Part{Text: words[:n]}),
		}}, tokenizer.Options{})
	}
	var failed error
	tooLong := sort.Search(len(words)+1, func(n int) bool {
		p, err := chat(n)
		failed = cmp.Or(failed, err)
		return len(p.IDs) > b.Prompt
	})
	if failed != nil {
		return tokenizer.Prompt{}, failed
	}
	return chat(max(0, tooLong-1))
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

// errConstant is returned when the weights repeat one token.
var errConstant = errors.New("the model repeats one token in greedy text: its weights are no realistic load")

func (b *bench) greedy(ctx context.Context, e *minicpmo.Engine) error {
	p, err := b.text(e, nil)
	if err != nil {
		return err
	}
	r := request(e, p, b.Answer, 1)
	r.Rules.Greedy, r.Rules.RepetitionPenalty = true, 1
	ids, err := ask(ctx, e, r, nil)
	if err != nil {
		return fmt.Errorf("greedy answer: %w", err)
	}
	distinct := len(slices.Compact(slices.Sorted(slices.Values(ids))))
	fmt.Fprintf(os.Stderr, "greedy answer: %d tokens, %d different: %.60q\n", len(ids), distinct, e.Tokenizer().Decode(ids))
	if len(ids) != b.Answer || distinct < 3 {
		return errConstant
	}
	return nil
}

func (b *bench) decode(ctx context.Context, bundle, weights string) error {
	e, err := b.open(ctx, bundle, weights)
	if err != nil {
		return err
	}
	return errors.Join(b.decodeOn(ctx, e, bundle, weights), e.Close())
}

// alone returns the row name and goal of the weights that decode a single room.
func (b *bench) alone(bundle, weights string) (what string, goal float64, err error) {
	m, err := models.OpenBundle(bundle)
	if err != nil {
		return "", 0, err
	}
	// The order of auto for few rooms.
	order := []models.Weights{models.WeightsInt4, models.WeightsFloat16}
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
			return fmt.Sprintf("%s, head int%d", what, g.Head), map[int]float64{8: 245, 4: 260}[g.Head], nil
		}
		return what, map[models.Weights]float64{models.WeightsFloat16: 180}[w], nil
	}
	return "decode of one room", 0, nil
}

// decodeOn measures the token rate of one room after the first token.
func (b *bench) decodeOn(ctx context.Context, e *minicpmo.Engine, bundle, weights string) error {
	what, goal, err := b.alone(bundle, weights)
	if err != nil {
		return err
	}
	p, err := b.text(e, nil)
	if err != nil {
		return err
	}
	var rates []float64
	for i := range b.Runs + 2 {
		var first time.Time
		ids, err := ask(ctx, e, request(e, p, b.Answer, uint64(i)), func() { first = time.Now() }) //nolint:gosec // not negative
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if i >= 2 {
			rates = append(rates, float64(len(ids)-1)/time.Since(first).Seconds())
		}
	}
	b.add(what, "tok/s", map[bool]string{true: "decode_tok_s"}[strings.Contains(what, "fp16")], rates, goal, false)
	return nil
}

// cycle measures whole cycles of one room, each with one new frame.
func (b *bench) cycle(ctx context.Context, e *minicpmo.Engine) error {
	const frames = 4
	f := newFilm(1, 1, backgrounds(newFilm(1, 0, nil).rng))
	var firsts, wholes []float64
	var p tokenizer.Prompt
	for i := range b.Runs + 2 {
		seen := f.next(frames, 1)
		if i == 0 {
			var err error
			if p, err = b.text(e, seen); err != nil {
				return err
			}
		}
		r := request(e, p, b.Answer, uint64(i)) //nolint:gosec // not negative
		r.Frames, r.Source = seen, 1<<40
		begin := time.Now()
		var first time.Duration
		if _, err := ask(ctx, e, r, func() { first = time.Since(begin) }); err != nil {
			return fmt.Errorf("cycle: %w", err)
		}
		whole := time.Since(begin)
		if i >= 2 {
			firsts = append(firsts, milliseconds([]time.Duration{first})...)
			wholes = append(wholes, milliseconds([]time.Duration{whole})...)
		}
	}
	what := fmt.Sprintf("%d frames (1 new), %d in", frames, len(p.IDs))
	b.add("time to first token, "+what, "ms", "first_token_ms", firsts, 27, true)
	b.add(fmt.Sprintf("whole cycle, %s, %d out", what, b.Answer), "ms", "cycle_ms", wholes, 185, true)
	return nil
}

// host measures the host time between two decode steps.
func (b *bench) host(ctx context.Context, e *minicpmo.Engine) error {
	p, err := b.text(e, nil)
	if err != nil {
		return err
	}
	p.IDs = p.IDs[:min(16, len(p.IDs))]
	for _, rooms := range []int{1, e.Stats().SlotsAll} {
		before := e.Stats().Host
		tokens := max(200, 4*b.Answer)
		var wg sync.WaitGroup
		errs := make([]error, rooms)
		for i := range rooms {
			wg.Go(func() { _, errs[i] = ask(ctx, e, request(e, p, tokens, uint64(i)), nil) }) //nolint:gosec // not negative
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("host time of %d rooms: %w", rooms, err)
		}
		d := between(before, e.Stats().Host)
		goal := 0.15
		if rooms > 1 {
			goal = 1
		}
		b.add(fmt.Sprintf("host time between two steps, %d %s", rooms, map[bool]string{true: "rooms", false: "room"}[rooms > 1]), "ms", "",
			[]float64{1e3 * d.Quantile(.05), 1e3 * d.Quantile(.5), 1e3 * d.Quantile(.95)}, goal, true)
	}
	return nil
}

// between returns the difference of two states of a distribution.
func between(before, after minicpmo.Distribution) minicpmo.Distribution {
	d := minicpmo.Distribution{Bounds: after.Bounds, Sum: after.Sum - before.Sum, Count: after.Count - before.Count}
	for i, n := range after.Counts {
		d.Counts = append(d.Counts, n-before.Counts[i])
	}
	return d
}
