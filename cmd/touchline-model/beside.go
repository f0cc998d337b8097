package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/qwen3asr"
	"touchline/inference/tokenizer"
	"touchline/internal/quantile"
	"touchline/models"
)

// comment applies an open load of rooms. Loads of one bench have different numbers, so that no picture is in a cache.
func (b *bench) comment(ctx context.Context, e *minicpmo.Engine, p tokenizer.Prompt, rooms, number int) (loadRow, error) {
	load := openLoad{Rooms: rooms, Interval: b.Interval, Duration: b.Duration, Frames: 4, New: 2, Seed: 1}
	return load.run(ctx, func(ctx context.Context, room int, frames []inference.Frame, first func()) error {
		r := request(e, p, b.Answer, uint64(room)) //nolint:gosec // not negative
		r.Frames, r.Source = frames, uint64(number+1)<<32|uint64(room)
		_, err := ask(ctx, e, r, first)
		return err
	})
}

// cycles measures the cycles of a load, and returns their 95th percentile in ms.
func (b *bench) cycles(ctx context.Context, e *minicpmo.Engine, p tokenizer.Prompt, number int, what string) (float64, error) {
	rooms := b.Rooms[0]
	row, err := b.comment(ctx, e, p, rooms, number)
	if err = errors.Join(err, row.Error); err != nil {
		return 0, err
	}
	b.add(fmt.Sprintf("%d rooms%s: cycle", rooms, what), "ms", "", milliseconds(row.Whole), 0, true)
	p95 := milli(quantile.Of(row.Whole, .95))
	fmt.Fprintf(os.Stderr, "%d rooms%s: %d cycles, p95 %.0f ms, %d dropped, running after each third %v\n",
		rooms, what, row.Arrived, p95, row.Dropped, row.Backlog)
	return p95, nil
}

// beside measures the cycles of many rooms alone, and beside as many who speak on the same GPU.
func (b *bench) beside(ctx context.Context) error {
	heard, err := models.OpenBundle(b.Ears)
	if err != nil {
		return err
	}
	e, err := b.open(ctx, b.Bundle, "auto")
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	seen := newFilm(1, 1, backgrounds(newFilm(1, 0, nil).rng)).next(4, 4)
	p, err := b.text(e, seen)
	if err != nil {
		return err
	}
	// The numbers are those of no load of the table of many rooms.
	if _, err := b.cycles(ctx, e, p, 1<<16, ", to warm up"); err != nil {
		return err
	}
	alone, err := b.cycles(ctx, e, p, 1<<16+1, " alone")
	if err != nil {
		return err
	}
	o := b.earOptions()
	o.MaxTokens, o.StepTokens = clipTokens, liveTokens
	ears, err := qwen3asr.Open(ctx, heard, o)
	if err != nil {
		return err
	}
	defer func() { _ = ears.Close() }()
	if _, err := live(ctx, ears, manySpeakers, 2); err != nil { // to warm up
		return err
	}
	stop := chatter(ctx, ears)
	both, err := b.cycles(ctx, e, p, 1<<16+2, fmt.Sprintf(" beside %d who speak", manySpeakers))
	took, failed := stop()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	b.found.Detail, b.found.Device = e.Status().Detail+", "+ears.Status().Detail, "one device"
	b.found.Planned = e.Stats().MemoryPlanned + ears.Plan().Total()
	b.add(fmt.Sprintf("%d rooms beside %d who speak: p95 of a cycle to that alone", b.Rooms[0], manySpeakers), "x", "",
		[]float64{both / alone}, 1.3, true)
	b.add(fmt.Sprintf("live text each 0.5 s, %d speakers beside %d rooms, p95", manySpeakers, b.Rooms[0]), "ms", "",
		[]float64{quantile.Of(took, .95)}, 0, true)
	return nil
}

// chatter lets many speak, one utterance after the other, until stop, which returns how long each text took, in ms.
func chatter(ctx context.Context, ears *qwen3asr.Engine) (stop func() ([]float64, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var took []float64
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			more, err := live(ctx, ears, manySpeakers, liveSeconds)
			if took = append(took, more...); err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	return func() ([]float64, error) {
		cancel()
		err := <-ended
		return took, err
	}
}
