package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference"
	"touchline/inference/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script counts its loads, sessions and prompts. It answers each prompt with its
// text after a second.
type script struct {
	t     *testing.T
	think time.Duration
	rooms int // at once

	mu       sync.Mutex
	loads    int
	closes   int
	open     int // sessions
	busy     int
	asked    []string
	observed int
	fail     error // of the next loads
	sick     bool  // Status is failed
}

func (e *script) load(ctx context.Context, progress engine.Progress) (inference.Model, error) {
	for i := range 5 {
		progress(i*20, fmt.Sprintf("part %d", i))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return nil, e.fail
	}
	e.loads++
	e.sick = false
	return &model{e}, nil
}

func (e *script) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

type model struct{ e *script }

func (m *model) Name() string { return "small engine" }

func (m *model) Status() inference.Status {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	if m.e.sick {
		return inference.Status{Phase: inference.PhaseFailed, Detail: "the device fell off"}
	}
	return inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: "well"}
}

func (m *model) Capabilities() inference.Capabilities {
	return inference.Capabilities{Instructions: true}
}

func (m *model) NewSession() (inference.Session, error) {
	m.e.set(func() { m.e.open++ })
	return &conversation{e: m.e}, nil
}

func (m *model) Close() error {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	require.Zero(m.e.t, m.e.open, "sessions are closed before the model")
	require.Zero(m.e.t, m.e.busy, "no prompt is under way")
	m.e.closes++
	require.Equal(m.e.t, m.e.loads, m.e.closes, "closed once per load")
	return nil
}

type conversation struct {
	e       *script
	watched func(inference.Sight)
}

func (c *conversation) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		c.e.set(func() {
			c.e.busy++
			require.LessOrEqual(c.e.t, c.e.busy, max(c.e.rooms, 1))
			c.e.asked = append(c.e.asked, p.Text)
		})
		defer c.e.set(func() { c.e.busy-- })
		if p.Text == "panic" {
			panic("as asked")
		}
		select {
		case <-time.After(c.e.think):
			yield(inference.Chunk{Text: p.Text}, nil)
		case <-ctx.Done():
			yield(inference.Chunk{}, ctx.Err())
		}
	}
}

// Speak implements inference.Speaker when the engine has a voice.
func (c *conversation) Speak(_ context.Context, text, voice, _ string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: voice + ": " + text}, nil) }
}

func (c *conversation) Observe(inference.Frame) {
	c.e.set(func() { c.e.observed++ })
	if c.watched != nil {
		c.watched(inference.Sight{Texts: []string{"OPEN"}})
	}
}

func (*conversation) Forget() {}

func (c *conversation) Sight() (inference.Sight, bool) { return inference.Sight{}, true }

func (c *conversation) Watch(f func(inference.Sight)) { c.watched = f }

func (c *conversation) Close() error {
	c.e.set(func() { c.e.open-- })
	return nil
}

// start runs a ModelManager until the test ends.
func start(t *testing.T, o engine.Options) (*script, *engine.ModelManager) {
	t.Helper()
	e := &script{t: t, think: time.Second, rooms: o.Parallel}
	k, err := engine.New(e.load, o)
	require.NoError(t, err)
	ran := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ran <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ran)
		e.set(func() { require.Equal(t, e.loads, e.closes, "what was loaded was closed") })
	})
	synctest.Wait()
	return e, k
}

func open(t *testing.T, k *engine.ModelManager) inference.Session {
	t.Helper()
	s, err := k.NewSession()
	require.NoError(t, err)
	return s
}

func ask(ctx context.Context, s inference.Session, p inference.Prompt) (string, error) {
	var text strings.Builder
	for c, err := range s.Generate(ctx, p) {
		if err != nil {
			return text.String(), err
		}
		text.WriteString(c.Text)
	}
	return text.String(), nil
}

func TestLoadsOnDemandAndShowsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warm := func(_ context.Context, m inference.Model, progress engine.Progress) error {
			require.Equal(t, "small engine", m.Name())
			<-time.After(time.Second)
			progress(50, "half warm")
			<-time.After(time.Second)
			return nil
		}
		e, k := start(t, engine.Options{Name: "engine", Warm: warm})
		time.Sleep(time.Hour)
		require.Equal(t, inference.Status{Phase: inference.PhaseUnloaded, Detail: "loads on demand"}, k.Status())
		require.Zero(t, e.loads)
		require.Equal(t, "engine", k.Name())

		s := open(t, k)
		defer s.Close()
		synctest.Wait()
		require.Equal(t, inference.Status{Phase: inference.PhaseLoading, Detail: "part 0"}, k.Status())
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, inference.Status{Phase: inference.PhaseLoading, Percent: 32, Detail: "part 2"}, k.Status())
		time.Sleep(3 * time.Second)
		require.Equal(t, inference.Status{Phase: inference.PhaseWarming, Percent: 80, Detail: "warming up engine"}, k.Status())
		time.Sleep(time.Second)
		require.Equal(t, inference.Status{Phase: inference.PhaseWarming, Percent: 90, Detail: "half warm"}, k.Status())
		time.Sleep(time.Second)
		require.Equal(t, inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: "well"}, k.Status())
		require.Equal(t, "small engine", k.Name())
	})
}

func TestPromptWaitsForTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, k := start(t, engine.Options{})
		s := open(t, k)
		defer s.Close()
		begin := time.Now()
		text, err := ask(t.Context(), s, inference.Prompt{Text: "hello"})
		require.NoError(t, err)
		require.Equal(t, "hello", text)
		require.Equal(t, 6*time.Second, time.Since(begin), "5 s of loading, 1 s of thought")
	})
}

// TestSpeakLoadsTheModel: a text that is no answer waits for the model and a place as a prompt does.
func TestSpeakLoadsTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{})
		s := open(t, k)
		defer s.Close()
		begin := time.Now()
		for c, err := range s.(inference.Speaker).Speak(t.Context(), "hello", "model", "en") {
			require.NoError(t, err)
			require.Equal(t, "model: hello", c.Text)
		}
		require.Equal(t, 5*time.Second, time.Since(begin))
		require.Equal(t, 1, e.loads)
	})
}

func TestPreload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{Preload: true, IdleUnload: time.Minute})
		time.Sleep(6 * time.Second)
		require.Equal(t, inference.PhaseReady, k.Status().Phase)
		time.Sleep(time.Minute)
		require.Equal(t, inference.PhaseUnloaded, k.Status().Phase, "unused is unused")
		time.Sleep(time.Hour)
		require.Equal(t, 1, e.loads)
	})
}

// TestIdleUnloadCountsLiveSessions: an open session keeps the model loaded without prompts.
func TestIdleUnloadCountsLiveSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{IdleUnload: time.Minute})
		a, b := open(t, k), open(t, k)
		_, err := ask(t.Context(), a, inference.Prompt{Text: "1"})
		require.NoError(t, err)
		time.Sleep(24 * time.Hour)
		require.Equal(t, inference.PhaseReady, k.Status().Phase)
		require.NoError(t, a.Close())
		require.NoError(t, a.Close(), "twice is once")
		time.Sleep(24 * time.Hour)
		require.Equal(t, inference.PhaseReady, k.Status().Phase, "one is still open")
		require.NoError(t, b.Close())
		time.Sleep(59 * time.Second)
		require.Equal(t, inference.PhaseReady, k.Status().Phase)
		// A new session restarts the time.
		c := open(t, k)
		time.Sleep(time.Hour)
		require.NoError(t, c.Close())
		time.Sleep(59 * time.Second)
		require.Equal(t, inference.PhaseReady, k.Status().Phase)
		time.Sleep(2 * time.Second)
		st := k.Status()
		require.Equal(t, inference.PhaseUnloaded, st.Phase)
		require.Contains(t, st.Detail, "loads again on demand")
		require.Equal(t, 1, e.closes)

		// On demand again.
		d := open(t, k)
		defer d.Close()
		text, err := ask(t.Context(), d, inference.Prompt{Text: "again"})
		require.NoError(t, err)
		require.Equal(t, "again", text)
		require.Equal(t, 2, e.loads)
		require.Equal(t, uint64(1), k.Stats().Unloads)
	})
}

func TestNoIdleUnloadByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, k := start(t, engine.Options{Preload: true})
		time.Sleep(1000 * time.Hour)
		require.Equal(t, inference.PhaseReady, k.Status().Phase)
	})
}

// TestFailedLoad: waiting prompts fail at once with the reason, and the load is retried.
func TestFailedLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{})
		e.set(func() { e.fail = errors.New("no such folder") })
		s := open(t, k)
		defer s.Close()
		_, err := ask(t.Context(), s, inference.Prompt{Text: "x"})
		require.ErrorIs(t, err, inference.ErrNotReady)
		require.ErrorContains(t, err, "no such folder")
		require.Equal(t, inference.Status{
			Phase: inference.PhaseFailed, Detail: "no such folder; next attempt in 2s",
		}, k.Status())
		begin := time.Now()
		_, err = ask(t.Context(), s, inference.Prompt{Text: "x"})
		require.ErrorIs(t, err, inference.ErrNotReady)
		require.Zero(t, time.Since(begin), "nobody waits for what failed")

		// 5 s a load and 2, 4, 8, 16, 32, then 60 s between them.
		time.Sleep(10 * time.Minute)
		n := k.Stats().Failures
		require.InDelta(t, 13, float64(n), 1)
		e.set(func() { e.fail = nil })
		time.Sleep(66 * time.Second)
		require.Equal(t, inference.PhaseReady, k.Status().Phase)
		text, err := ask(t.Context(), s, inference.Prompt{Text: "x"})
		require.NoError(t, err)
		require.Equal(t, "x", text)
	})
}

func TestFailedWarmUpClosesTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warm := func(context.Context, inference.Model, engine.Progress) error { return errors.New("it cannot see") }
		e, k := start(t, engine.Options{Warm: warm})
		s := open(t, k)
		defer s.Close()
		time.Sleep(6 * time.Second)
		require.Contains(t, k.Status().Detail, "it cannot see")
		require.Equal(t, 1, e.closes)
	})
}

func TestNothingLoadsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{})
		e.set(func() { e.fail = errors.New("no") })
		require.NoError(t, open(t, k).Close())
		time.Sleep(6 * time.Second)
		require.LessOrEqual(t, k.Stats().Failures, uint64(1))
		time.Sleep(time.Hour)
		require.LessOrEqual(t, k.Stats().Failures, uint64(1), "the session is gone, so is the need")
	})
}

// TestModelThatBreaksIsLoadedAgain: a prompt or a call of Status detects the failure.
func TestModelThatBreaksIsLoadedAgain(t *testing.T) {
	for _, by := range []string{"prompt", "status"} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, k := start(t, engine.Options{})
				s := open(t, k)
				defer s.Close()
				_, err := ask(t.Context(), s, inference.Prompt{Text: "1"})
				require.NoError(t, err)
				looks := 0
				seer, ok := s.(inference.Seer)
				require.True(t, ok)
				seer.Watch(func(inference.Sight) { looks++ })
				s.Observe(inference.Frame{})
				e.set(func() { e.sick = true })
				if by == "prompt" {
					_, err = ask(t.Context(), s, inference.Prompt{Text: "2"})
					require.NoError(t, err)
				} else {
					require.Equal(t, inference.PhaseFailed, k.Status().Phase)
				}
				synctest.Wait()
				require.Equal(t, inference.PhaseFailed, k.Status().Phase)
				require.Contains(t, k.Status().Detail, "fell off")
				require.Equal(t, 1, e.closes)
				time.Sleep(8 * time.Second)
				require.Equal(t, inference.PhaseReady, k.Status().Phase)
				text, err := ask(t.Context(), s, inference.Prompt{Text: "3"})
				require.NoError(t, err, "the session lives on")
				require.Equal(t, "3", text)
				s.Observe(inference.Frame{})
				require.Equal(t, 2, looks, "the model before and the present one are watched")
			})
		})
	}
}

// queueUp sends prompts in order, each in its goroutine, and returns their errors.
func queueUp(t *testing.T, k *engine.ModelManager, prompts ...inference.Prompt) func() []error {
	t.Helper()
	errs := make([]error, len(prompts))
	var wg sync.WaitGroup
	for i, p := range prompts {
		s := open(t, k)
		wg.Go(func() {
			defer s.Close()
			_, errs[i] = ask(t.Context(), s, p)
		})
		synctest.Wait() // keeps the order
	}
	return func() []error { wg.Wait(); return errs }
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{})
		wait := queueUp(t, k, inference.Prompt{Text: "a"}, inference.Prompt{Text: "b"}, inference.Prompt{Text: "c"})
		require.Equal(t, 3, k.Stats().Waiting)
		for _, err := range wait() {
			require.NoError(t, err)
		}
		require.Equal(t, []string{"a", "b", "c"}, e.asked)
	})
}

func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, k := start(t, engine.Options{Parallel: 3, Preload: true})
		time.Sleep(6 * time.Second)
		begin := time.Now()
		for _, err := range queueUp(t, k, make([]inference.Prompt, 7)...)() {
			require.NoError(t, err)
		}
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{MaxQueue: 2, Preload: true})
		time.Sleep(6 * time.Second)
		wait := queueUp(t, k,
			inference.Prompt{Text: "running"},
			inference.Prompt{Text: "a"}, inference.Prompt{Text: "b"},
			inference.Prompt{Text: "c"}, // no room
		)
		errs := wait()
		over := inference.ErrOverloaded
		for i, want := range []error{nil, nil, nil, over} {
			require.ErrorIs(t, errs[i], want, "%d", i)
		}
		require.Equal(t, []string{"running", "a", "b"}, e.asked)
		require.Equal(t, uint64(1), k.Stats().Overloaded)
	})
}

// TestUrgent: an urgent prompt goes first, and another one is refused in its place.
func TestUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{MaxQueue: 3, Preload: true})
		time.Sleep(6 * time.Second)
		wait := queueUp(t, k,
			inference.Prompt{Text: "running"}, inference.Prompt{Text: "a"}, inference.Prompt{Text: "b"},
			inference.Prompt{Text: "c", Urgent: true}, inference.Prompt{Text: "d", Urgent: true},
		)
		errs := wait()
		for i, want := range []error{nil, nil, inference.ErrOverloaded, nil, nil} {
			require.ErrorIs(t, errs[i], want, "%d", i)
		}
		require.Equal(t, []string{"running", "c", "d", "a"}, e.asked)
	})
}

// TestCancelledPromptsLeaveTheQueue: prompts are cancelled in the queue, on admission, and while running.
func TestCancelledPromptsLeaveTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, k := start(t, engine.Options{Preload: true})
		time.Sleep(6 * time.Second)
		e.think = time.Hour
		a, b, c := open(t, k), open(t, k), open(t, k)
		defer func() { _, _, _ = a.Close(), b.Close(), c.Close() }()
		var wg sync.WaitGroup
		var errs [2]error
		wg.Go(func() { // Running at its timeout.
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, errs[0] = ask(ctx, a, inference.Prompt{Text: "a"})
		})
		synctest.Wait()
		wg.Go(func() { // In the queue at its timeout; at 3 s admission and timeout coincide.
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, errs[1] = ask(ctx, b, inference.Prompt{Text: "b"})
		})
		wg.Wait()
		require.ErrorIs(t, errs[0], context.DeadlineExceeded)
		require.ErrorIs(t, errs[1], context.DeadlineExceeded)
		require.Zero(t, k.Stats().Running)
		require.Zero(t, k.Stats().Waiting)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := ask(ctx, c, inference.Prompt{Text: "c"})
		require.ErrorIs(t, err, context.Canceled)

		e.think = time.Second
		text, err := ask(t.Context(), a, inference.Prompt{Text: "after"})
		require.NoError(t, err)
		require.Equal(t, "after", text)
	})
}

func TestPanicFreesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, k := start(t, engine.Options{})
		s := open(t, k)
		defer s.Close()
		require.PanicsWithValue(t, "as asked", func() { _, _ = ask(t.Context(), s, inference.Prompt{Text: "panic"}) })
		_, err := ask(t.Context(), s, inference.Prompt{Text: "x"})
		require.NoError(t, err)
		for _, err := range s.Generate(t.Context(), inference.Prompt{Text: "y"}) {
			require.NoError(t, err)
			break
		}
		require.Zero(t, k.Stats().Running)
	})
}

// TestRandomDay sends prompts with random timeouts and sessions to a model that sometimes fails. Afterwards
// the next prompt is answered, and no place is lost.
func TestRandomDay(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			e, k := start(t, engine.Options{Parallel: 2, MaxQueue: 4, IdleUnload: 20 * time.Second})
			r := rand.New(rand.NewPCG(seed, 7))
			var wg sync.WaitGroup
			for range 400 {
				time.Sleep(time.Duration(r.Int64N(int64(1500 * time.Millisecond))))
				if r.IntN(100) == 0 {
					time.Sleep(time.Minute) // long enough to unload
				}
				if r.IntN(60) == 0 {
					e.set(func() { e.sick = true })
				}
				limit, quit := time.Duration(r.Int64N(int64(6*time.Second))), r.IntN(5) == 0
				s := open(t, k)
				wg.Go(func() {
					defer s.Close()
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					s.Observe(inference.Frame{})
					for _, err := range s.Generate(ctx, inference.Prompt{Text: "x"}) {
						if quit {
							break
						}
						for _, known := range []error{context.DeadlineExceeded, inference.ErrOverloaded, inference.ErrNotReady} {
							if errors.Is(err, known) {
								err = nil
							}
						}
						if err != nil {
							t.Errorf("seed %d: %v", seed, err)
						}
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Minute)
			s := open(t, k)
			defer s.Close()
			text, err := ask(t.Context(), s, inference.Prompt{Text: "still here"})
			require.NoError(t, err)
			require.Equal(t, "still here", text)
			st := k.Stats()
			require.Zero(t, st.Running)
			require.Zero(t, st.Waiting)
			require.Equal(t, 1, st.Sessions)
			require.Greater(t, st.Unloads, uint64(1))
			require.Positive(t, e.observed)
		})
	}
}

func TestEnd(t *testing.T) {
	for _, how := range []string{"context", "close", "close while loading"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &script{t: t, think: time.Hour}
				k, err := engine.New(e.load, engine.Options{})
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ran := make(chan error, 1)
				go func() { ran <- k.Run(ctx) }()
				s, waiting := open(t, k), open(t, k)
				errs := make(chan error, 2)
				go func() { _, err := ask(t.Context(), s, inference.Prompt{}); errs <- err }()
				go func() { _, err := ask(t.Context(), waiting, inference.Prompt{}); errs <- err }()
				if how != "close while loading" {
					time.Sleep(6 * time.Second)
				}
				begin := time.Now()
				if how == "context" {
					cancel()
				} else {
					require.NoError(t, k.Close())
				}
				require.NoError(t, <-ran)
				for range 2 {
					require.ErrorIs(t, <-errs, engine.ErrClosed)
				}
				require.Zero(t, time.Since(begin))
				require.Equal(t, e.loads, e.closes)
				require.Equal(t, inference.PhaseUnloaded, k.Status().Phase)
				_, err = ask(t.Context(), s, inference.Prompt{})
				require.ErrorIs(t, err, engine.ErrClosed)
				require.NoError(t, s.Close())
				_, err = k.NewSession()
				require.ErrorIs(t, err, engine.ErrClosed)
				require.NoError(t, k.Close(), "closing again does nothing")
				require.Error(t, k.Run(t.Context()), "one life")
			})
		})
	}
}

func TestCloseWithoutRun(t *testing.T) {
	k, err := engine.New((&script{t: t}).load, engine.Options{})
	require.NoError(t, err)
	require.NoError(t, k.Close())
	_, err = k.NewSession()
	require.ErrorIs(t, err, engine.ErrClosed)
}

func TestNewChecks(t *testing.T) {
	_, err := engine.New(nil, engine.Options{})
	require.ErrorContains(t, err, "expected a load function")
	for _, o := range []engine.Options{{IdleUnload: -1}, {Parallel: -1}, {MaxQueue: -1}, {RetryMin: -1}, {RetryMax: -1}} {
		_, err := engine.New((&script{}).load, o)
		require.ErrorContains(t, err, "of 0 or more")
	}
}

// TestLateProgress: a report after the end of its load is ignored.
func TestLateProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &script{t: t}
		var kept engine.Progress
		k, err := engine.New(func(ctx context.Context, p engine.Progress) (inference.Model, error) {
			kept = p
			p(70, "most")
			p(30, "less")
			<-time.After(time.Second)
			return e.load(ctx, p)
		}, engine.Options{Preload: true})
		require.NoError(t, err)
		ran := make(chan error, 1)
		go func() { ran <- k.Run(t.Context()) }()
		synctest.Wait()
		require.Equal(t, 70, k.Status().Percent, "it never falls")
		time.Sleep(10 * time.Second)
		kept(10, "stale")
		require.Equal(t, inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: "well"}, k.Status())
		require.NoError(t, k.Close())
		require.NoError(t, <-ran)
	})
}
