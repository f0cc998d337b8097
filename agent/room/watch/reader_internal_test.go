package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
)

// TestTimesAreMonotonic: a step of the wall clock does not hide a camera that died.
func TestTimesAreMonotonic(t *testing.T) {
	t.Parallel()
	r := &trackReader{}
	require.True(t, r.lastPacket().IsZero())
	now := time.Now()
	r.last.Store(&now)
	for _, step := range clocktest.Steps {
		require.Equal(t, time.Minute, clocktest.Step(now.Add(time.Minute), step).Sub(r.lastPacket()), step)
	}
}
