package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

const soundFPS = 30 // of the camera

// measureSound compares the camera's sound with the delayed picture: their offset while D is constant and, on another
// stage at the same time, while it changes, and the ducking of the sound under speech.
func measureSound(ctx context.Context, length time.Duration, log zerolog.Logger) ([]row, error) {
	var still, moving []time.Duration
	var lower []float64
	var jumps uint64
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		still, lower, err = soundAtRest(ctx, length, log)
		return err
	})
	g.Go(func() (err error) {
		moving, jumps, err = soundOnTheMove(ctx, length, log)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return append(offsetRows(fmt.Sprintf("D at 2 s, %d beeps", len(still)), still, 60),
		between(fmt.Sprintf("lower under speech, %d comments, median", len(lower)), lower[len(lower)/2], 10, 14, "dB"),
		offsetRows(fmt.Sprintf("D to 2.5 s and back, %d beeps", len(moving)), moving, 100)[0],
		note("jumps of the sound meanwhile", strconv.FormatUint(jumps, 10)),
	), nil
}

// soundStage has a camera with beeps, and a viewer.
func soundStage(ctx context.Context, hum bool, pause time.Duration, log zerolog.Logger) (*stage.Stage, *stage.Viewer, error) {
	cfg := fixedDelay()
	cfg.Pacing.PauseAfter = pause
	return watchedStage(ctx, stage.Options{
		Model: stage.NewEngine(1, time.Second, time.Second), Config: &cfg, Seed: 5, FPS: soundFPS, Sound: stage.Beeps(hum), Log: log,
	})
}

// soundAtRest keeps D constant and leaves pauses between comments, for the level of the hum without speech.
func soundAtRest(ctx context.Context, length time.Duration, log zerolog.Logger) (offsets []time.Duration, lower []float64, err error) {
	s, v, err := soundStage(ctx, true, 2*time.Second, log)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	if err := stage.Wait(ctx, length); err != nil {
		return nil, nil, err
	}
	_, err = stage.Until(ctx, time.Minute, "5 beeps and 2 comments", func() bool {
		seen := v.Seen()
		offsets, lower = stage.BeepOffsets(seen, soundFPS), stage.Ducking(seen)
		return len(offsets) >= 5 && len(lower) >= 2
	})
	return offsets, lower, errors.Join(err, s.Errors())
}

// soundOnTheMove changes D; the beeps leave silence for the adjustment.
func soundOnTheMove(ctx context.Context, length time.Duration, log zerolog.Logger) ([]time.Duration, uint64, error) {
	s, v, err := soundStage(ctx, false, 500*time.Millisecond, log)
	if err != nil {
		return nil, 0, err
	}
	defer s.Close()
	_, err = stage.Until(ctx, 30*time.Second, "the first beep", func() bool { return len(stage.BeepOffsets(v.Seen(), soundFPS)) > 0 })
	if err != nil {
		return nil, 0, errors.Join(err, s.Errors())
	}
	for _, d := range []float64{2.5, 2} {
		if _, err := s.Bot.Change(agent.Change{Settings: agent.Settings{FixedDelay: &d}}, "measurement"); err != nil {
			return nil, 0, err
		}
		if err := stage.Wait(ctx, max(length/2, 7*time.Second)); err != nil {
			return nil, 0, err
		}
	}
	all := stage.BeepOffsets(v.Seen(), soundFPS)
	if len(all) < 5 {
		return nil, 0, fmt.Errorf("%d beeps heard while D changed; need 5", len(all))
	}
	return all, s.Bot.Sound().Jumps, s.Errors()
}

// offsetRows returns the rows about the offset of sound and picture.
func offsetRows(what string, offsets []time.Duration, most float64) []row {
	slices.Sort(offsets)
	return []row{
		atMost("sound and picture apart, "+what+", p95", ms(quantile.Of(absolute(offsets), 0.95)), most, "ms"),
		note("sound later than picture, median", fmt.Sprintf("%.1f ms", ms(offsets[len(offsets)/2]))),
	}
}
