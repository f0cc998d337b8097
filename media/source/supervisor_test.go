package source_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/source"
)

// scripted is a source with a script for each opening; the last one repeats.
type scripted struct {
	opened []time.Time
	plays  []func(ctx context.Context, out source.Sink) error
}

func (s *scripted) Pull(ctx context.Context, out source.Sink) error {
	play := s.plays[min(len(s.opened), len(s.plays)-1)]
	s.opened = append(s.opened, time.Now())
	return play(ctx, out)
}

// frames plays n pictures at 30 a second, the first of each ten a key frame, then returns err.
func frames(n, w, h int, err error) func(context.Context, source.Sink) error {
	return func(ctx context.Context, out source.Sink) error {
		for i := range n {
			out.Frame(media.EncodedFrame{
				Codec: media.H264, KeyFrame: i%10 == 0, PTS: time.Duration(i) * time.Second / 30, Width: w, Height: h,
			})
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second / 30):
			}
		}
		return err
	}
}

// silence is a source that stays open without frames.
func silence(ctx context.Context, _ source.Sink) error {
	<-ctx.Done()
	return ctx.Err()
}

func refuse(context.Context, source.Sink) error { return errors.New("connection refused") }

type run struct {
	states []source.Status
	frames []media.EncodedFrame
	err    error
}

// supervise runs s for a time.
func supervise(t *testing.T, s source.Puller, d time.Duration, change func(*source.Options)) run {
	t.Helper()
	var r run
	var mu sync.Mutex
	o := source.Options{
		Puller: s, Now: time.Now, Random: func() float64 { return 0.5 },
		Sink: source.Sink{Frame: func(f media.EncodedFrame) { r.frames = append(r.frames, f) }},
		OnStatus: func(st source.Status) {
			mu.Lock()
			defer mu.Unlock()
			r.states = append(r.states, st)
		},
	}
	if change != nil {
		change(&o)
	}
	sup, err := source.NewSupervisor(o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	r.err = sup.Run(ctx)
	return r
}

func names(states []source.Status) string {
	var out []string
	for _, s := range states {
		if len(out) == 0 || out[len(out)-1] != s.State.String() {
			out = append(out, s.State.String())
		}
	}
	return strings.Join(out, " ")
}

func TestSupervisorComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{plays: []func(context.Context, source.Sink) error{
			frames(300, 640, 360, errors.New("broken pipe")), refuse, refuse, frames(60, 1280, 720, source.ErrEnded),
		}}
		r := supervise(t, s, time.Minute, nil)
		require.NoError(t, r.err)
		require.Equal(t, "connecting live waiting live ended", names(r.states))
		require.Len(t, r.frames, 360)
		require.NotEqual(t, r.frames[0].Epoch, r.frames[359].Epoch, "each opening has epochs of its own")
		last := r.states[len(r.states)-1]
		require.Equal(t, 1280, last.Width)
		require.EqualValues(t, 1, last.Changes)
		require.InDelta(t, 1./3, last.KeyEvery.Seconds(), 1e-6)
		for _, st := range r.states {
			if st.State == source.Waiting {
				require.Contains(t, []string{"broken pipe", "connection refused"}, st.Reason)
			}
		}
	})
}

// The waits grow to a second, stay there for five minutes and then grow to fifteen seconds, each less its jitter.
func TestSupervisorBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{plays: []func(context.Context, source.Sink) error{refuse}}
		r := supervise(t, s, 7*time.Minute, nil)
		require.NoError(t, r.err)
		require.Equal(t, "connecting waiting ended", names(r.states), "it does not flicker")
		start := s.opened[0]
		for i := 1; i < len(s.opened); i++ {
			gap, age := s.opened[i].Sub(s.opened[i-1]), s.opened[i-1].Sub(start)
			switch {
			case age < 5*time.Second:
				require.LessOrEqual(t, gap, time.Second)
			case age < 4*time.Minute+58*time.Second:
				require.Equal(t, 750*time.Millisecond, gap)
			case age > 5*time.Minute+15*time.Second:
				require.Equal(t, 11250*time.Millisecond, gap)
			}
		}
	})
}

// A camera that closes each connection at once is retried with growing waits.
func TestSupervisorDoesNotHammer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{plays: []func(context.Context, source.Sink) error{frames(1, 640, 360, errors.New("reset"))}}
		supervise(t, s, time.Minute, nil)
		require.Less(t, len(s.opened), 85)
	})
}

func TestSupervisorNoticesAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{plays: []func(context.Context, source.Sink) error{
			func(ctx context.Context, out source.Sink) error {
				if err := frames(30, 640, 360, nil)(ctx, out); err != nil {
					return err
				}
				return silence(ctx, out)
			},
			frames(30, 640, 360, source.ErrEnded),
		}}
		began := time.Now()
		r := supervise(t, s, time.Minute, nil)
		require.NoError(t, r.err)
		require.Equal(t, "connecting live stalled live ended", names(r.states))
		for _, st := range r.states {
			if st.State == source.Stalled {
				since := st.Since.Sub(began) - 29*time.Second/30
				require.Equal(t, 5*time.Second, since.Round(10*time.Millisecond))
			}
		}
	})
}

func TestSupervisorGivesUpOnAnOpeningWithoutPictures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{plays: []func(context.Context, source.Sink) error{silence, frames(3, 64, 64, source.ErrEnded)}}
		r := supervise(t, s, time.Minute, nil)
		require.NoError(t, r.err)
		require.Equal(t, "connecting waiting live ended", names(r.states))
		require.Equal(t, 15*time.Second, s.opened[1].Sub(s.opened[0]).Truncate(time.Second))
		require.Contains(t, r.states[1].Reason, "no picture within 15s")
	})
}

func TestSupervisorFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := errors.New("the camera refuses hunter2")
		s := &scripted{plays: []func(context.Context, source.Sink) error{
			func(context.Context, source.Sink) error { return source.Permanent(wrong) },
		}}
		r := supervise(t, s, time.Minute, func(o *source.Options) {
			o.Hide = func(s string) string { return strings.ReplaceAll(s, "hunter2", "...") }
		})
		require.ErrorIs(t, r.err, wrong)
		require.NotContains(t, r.err.Error(), "hunter2")
		require.Equal(t, "connecting failed", names(r.states))
		require.Equal(t, "the camera refuses ...", r.states[1].Reason)
		require.Len(t, s.opened, 1)
	})
}

// Before the first picture only what was typed ends a source. A refused password is tried every five minutes.
func TestSupervisorAsksForAPasswordSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := func(context.Context, source.Sink) error { return source.Locked(source.Errorf("wrong password")) }
		s := &scripted{plays: []func(context.Context, source.Sink) error{no, no, frames(3, 64, 64, source.ErrEnded)}}
		r := supervise(t, s, time.Hour, nil)
		require.NoError(t, r.err)
		require.Equal(t, "connecting waiting live ended", names(r.states))
		require.Contains(t, r.states[1].Reason, "wrong password; it is asked again every 5 minutes")
		for i := range 2 {
			require.Equal(t, 5*time.Minute, s.opened[i+1].Sub(s.opened[i]).Round(time.Second))
		}
	})
}

// After its first picture a source comes back whatever happened: refusals are retried after 15 s and up to 5 min.
func TestSupervisorRetriesRefusalsAfterAPicture(t *testing.T) {
	for name, mark := range map[string]func(error) error{
		"permanent": source.Permanent, "refused": source.Refused, "password": source.Locked,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				no := func(context.Context, source.Sink) error { return mark(errors.New("go away")) }
				plays := []func(context.Context, source.Sink) error{frames(300, 64, 64, errors.New("reset"))}
				s := &scripted{plays: append(plays, no, no, no, no, no, no, no, frames(3, 64, 64, source.ErrEnded))}
				r := supervise(t, s, time.Hour, nil)
				require.NoError(t, r.err)
				require.Equal(t, "connecting live waiting live ended", names(r.states))
				var waits []time.Duration
				for i := 2; i < len(s.opened); i++ {
					waits = append(waits, s.opened[i].Sub(s.opened[i-1]).Round(time.Second))
				}
				require.Equal(t, []time.Duration{
					15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute,
				}, waits)
				var since []time.Time
				for _, st := range r.states {
					if st.Reason == "go away" {
						since = append(since, st.Since)
					}
				}
				require.Len(t, since, 1, "one outage has one beginning")
			})
		})
	}
}

// Secrets are hidden in foreign texts, never in the program's own words.
func TestReasonsHideForeignTextOnly(t *testing.T) {
	address, err := source.ParseAddress("rtsp://camera:password@10.0.0.1/x?503")
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"own":     {source.Locked(source.Errorf("the camera refuses the user or the password")), "the camera refuses the user or the password"},
		"status":  {source.Errorf("the camera answers with status %d", 503), "the camera answers with status 503"},
		"foreign": {errors.New("dial camera:password@10.0.0.1"), "dial ...@10.0.0.1"},
		"mixed":   {source.Errorf("read from the camera: %w", errors.New("bad password")), "read from the camera: bad ..."},
		"word":    {source.Errorf("the camera sends %q", "password"), `the camera sends "..."`},
		"wrapped": {fmt.Errorf("password: %w", source.Errorf("the camera")), "...: the camera"},
		"joined":  {errors.Join(source.Errorf("open the camera"), errors.New("no password")), "open the camera; no ..."},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{plays: []func(context.Context, source.Sink) error{func(context.Context, source.Sink) error { return tt.err }}}
				r := supervise(t, s, time.Second, func(o *source.Options) { o.Hide = address.Hide })
				require.Equal(t, tt.want, strings.SplitN(r.states[1].Reason, "; it is asked", 2)[0])
			})
		})
	}
}

// A source that does not end has a reason.
func TestSupervisorOfASourceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{plays: []func(context.Context, source.Sink) error{func(context.Context, source.Sink) error {
			time.Sleep(time.Hour)
			return nil
		}}}
		r := supervise(t, s, time.Minute, nil)
		require.Equal(t, "connecting waiting ended", names(r.states))
		require.Equal(t, "connected, but no picture within 15s", r.states[1].Reason)
	})
}

// A source tells what came although no picture did.
func TestSupervisorQuotesWhatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{plays: []func(context.Context, source.Sink) error{func(ctx context.Context, _ source.Sink) error {
			<-ctx.Done()
			return source.Errorf("%w: only sound came", context.Cause(ctx))
		}}}
		r := supervise(t, s, time.Minute, nil)
		require.Equal(t, "connected, but no picture within 15s: only sound came", r.states[1].Reason)
	})
}

// A panic of the source or its sink, on any goroutine, ends that source alone.
func TestSupervisorGivesUpAfterAPanic(t *testing.T) {
	elsewhere := func(ctx context.Context, out source.Sink) error {
		go out.Frame(media.EncodedFrame{Codec: media.H264, KeyFrame: true}) // as a library's goroutine does
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for name, play := range map[string]func(context.Context, source.Sink) error{
		"source": func(context.Context, source.Sink) error { panic("a strange packet") },
		"sink":   elsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{plays: []func(context.Context, source.Sink) error{play}}
				r := supervise(t, s, time.Minute, func(o *source.Options) {
					o.Sink.Frame = func(media.EncodedFrame) { panic("a strange packet") }
				})
				p, crash := rescue.Of(r.err)
				require.True(t, crash, "it ended with %v", r.err)
				require.Equal(t, "a strange packet", p.Value)
				require.Len(t, s.opened, 1, "it is not tried again")
				require.Equal(t, source.Failed, r.states[len(r.states)-1].State)
				require.Contains(t, r.states[len(r.states)-1].Reason, "a strange packet")
			})
		})
	}
}
