package source_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
)

// TestPauseIsNoStall: a source that knows when its next picture is due is not stalled before, and is stalled soon after.
func TestPauseIsNoStall(t *testing.T) {
	for name, tt := range map[string]struct {
		late time.Duration
		want string
	}{
		"in time":  {0, "connecting live ended"},
		"too late": {time.Hour, "connecting live stalled live ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const pause = 100 * time.Second
				wait := func(ctx context.Context, d time.Duration) {
					select {
					case <-ctx.Done():
					case <-time.After(d):
					}
				}
				s := &scripted{plays: []func(context.Context, source.Sink) error{
					func(ctx context.Context, out source.Sink) error {
						out.Frame(media.EncodedFrame{Codec: media.H264, KeyFrame: true})
						out.Due(time.Now().Add(pause))
						wait(ctx, pause+tt.late)
						if ctx.Err() != nil {
							return ctx.Err()
						}
						out.Frame(media.EncodedFrame{Codec: media.H264, PTS: pause})
						return source.ErrEnded
					},
					frames(30, 640, 360, source.ErrEnded),
				}}
				r := supervise(t, s, time.Hour/2, nil)
				require.NoError(t, r.err)
				require.Equal(t, tt.want, names(r.states))
				for _, st := range r.states {
					if st.State == source.Stalled {
						require.Equal(t, pause+5*time.Second, st.Since.Sub(s.opened[0]))
					}
				}
			})
		})
	}
}

// TestSlowSources: a source that sends a picture in many seconds is opened a few times, until its interval is known, and then stays live.
func TestSlowSources(t *testing.T) {
	for name, tt := range map[string]struct {
		first, every time.Duration
		most         int // openings
	}{
		"6.5 s, the first at once":   {0, 6500 * time.Millisecond, 2},
		"20 s, the first at once":    {0, 20 * time.Second, 4},
		"20 s, the first two bursts": {-1, 20 * time.Second, 4},
		"snapshot that takes 6 s":    {6 * time.Second, 6 * time.Second, 1},
		"snapshot that takes 20 s":   {20 * time.Second, 20 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{plays: []func(context.Context, source.Sink) error{func(ctx context.Context, out source.Sink) error {
					if tt.first < 0 {
						out.Frame(media.EncodedFrame{KeyFrame: true})
					}
					for wait := max(0, tt.first); ; wait = tt.every {
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(wait):
							out.Frame(media.EncodedFrame{KeyFrame: true})
						}
					}
				}}}
				r := supervise(t, s, time.Hour, nil)
				require.NoError(t, r.err)
				require.LessOrEqual(t, len(s.opened), tt.most)
				require.Less(t, s.opened[len(s.opened)-1].Sub(s.opened[0]), 2*time.Minute)
			})
		})
	}
}

// TestSourceThatSendsOnePicture: a source that hangs after its first picture is opened again within a minute, for ever.
func TestSourceThatSendsOnePicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{plays: []func(context.Context, source.Sink) error{func(ctx context.Context, out source.Sink) error {
			out.Frame(media.EncodedFrame{KeyFrame: true})
			return silence(ctx, out)
		}}}
		supervise(t, s, time.Hour, nil)
		require.Greater(t, len(s.opened), 120)
	})
}
