package minicpmo

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/tts"
	"touchline/models"
)

// warm runs each captured range, measures, and zeroes the cache.
func (d *device) warm(ctx context.Context, progress func(percent int)) (w warmth, err error) {
	l := d.sel.layout
	tokens, lengths := make([]int32, l.Slots), make([]int32, l.Slots)
	type job struct {
		set int
		r   kvcache.Range
	}
	var jobs []job
	for set := range d.sessions {
		if d.sel.device == models.DeviceCUDA {
			for _, r := range l.Ranges(d.sel.captured[set]) {
				jobs = append(jobs, job{set, r})
			}
		} else {
			jobs = append(jobs, job{set, kvcache.Range{Start: 0, Size: 1}})
		}
	}
	if w.prefill, err = d.warmPrefill(); err != nil {
		return w, fmt.Errorf("warm up the prefill: %w", err)
	}
	for i, j := range jobs {
		if ctx.Err() != nil {
			return w, context.Cause(ctx)
		}
		if err := d.decode(j.set, j.r, tokens, lengths, false); err != nil {
			return w, fmt.Errorf("warm up slots %d to %d: %w", j.r.Start, j.r.Start+j.r.Size-1, err)
		}
		progress((i + 1) * 80 / len(jobs))
	}
	if len(d.sessions) > 1 {
		if w.steps, err = d.measureSteps(tokens, lengths); err != nil {
			return w, err
		}
	}
	progress(90)
	if d.vision != nil {
		if w.vision, err = d.vision.warm(); err != nil {
			return w, fmt.Errorf("warm up the vision tower: %w", err)
		}
	}
	for slot := range l.Slots {
		if err := d.decoder.Clear(slot); err != nil {
			return w, err
		}
	}
	d.lastRun = time.Time{}
	progress(100)
	return w, d.dev.Synchronize()
}

// warmPrefill feeds a prompt of each padded length, and times a short and a long
// one.
func (d *device) warmPrefill() (cost, error) {
	long := min(d.sel.chunk, d.sel.layout.MaxLen-1)
	short := min(padTo, long)
	p := &prompt{ids: make([]int32, long)}
	if d.sel.several() {
		for _, n := range []int{long, short} {
			if err := d.prefill(d.sel.prefill, 0, p, 0, n, n); err != nil {
				return cost{}, err
			}
		}
	}
	if d.sel.device == models.DeviceCUDA {
		// The longest first: it grows the arena for all others.
		for n := long; n > 0; n = min(n-1, d.padded(0, n-padTo)) {
			if err := d.prefill(d.sel.prefill, 0, p, 0, n, 0); err != nil {
				return cost{}, err
			}
		}
	}
	var took [2]time.Duration
	for i, n := range []int{long, short} {
		for range 3 { // the first of a length takes longer
			begin := d.now()
			if err := d.prefill(d.sel.prefill, 0, p, 0, n, 0); err != nil {
				return cost{}, err
			}
			took[i] = d.now().Sub(begin)
		}
	}
	return lineThrough(short, took[1], long, took[0]), nil
}

// measureSteps times a decode step of each set and captured size.
func (d *device) measureSteps(tokens, lengths []int32) (stepCosts, error) {
	l := d.sel.layout
	for i := range lengths { // a usual length
		lengths[i] = int32(min(l.MaxLen/2, 400)) //nolint:gosec // bounded by the layout
	}
	var costs stepCosts
	for set := range d.sessions {
		costs = append(costs, make([]time.Duration, bits.Len(uint(l.Slots))))
		for size := 1; size <= min(l.Slots, d.sel.captured[set]); size *= 2 {
			t, err := d.time(set, kvcache.Range{Start: 0, Size: size}, tokens, lengths)
			if err != nil {
				return nil, fmt.Errorf("measure a step of %d: %w", size, err)
			}
			costs[set][bits.Len(uint(size))-1] = t
		}
	}
	return costs, nil
}

// time returns the median duration of seven steps.
func (d *device) time(set int, r kvcache.Range, tokens, lengths []int32) (time.Duration, error) {
	var took [7]time.Duration
	for i := range took {
		begin := d.now()
		if err := d.decode(set, r, tokens, lengths, false); err != nil {
			return 0, err
		}
		took[i] = d.now().Sub(begin)
	}
	slices.Sort(took[:])
	return took[len(took)/2], nil
}

// warm runs every captured range of the voice's language model, and a piece of every length.
func (m *speechLM) warm(ctx context.Context, l kvcache.Layout) error {
	if !m.onGPU() { // the CPU captures nothing
		return nil
	}
	for n := SpeechChunk; n >= 0; n-- { // the longest first: it grows the arena for all others
		p := tts.Piece{IDs: make([]int32, n), Hidden: make([]float32, n*m.hidden), Last: true}
		if _, err := m.Feed(0, 0, p); err != nil {
			return fmt.Errorf("warm up a piece of %d tokens: %w", n, err)
		}
	}
	history, lengths := make([][]int32, l.Slots), make([]int32, l.Slots)
	for i := range history {
		history[i] = []int32{0}
	}
	for _, r := range slices.Backward(l.Ranges(l.Slots)) { // as above
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := m.Step(r, history, lengths); err != nil {
			return fmt.Errorf("warm up slots %d to %d: %w", r.Start, r.Start+r.Size-1, err)
		}
	}
	for slot := range l.Slots {
		if err := m.Clear(slot); err != nil {
			return err
		}
	}
	return m.dev.Synchronize()
}

// warm runs every captured size of the voice's sound and every shape of a turn's end: the first run of a shape takes up to half a
// second. Ends of up to tts.Burst codes have one, and a shape for each longer one; in older bundles each has its own.
func (w *speechWave) warm(ctx context.Context) error {
	if w.single { // the CPU captures nothing
		return nil
	}
	run := func(slot, n int, first, last bool) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		jobs := []tts.Job{{Slot: slot, Codes: make([]int32, n), First: first, Last: last}}
		w.Run(jobs)
		if jobs[0].Err != nil {
			return fmt.Errorf("warm up a window of %d codes in slot %d: %w", n, slot, jobs[0].Err)
		}
		return nil
	}
	for size := w.slots.Slots; size > 0; size /= 2 { // the largest first: the others use its memory
		for slot := size - 1; slot >= size/2; slot -= together {
			for _, first := range []bool{false, true} { // the longer sound first, as above
				if err := run(slot, tts.WindowCodes, first, false); err != nil {
					return err
				}
			}
		}
	}
	begin := time.Now()
	for n := tts.WindowCodes - 1; n >= tts.LeadSilence; n-- {
		for _, first := range []bool{true, false} {
			if first && n == tts.LeadSilence { // a turn without codes
				continue
			}
			if w.ending != nil && (first || n < tts.Burst) { // of one shape
				continue
			}
			w.turns[0] = waveTurn{}
			if err := run(0, n, first, true); err != nil {
				return err
			}
		}
	}
	clear(w.turns)
	w.endsTook = time.Since(begin)
	return nil
}
