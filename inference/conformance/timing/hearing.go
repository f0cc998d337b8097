package timing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"touchline/inference/qwen3asr"
	"touchline/models"
)

// HearingStages holds the durations of the runs of recognition, by their size.
type HearingStages struct {
	Device string
	// Encode is a run of whole windows, Prefill one of prompts of Positions each, Decode a step.
	Encode, Prefill, Decode map[int]Runs
	Positions               int
}

// TimeHearing loads a bundle and times each kind of run for each size: windows, prompts or answers at once. The device must be
// otherwise idle.
func TimeHearing(
	ctx context.Context, b *models.Bundle, o qwen3asr.Options, runs int, sizes []int, now func() time.Time,
) (s HearingStages, err error) {
	onThread(func() { s, err = timeHearing(ctx, b, o, sizes, timer{ctx: ctx, now: now, runs: runs}) })
	return s, err
}

func timeHearing(ctx context.Context, b *models.Bundle, o qwen3asr.Options, sizes []int, t timer) (s HearingStages, err error) {
	d, err := qwen3asr.OpenDevice(ctx, b, o)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	s = HearingStages{
		Device: d.Name(), Positions: d.Positions, Encode: map[int]Runs{}, Prefill: map[int]Runs{}, Decode: map[int]Runs{},
	}
	for _, n := range sizes {
		for _, stage := range []struct {
			what string
			into map[int]Runs
			run  func() error
		}{{"encode", s.Encode, d.Encode(n)}, {"prefill", s.Prefill, d.Prefill(n)}, {"decode", s.Decode, d.Decode(n)}} {
			if stage.run != nil {
				stage.into[n] = t.time(fmt.Sprintf("%s of %d", stage.what, n), stage.run)
			}
		}
	}
	return s, t.err
}
