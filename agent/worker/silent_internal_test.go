package worker

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
)

// TestSilenceIsMonotonic: a step of the wall clock neither ends a connection nor hides that it is dead.
func TestSilenceIsMonotonic(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		l := &link{}
		l.received()
		require.False(t, l.silent(clocktest.Step(time.Now(), step)), step)
		require.True(t, l.silent(clocktest.Step(time.Now().Add(silentFor+time.Second), step)), step)
	}
}

// TestServerClockAndTheWallClock: ages by the server's clock do not change when this machine's clock is set.
func TestServerClockAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		for _, ahead := range []time.Duration{0, time.Hour, -31 * 24 * time.Hour} {
			var c serverClock
			local := time.Now()
			server := local.Add(ahead).Truncate(time.Second)
			c.measure(http.Header{"Date": {server.UTC().Format(http.TimeFormat)}}, local)
			got := c.now(clocktest.Step(local.Add(time.Minute), step))
			require.WithinDuration(t, server.Add(time.Minute).Round(0), got.Round(0), 2*time.Second, "%v, %v", step, ahead)
		}
	}
}
