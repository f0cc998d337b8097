package file_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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
