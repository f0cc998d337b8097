package limit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
	"touchline/internal/limit"
)

// TestLimitsAndTheWallClock: a step of the clock neither frees a bucket nor locks one.
func TestLimitsAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		l := limit.New[string](1, 1)
		now := time.Now()
		_, ok := l.Allow("a", now)
		require.True(t, ok)
		wait, ok := l.Allow("a", clocktest.Step(now.Add(400*time.Millisecond), step))
		require.False(t, ok, step)
		require.InDelta(t, 0.6, wait.Seconds(), 0.01, step)
		_, ok = l.Allow("a", clocktest.Step(now.Add(1100*time.Millisecond), step))
		require.True(t, ok, step)
	}
}
