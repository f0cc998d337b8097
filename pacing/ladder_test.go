package pacing_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/pacing"
)

var rungs = []pacing.Rung{
	{"low", 4, 0}, {"near", 4, 1500 * time.Millisecond}, {"long", 8, time.Second}, {"all", 10, 800 * time.Millisecond},
}

// TestLadder drives an engine that takes a base time and a time for each picture, and is shared with others for a while.
func TestLadder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(0, 0)
	drive := func(l *pacing.Ladder, picture time.Duration, minutes int) (path []string) {
		for end := now.Add(time.Duration(minutes) * time.Minute); now.Before(end); {
			cycle := time.Duration(float64(picture) * l.Rung().Cost * (0.8 + 0.4*rng.Float64()))
			now = now.Add(cycle + time.Second)
			if why, moved := l.Observe(cycle, now); moved {
				require.NotEmpty(t, why)
				path = append(path, l.Rung().Name)
			}
		}
		return path
	}
	l := pacing.NewLadder(rungs, 1)
	require.Equal(t, []string{"long", "all"}, drive(l, 30*time.Millisecond, 5), "a fast engine")
	require.Equal(t, []string{"long", "near"}, drive(l, 150*time.Millisecond, 5), "with other rooms beside it")
	require.Equal(t, []string{"low"}, drive(l, 500*time.Millisecond, 5), "and more")
	require.Equal(t, []string{"near", "long", "all"}, drive(l, 30*time.Millisecond, 20), "alone again")

	// Near a limit it does not go up and down all the time.
	for _, ms := range []int{75, 80, 85, 100, 110, 125, 150, 350, 400} {
		l = pacing.NewLadder(rungs, 1)
		require.LessOrEqual(t, len(drive(l, time.Duration(ms)*time.Millisecond, 30)), 8, ms)
	}

	l = pacing.NewLadder(rungs, 1)
	for {
		if _, moved := l.Observe(time.Millisecond, now); moved {
			break
		}
	}
	l.Stay()
	require.Equal(t, "near", l.Rung().Name)
	require.Empty(t, drive(l, time.Millisecond, 5), "that rung is gone, and those above it")
}
