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
