package media_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
)

// TestTicks converts counts whose product with time.Second does not fit into an int64: 28 hours at 90 kHz, 53 at 48 kHz.
func TestTicks(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{8000, 44100, 48000, media.VideoClockRate} {
		for _, seconds := range []int64{0, 1, 3600, 30 * 3600, 60 * 3600, 10 * 365 * 24 * 3600} {
			for _, rest := range []int64{0, 1, rate / 3, rate - 1} {
				ticks := seconds*rate + rest
				want := time.Duration(seconds)*time.Second + time.Duration(rest*int64(time.Second)/rate)
				got := media.TicksToDuration(ticks, rate)
				require.Equal(t, want, got, "%d at %d Hz", ticks, rate)
				require.Equal(t, -want, media.TicksToDuration(-ticks, rate))
				require.InDelta(t, ticks, media.DurationToTicks(got, rate), 1)
				require.InDelta(t, -ticks, media.DurationToTicks(-got, rate), 1)
			}
		}
	}
}
