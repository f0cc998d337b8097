package qwen3asr

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/mel"
	"touchline/inference/step"
	"touchline/models"
)

// Stages holds the durations of the device's runs without the loop, by their size: copies in, the graph, copies out.
type Stages struct {
	Device string
	// Encode is a run of whole windows, Prefill one of prompts of Positions each, Decode a step.
	Encode, Prefill, Decode map[int][]time.Duration
	Positions               int
}

// TimeStages loads a bundle and times each kind of run for so many windows, prompts or answers at once. The device must be
// otherwise idle.
func TimeStages(ctx context.Context, b *models.Bundle, o Options, runs int, sizes []int, now func() time.Time) (s Stages, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // captured graphs belong to the thread
		s, err = timeStages(ctx, b, o, runs, sizes, now)
	}()
	<-done
	return s, err
}

func timeStages(ctx context.Context, b *models.Bundle, o Options, runs int, sizes []int, now func() time.Time) (s Stages, err error) {
	e := &Engine{name: b.Manifest.Name, o: o.withDefaults()}
	if err := e.check(b); err != nil {
		return s, err
	}
	rt, dev, release, err := step.OpenDevice(e.o.Runtime, e.o.Device, e.o.GPU, step.Commentary)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, release()) }()
	sel, err := e.choose(b, dev)
	if err != nil {
		return s, err
	}
	d, err := openDevice(sel, rt, dev, o.Threads, func(string) {})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.warm(); err != nil {
		return s, err
	}
	s = Stages{Device: dev.Name()}
	return s, s.measure(d, sizes, func(work func() error) ([]time.Duration, error) {
		const first = 3 // that are not counted
		var took []time.Duration
		for i := range runs + first {
			begin := now()
			if err := errors.Join(ctx.Err(), work()); err != nil {
				return nil, err
			}
			if i >= first {
				took = append(took, now().Sub(begin))
			}
		}
		return took, nil
	})
}

// measure measures all runs of the given sizes that the device has.
func (s *Stages) measure(d *device, sizes []int, timed func(work func() error) ([]time.Duration, error)) (err error) {
	s.Encode, s.Prefill, s.Decode = map[int][]time.Duration{}, map[int][]time.Duration{}, map[int][]time.Duration{}
	l, h := d.sel.layout, d.encoder.dims
	s.Positions = min(126, d.sel.chunk-1)
	frames := h.Chunk * h.Window
	whole := make([]*window, d.sel.batch)
	for i := range whole {
		whole[i] = &window{mel: make([]float32, mel.SpeechBins*frames), frames: frames, rows: h.Rows(frames)}
	}
	asked := &job{prompt: prompt{ids: make([]int32, s.Positions+1)}}
	tokens, lengths := make([]int32, l.Slots), make([]int32, l.Slots)
	for i := range lengths {
		lengths[i] = int32(s.Positions) //nolint:gosec // bounded by the layout
	}
	add := func(what string, into map[int][]time.Duration, n int, work func() error) {
		if err != nil {
			return
		}
		if into[n], err = timed(work); err != nil {
			err = fmt.Errorf("%s of %d: %w", what, n, err)
		}
	}
	for _, n := range sizes {
		r := kvcache.Range{Start: 0, Size: n}
		if n <= d.sel.batch {
			add("encode", s.Encode, n, func() error { return d.encode(whole[:n]) })
		}
		switch {
		case n == 1:
			add("prefill", s.Prefill, n, func() error { return d.prefill(asked, 0, s.Positions) })
		case n <= l.Slots && n*s.Positions <= d.sel.together:
			add("prefill", s.Prefill, n, func() error { return d.begin(slices.Repeat([]*job{asked}, n), r) })
		}
		if n <= l.Slots {
			add("decode", s.Decode, n, func() error { return d.decode(r, tokens, lengths) })
		}
	}
	return err
}
