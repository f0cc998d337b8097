package worlds_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/worlds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSourceKeepsTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, worlds.Options{Width: 160, Height: 90})
		s := worlds.NewSource(w)
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var last time.Time
		err := s.Run(ctx, func(n uint32, pts time.Duration, i420 []byte) error {
			last = time.Now()
			require.Equal(t, w.PTS(n), pts)
			require.InDelta(t, pts, last.Sub(start), float64(time.Millisecond))
			require.Len(t, i420, w.I420Size())
			if n == 300 {
				cancel()
			}
			return nil
		})
		require.NoError(t, err)
		require.InDelta(t, 10*time.Second, last.Sub(start), float64(time.Millisecond))
		require.Zero(t, s.Skipped())
	})
}

func TestSourceLeavesOutLateFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := worlds.NewSource(world(t, worlds.Options{Width: 160, Height: 90}))
		start, frames := time.Now(), uint32(0)
		done := errors.New("enough")
		err := s.Run(t.Context(), func(n uint32, pts time.Duration, _ []byte) error {
			require.InDelta(t, pts, time.Since(start), float64(34*time.Millisecond), "never more than a frame behind")
			frames++
			if n >= 150 {
				require.Equal(t, uint64(n+1-frames), s.Skipped())
				return done
			}
			time.Sleep(80 * time.Millisecond) // a slow encoder, in the bubble's time
			return nil
		})
		require.ErrorIs(t, err, done)
		require.Less(t, frames, uint32(70))
	})
}
