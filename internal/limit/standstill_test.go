package limit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
	"touchline/internal/limit"
)

// TestStandstill: what comes after a standstill is stale until the system has no more from before, and so is what came before it. Steps of
// the wall clock are no standstill.
func TestStandstill(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		now := time.Now()
		after := func(d time.Duration) time.Time { return clocktest.Step(now.Add(d), step) }
		var s limit.Standstill
		require.False(t, s.Stale(now, now), "no check yet")
		s.Check(now)
		require.False(t, s.Stale(after(time.Second), after(time.Second)))
		s.Check(after(time.Second))
		require.False(t, s.Stale(after(30*time.Second), after(30*time.Second)), "a slow machine")
		require.True(t, s.Stale(after(62*time.Second), after(62*time.Second)))
		s.Check(after(62 * time.Second))
		require.True(t, s.Stale(after(63*time.Second), after(63*time.Second)))
		s.Check(after(63 * time.Second))
		require.False(t, s.Stale(after(65*time.Second), after(65*time.Second)))
		require.True(t, s.Stale(after(10*time.Second), after(65*time.Second)), "speech that began before")
		s.Reset(after(200 * time.Second)) // after a second standstill
		s.Check(after(200 * time.Second))
		require.False(t, s.Stale(after(200*time.Second), after(200*time.Second)), "another connection")
		require.True(t, s.Stale(after(199*time.Second), after(200*time.Second)), "what came by the one before")
	}
}
