package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/models"
)

// turn runs work of warming up on the goroutine that owns the device. at is the position of each slot that the work may write; slot is one
// that it may use as it likes.
type turn func(work func(at []int32, slot int) error) error

// usual is the position of a slot after a usual prompt.
func usual(l kvcache.Layout) int32 { return int32(min(l.MaxLen/2, 400)) }

// alone is a turn without answers.
func (d *device) alone() turn {
	at := slices.Repeat([]int32{usual(d.sel.layout)}, d.sel.layout.Slots)
	return func(work func([]int32, int) error) error { return work(at, 0) }
}

// warm warms up what is loaded, measures, and zeroes the cache.
func (d *device) warm(ctx context.Context, progress func(percent int)) (w warmth, err error) {
	alone := d.alone()
	if w.prefill, err = d.warmPrefill(d.prefillSet(), alone); err != nil {
		return w, fmt.Errorf("warm up the prefill: %w", err)
	}
	begin := d.now()
	if err := d.checkOwn(); err != nil {
		return w, fmt.Errorf("check the own kernels: %w", err)
	}
	w.ownCheck = d.now().Sub(begin)
	w.ownRows, w.noOwn = d.decoder.Own.Rows(), d.why
	if d.sel.device == models.DeviceCUDA { // a CPU's results have equal bits
		if w.storeDiffers, err = d.checkStore(0, min(1, d.sel.layout.Slots-1)); err != nil {
			return w, fmt.Errorf("check the store of prompts: %w", err)
		}
	}
	for set := range d.sessions {
		part := func(done float64) { progress(int((float64(set) + done) * 80 / float64(len(d.sessions)))) }
		if err := d.warmSet(ctx, set, &w, alone, part); err != nil {
			return w, err
		}
	}
	progress(90)
	if d.vision != nil {
		if w.vision, err = d.vision.warm(); err != nil {
			return w, fmt.Errorf("warm up the vision tower: %w", err)
		}
	}
	for slot := range d.sel.layout.Slots {
		if err := d.decoder.Clear(slot); err != nil {
			return w, err
		}
	}
	d.lastRun = time.Time{}
	progress(100)
	return w, d.dev.Synchronize()
}

// warmSet measures the steps of a weight set, unless it is the only one, and runs each captured range.
func (d *device) warmSet(ctx context.Context, set int, w *warmth, t turn, progress func(done float64)) error {
	l := d.sel.layout
	ranges := []kvcache.Range{{Size: 1}}
	if d.sel.device == models.DeviceCUDA {
		ranges = l.Ranges(d.sel.captured[set])
	}
	if len(d.sel.decoders) > 1 {
		costs, err := d.measureSteps(set, t)
		if err != nil {
			return err
		}
		w.steps = append(w.steps, costs)
	}
	tokens := make([]int32, l.Slots)
	for i, r := range ranges {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if w.needless(set, d.ownSet, r.Size) {
			continue
		}
		if err := t(func(at []int32, _ int) error { return d.decode(set, r, tokens, at, false) }); err != nil {
			return fmt.Errorf("warm up slots %d to %d: %w", r.Start, r.Start+r.Size-1, err)
		}
		progress(float64(i+1) / float64(len(ranges)))
	}
	return nil
}

// needless reports whether a set has no steps of a size because own kernels run them, wherever the slots are.
func (w *warmth) needless(set, ownSet, size int) bool {
	if size > w.ownRows || set == ownSet {
		return size <= w.ownRows
	}
	for i := 0; 1<<i <= w.ownRows; i++ {
		if i >= len(w.steps[ownSet]) || i >= len(w.steps[set]) || w.steps[set][i] <= w.steps[ownSet][i] {
			return false
		}
	}
	return true
}

// warmPrefill feeds a prompt of each padded length to a set, and times a short and a long one.
func (d *device) warmPrefill(set int, t turn) (cost, error) {
	long := min(d.sel.chunk, d.sel.layout.MaxLen-1)
	short := min(networks.PadTo, long)
	p := &prompt{ids: make([]int32, long)}
	feed := func(n, hidden int) (took time.Duration, err error) {
		err = t(func(_ []int32, slot int) error {
			begin := d.now()
			err := d.prefill(set, slot, p, 0, n, hidden)
			took = d.now().Sub(begin)
			return err
		})
		return took, err
	}
	if d.sel.several() {
		for _, n := range []int{long, short} {
			if _, err := feed(n, n); err != nil {
				return cost{}, err
			}
		}
	}
	if d.sel.device == models.DeviceCUDA {
		// The longest first: it grows the arena for all others.
		for n := long; n > 0; n = min(n-1, d.decoder.Padded(0, n-networks.PadTo)) {
			if _, err := feed(n, 0); err != nil {
				return cost{}, err
			}
		}
	}
	var took [2]time.Duration
	for i, n := range []int{long, short} {
		for range 3 { // the first of a length takes longer
			var err error
			if took[i], err = feed(n, 0); err != nil {
				return cost{}, err
			}
		}
	}
	return lineThrough(short, took[1], long, took[0]), nil
}

// measureSteps returns the median duration of seven decode steps of a set for each captured size, as a power of two.
func (d *device) measureSteps(set int, t turn) ([]time.Duration, error) {
	l := d.sel.layout
	costs, tokens := make([]time.Duration, bits.Len(uint(l.Slots))), make([]int32, l.Slots)
	for size := 1; size <= min(l.Slots, d.sel.captured[set]); size *= 2 {
		var took [7]time.Duration
		for i := range took {
			if err := t(func(at []int32, _ int) error {
				begin := d.now()
				err := d.decode(set, kvcache.Range{Size: size}, tokens, at, false)
				took[i] = d.now().Sub(begin)
				return err
			}); err != nil {
				return nil, fmt.Errorf("measure a step of %d: %w", size, err)
			}
		}
		slices.Sort(took[:])
		costs[bits.Len(uint(size))-1] = took[len(took)/2]
	}
	return costs, nil
}

// addSet warms up one more weight set, between the steps of answers. After a failure its memory is in use until close.
func (d *device) addSet(ctx context.Context, s *ort.Session, w *warmth, t turn) (err error) {
	set := len(d.sessions)
	if err := t(func([]int32, int) error {
		d.decoder.Add(s, d.sel.captured[set])
		d.sessions = append(d.sessions, s)
		return nil
	}); err != nil {
		return errors.Join(err, s.Close())
	}
	if set == d.sel.prefill {
		if w.prefill, err = d.warmPrefill(set, t); err != nil {
			return fmt.Errorf("warm up the prefill: %w", err)
		}
	}
	return d.warmSet(ctx, set, w, t, func(float64) {})
}
