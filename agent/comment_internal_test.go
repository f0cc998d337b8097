package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/look"
	"touchline/agent/speech"
	"touchline/internal/clocktest"
)

// TestRecordAndTheWallClock: the times of a comment in its record fit together when the wall clock is set while it is spoken.
func TestRecordAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		now := time.Now()
		r := new(Session).measure(look.Record{}, speech.Result{
			Outcome: speech.Spoken, ShownAt: now.Add(-50 * time.Millisecond),
			Started: clocktest.Step(now, step), Ended: clocktest.Step(now.Add(2*time.Second), -step),
		})
		require.Equal(t, 2*time.Second, r.EndedAt.Round(0).Sub(r.StartedAt.Round(0)), step)
		require.Equal(t, 50*time.Millisecond, r.StartedAt.Round(0).Sub(r.ShownAt.Round(0)), step)
	}
}
