package conn

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

var errScripted = errors.New("by the script")

// scripted is a participant with a scripted server and library. It keeps the state that was reported last, as
// a page does.
type scripted struct {
	mu     sync.Mutex
	fails  map[string]bool // steps that fail at the next attempt
	cb     *lksdk.RoomCallback
	inside bool // there is a session
	broken bool // and its connection is being reconnected
	since  time.Time
	shown  bool // in the room, by the last report
}

func (g *scripted) fail(what string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fails[what] {
		g.fails[what] = false
		return errScripted
	}
	return nil
}

func (g *scripted) turn(inside, broken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turnLocked(inside, broken)
}

func (g *scripted) turnLocked(inside, broken bool) {
	if inside != g.inside || broken != g.broken {
		g.inside, g.broken, g.since = inside, broken, time.Now()
	}
}

func (g *scripted) report(in bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shown = in
}

func (g *scripted) RoomCallback(*Session) *lksdk.RoomCallback {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cb = lksdk.NewRoomCallback()
	return g.cb
}
func (g *scripted) Created(*Session) {}
func (g *scripted) Joined(*Session) error {
	if err := g.fail("joined"); err != nil {
		return err
	}
	g.report(true)
	return nil
}

func (g *scripted) Reconnected(*Session) error {
	if err := g.fail("reconnected"); err != nil {
		return err
	}
	g.report(true)
	return nil
}
func (g *scripted) Check(*Session, time.Time) error { return g.fail("check") }
func (g *scripted) Left(*Session)                   { g.turn(false, false) }

// enter is the join: it takes a moment, and the callbacks of the library work from then on.
func (g *scripted) enter(ctx context.Context, _ *Session, _ string) error {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := g.fail("join"); err != nil {
		return err
	}
	g.turn(true, false)
	return nil
}

// do has the library say something, or something fail.
func (g *scripted) do(event string) {
	cb := g.happen(event)
	if cb == nil {
		return
	}
	switch event {
	case "reconnecting":
		cb.OnReconnecting()
	case "reconnected":
		cb.OnReconnected()
	case "reconnected and reconnecting":
		cb.OnReconnected()
		cb.OnReconnecting()
	case "gone":
		cb.OnDisconnected()
	}
}

// happen changes the state, in one step: a session may end meanwhile. It returns the callbacks of the session, nil
// where there is none.
func (g *scripted) happen(event string) *lksdk.RoomCallback {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch event {
	case "join", "joined", "reconnected", "check":
		g.fails[event] = true
	}
	if !g.inside {
		return nil
	}
	switch event {
	case "reconnecting":
		g.turnLocked(true, true)
	case "reconnected and reconnecting":
		g.turnLocked(true, false)
		g.turnLocked(true, true)
	case "reconnected":
		g.turnLocked(true, false)
	case "gone":
		g.turnLocked(false, false)
	}
	return g.cb
}

// TestReportsAreTrue plays random sequences of events. Soon after each change, and at the end, the last report is
// true, both of a connection that is reconnected and of one that is not.
func TestReportsAreTrue(t *testing.T) {
	t.Parallel()
	events := []string{
		"reconnecting", "reconnecting", "reconnected", "reconnected", "reconnected and reconnecting", "gone",
		"join", "joined", "reconnected", "check",
	}
	// settles bounds the age of a wrong report: a join with its backoff, or a reconnect that is not reported at once.
	const settles = noticeAfter + 2*CheckEvery
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			g := &scripted{fails: map[string]bool{}}
			c := New(Options{
				Log: zerolog.Nop(), Token: func() (string, error) { return "", nil }, Callbacks: g, Enter: g.enter,
				OnOutage: func(error) { g.report(false) },
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			var script []string
			look := func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				if well := g.inside && !g.broken; time.Since(g.since) > settles {
					require.Equal(t, well, g.shown, "seed %d: %v", seed, script)
				}
			}
			for range 30 {
				event := events[random.IntN(len(events))]
				script = append(script, event)
				g.do(event)
				for range random.IntN(12) {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					look()
				}
			}
			g.mu.Lock()
			clear(g.fails)
			g.mu.Unlock()
			time.Sleep(reconnectGrace + 4*time.Second)
			synctest.Wait()
			look()
			g.mu.Lock()
			require.True(t, g.inside && g.shown, "seed %d: it is in the room at the end, and reports it", seed)
			g.mu.Unlock()
			cancel()
			require.NoError(t, <-ended)
			time.Sleep(time.Second) // the library releases its rooms
		})
	}
}

// frozen is a participant whose process stands still for a while, and whose connection is gone then or whose join fails.
type frozen struct {
	scripted
	once    sync.Once
	joining bool
}

func (f *frozen) Joined(*Session) (err error) {
	if f.joining {
		f.once.Do(func() {
			time.Sleep(2 * stoodStill)
			err = errScripted
		})
	}
	return err
}

func (f *frozen) Check(*Session, time.Time) error {
	f.once.Do(func() {
		time.Sleep(2 * stoodStill)
		f.cb.OnDisconnected()
	})
	return nil
}

// TestWokenProcessAsksFirst: a participant whose process stood still joins again only after the server has said that nobody has taken its
// place, or has not answered often.
func TestWokenProcessAsksFirst(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		errors   int
		replaced bool
		joins    int64
		err      error
	}{
		{"replaced", 0, true, 1, ErrReplaced},
		{"replaced, after errors", maxQuestions - 1, true, 1, ErrReplaced},
		{"not replaced, after errors", maxQuestions - 1, false, 2, nil},
		{"the server never answers", 1 << 30, true, 2, nil},
	} {
		for _, joining := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f, asked := &frozen{joining: joining}, 0
				c := New(Options{
					Token: func() (string, error) { return "", nil }, Callbacks: f, Enter: f.enter, Log: zerolog.Nop(),
					Replaced: func(context.Context, string) (bool, error) {
						if asked++; asked <= tt.errors {
							return false, errScripted
						}
						return tt.replaced, nil
					},
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.ErrorIs(t, c.Run(ctx), tt.err, tt.name)
				require.Equal(t, tt.joins, c.Joins(), tt.name)
			})
		}
	}
}

// TestOwnJoinsAreNoSuccessors: a slow join is no standstill, and an abandoned join of its own that may have taken the place does not end
// the run.
func TestOwnJoinsAreNoSuccessors(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, callbacks Callbacks, enter func(n int) error) (asked int, joins int64) {
		t.Helper()
		n := 0
		c := New(Options{
			Token: func() (string, error) { return "", nil }, Callbacks: callbacks, Log: zerolog.Nop(),
			Enter:    func(context.Context, *Session, string) error { n++; return enter(n) },
			Replaced: func(context.Context, string) (bool, error) { asked++; return true, nil },
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, c.Run(ctx))
		return asked, c.Joins()
	}
	synctest.Test(t, func(t *testing.T) {
		asked, joins := run(t, &scripted{}, func(int) error {
			time.Sleep(2 * joinTimeout)
			return nil
		})
		require.Zero(t, asked)
		require.EqualValues(t, 1, joins)
	})
	synctest.Test(t, func(t *testing.T) {
		asked, joins := run(t, &frozen{}, func(n int) error {
			if n == 1 {
				return errScripted
			}
			return nil
		})
		require.Equal(t, 1, asked)
		require.EqualValues(t, 2, joins)
	})
}
