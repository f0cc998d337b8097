package minicpmo

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/models"
)

// warm runs each captured range, measures, and zeroes the cache.
func (d *device) warm(ctx context.Context, progress func(percent int)) (w warmth, err error) {
	l := d.sel.layout
	tokens, lengths := make([]int32, l.Slots), make([]int32, l.Slots)
	if w.prefill, err = d.warmPrefill(); err != nil {
		return w, fmt.Errorf("warm up the prefill: %w", err)
	}
	if err := d.checkOwn(); err != nil {
		return w, fmt.Errorf("check the own kernels: %w", err)
	}
	w.ownRows = d.decoder.Own.Rows()
	if d.sel.device == models.DeviceCUDA { // a CPU's results have equal bits
		if w.storeDiffers, err = d.checkStore(); err != nil {
			return w, fmt.Errorf("check the store of prompts: %w", err)
		}
	}
	type job struct {
		set int
		r   kvcache.Range
	}
	var jobs []job
	for set := range d.sessions {
		if d.sel.device == models.DeviceCUDA {
			captured := d.sel.captured[set]
			if set == d.ownSet && captured <= w.ownRows {
				captured = 0 // nothing to capture
			}
			for _, r := range l.Ranges(captured) {
				jobs = append(jobs, job{set, r})
			}
		} else {
			jobs = append(jobs, job{set, kvcache.Range{Start: 0, Size: 1}})
		}
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
	short := min(networks.PadTo, long)
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
		for n := long; n > 0; n = min(n-1, d.decoder.Padded(0, n-networks.PadTo)) {
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
		lengths[i] = int32(min(l.MaxLen/2, 400))
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
