package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimesAreMonotonic: a step of the wall clock does not hide a camera that died.
func TestTimesAreMonotonic(t *testing.T) {
	t.Parallel()
	monotonic := func(at time.Time) {
		t.Helper()
		require.WithinDuration(t, time.Now(), at, time.Minute)
		require.NotEqual(t, at, at.Round(0), "a time without its monotonic reading follows the wall clock")
	}
	r := &trackReader{}
	require.True(t, r.lastPacket().IsZero())
	now := time.Now()
	r.last.Store(&now)
	monotonic(r.lastPacket())
}
