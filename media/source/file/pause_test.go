package file_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// TestFileWaitsForItsNextPicture: however late it is due, without another epoch. Its supervisor knows when. A key frame is repeated
// meanwhile, and the sound goes on.
func TestFileWaitsForItsNextPicture(t *testing.T) {
	for name, key := range map[string]bool{"key frame": true, "other picture": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var due time.Time
				var frames []media.EncodedFrame
				var sound []time.Duration
				p := file.NewFilePacer(time.Now, source.Sink{
					Frame: func(f media.EncodedFrame) { frames = append(frames, f) },
					Due:   func(at time.Time) { due = at },
					Opus:  func(o source.Opus) { sound = append(sound, o.Received.Sub(began)) },
				})
				require.NoError(t, p.Picture(t.Context(), 0, key))
				done := make(chan error)
				go func() {
					for at := time.Duration(0); at < time.Hour; at += time.Minute {
						if err := p.Sound(t.Context(), at, []byte{0xf8, 0xff, 0xfe}); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
				require.NoError(t, p.Picture(t.Context(), time.Hour, false))
				require.NoError(t, <-done)
				require.Equal(t, time.Hour, time.Since(began))
				require.Equal(t, time.Hour, due.Sub(began))
				require.Len(t, sound, 60)
				require.Equal(t, 59*time.Minute, sound[59])
				want := 2
				if key {
					want = 3600
				}
				require.InDelta(t, want, len(frames), 1)
				for i, f := range frames {
					require.Zero(t, f.Epoch)
					require.True(t, i == 0 || f.PTS > frames[i-1].PTS)
				}
			})
		})
	}
}

// TestSleepIsNoSlowness: pictures that are late by a stopped process or a machine that slept do not count as the work of a slow machine.
func TestSleepIsNoSlowness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := file.NewFilePacer(time.Now, source.Sink{Frame: func(media.EncodedFrame) {}})
		require.NoError(t, p.Picture(t.Context(), 0, true))
		time.Sleep(time.Minute)
		require.NoError(t, p.Picture(t.Context(), time.Second, true))
		require.Zero(t, p.Behind())
		time.Sleep(4 * time.Second)
		require.NoError(t, p.Picture(t.Context(), 2*time.Second, true))
		require.Equal(t, 3*time.Second, p.Behind())
	})
}

// TestFileAndTheWallClock: a step of the wall clock moves no picture and no sound, and arrivals are by the wall clock as it is.
func TestFileAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		by := time.Duration(0)
		clock := func() time.Time { return clocktest.Step(time.Now(), by) }
		began := clock()
		var arrived []time.Time
		p := file.NewPacer(clock, source.Sink{
			Frame: func(f media.EncodedFrame) { arrived = append(arrived, f.Arrival) },
			Opus:  func(o source.Opus) { arrived = append(arrived, o.Arrival) },
		})
		require.NoError(t, p.Picture(t.Context(), 0, true))
		by = step
		require.NoError(t, p.Picture(t.Context(), 10*time.Millisecond, true))
		require.NoError(t, p.Sound(t.Context(), 20*time.Millisecond, []byte{0xf8, 0xff, 0xfe}))
		require.Len(t, arrived, 3)
		require.Equal(t, 10*time.Millisecond, arrived[1].Sub(arrived[0]), step)
		for i, at := range arrived {
			want := began
			if i > 0 {
				want = clocktest.Step(began, step)
			}
			require.WithinDuration(t, want.Round(0), at.Round(0), time.Minute, step)
		}
	}
}
