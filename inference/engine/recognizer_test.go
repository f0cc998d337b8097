package engine_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/engine"
)

// ear hears for a second, unless ctx ends.
type ear struct {
	closed, sick atomic.Bool
	lost         chan struct{}
}

func (e *ear) Lost() <-chan struct{} { return e.lost }

func (e *ear) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "ear", Partials: true}
}

func (e *ear) hear(ctx context.Context) (inference.Transcript, error) {
	select {
	case <-time.After(time.Second):
		return inference.Transcript{Text: "heard", Final: true}, nil
	case <-ctx.Done():
		return inference.Transcript{}, ctx.Err()
	}
}

func (e *ear) Transcribe(ctx context.Context, _ []float32, _ inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) { yield(e.hear(ctx)) }
}

func (e *ear) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	return said{e}, nil
}

func (e *ear) Align(ctx context.Context, _ []float32, text, _ string) ([]inference.Word, error) {
	_, err := e.hear(ctx)
	return []inference.Word{{Text: text}}, err
}

func (e *ear) Status() inference.Status {
	if e.sick.Load() {
		return inference.Status{Phase: inference.PhaseFailed, Detail: "deaf"}
	}
	return inference.Status{Phase: inference.PhaseReady}
}

func (e *ear) Close() error {
	e.closed.Store(true)
	return nil
}

// said is an utterance.
type said struct{ e *ear }

func (s said) Hear(ctx context.Context, _ []float32) (inference.Transcript, error) {
	return s.e.hear(ctx)
}

func (s said) Finish(ctx context.Context, _ []float32) (inference.Transcript, error) {
	return s.e.hear(ctx)
}

func (s said) Close() error { return nil }

// ears runs a Recognizer in a bubble, whose loads take five seconds.
func ears(t *testing.T, o engine.Options, f func(t *testing.T, r *engine.Recognizer, loads func() []*ear)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []*ear
		loads := func() []*ear {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		r, err := engine.NewRecognizer(func(ctx context.Context, progress engine.Progress) (inference.Recognizer, error) {
			progress(50, "half")
			select {
			case <-time.After(5 * time.Second):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, &ear{lost: make(chan struct{})})
			return all[len(all)-1], nil
		}, inference.Recognizes{Model: "later", WordTimes: true}, o)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		synctest.Wait()
		f(t, r, loads)
		require.NoError(t, r.Close())
		require.NoError(t, <-ended)
		for _, e := range loads() {
			require.True(t, e.closed.Load())
		}
	})
}

func texts(t *testing.T, seq iter.Seq2[inference.Transcript, error]) (got []string) {
	t.Helper()
	for p, err := range seq {
		require.NoError(t, err)
		got = append(got, p.Text)
	}
	return got
}

func TestRecognizerLoadsOnDemand(t *testing.T) {
	ears(t, engine.Options{IdleUnload: time.Minute}, func(t *testing.T, r *engine.Recognizer, loads func() []*ear) {
		t.Helper()
		require.Equal(t, "later", r.Recognizes().Model)
		require.Equal(t, inference.PhaseUnloaded, r.Status().Phase)
		require.Nil(t, r.Loaded())
		start := time.Now()
		require.Equal(t, []string{"heard"}, texts(t, r.Transcribe(t.Context(), nil, inference.Hearing{})))
		require.Equal(t, 6*time.Second, time.Since(start))
		require.Equal(t, "ear", r.Recognizes().Model)
		require.Equal(t, inference.PhaseReady, r.Status().Phase)
		require.Equal(t, loads()[0], r.Loaded())

		u, err := r.Listen(t.Context(), inference.Hearing{})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.False(t, loads()[0].closed.Load(), "an open utterance keeps it")
		got, err := u.Hear(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "heard", got.Text)
		_, err = u.Finish(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, u.Close())
		time.Sleep(61 * time.Second)
		require.True(t, loads()[0].closed.Load())
		require.Equal(t, inference.PhaseUnloaded, r.Status().Phase)

		words, err := r.Align(t.Context(), nil, "word", "en")
		require.NoError(t, err)
		require.Len(t, words, 1)
		require.Len(t, loads(), 2)
		require.Zero(t, r.Stats().Sessions)
	})
}

func TestRecognizerCancel(t *testing.T) {
	ears(t, engine.Options{}, func(t *testing.T, r *engine.Recognizer, _ func() []*ear) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range r.Transcribe(ctx, nil, inference.Hearing{}) {
			require.ErrorIs(t, err, context.DeadlineExceeded, "while it loads")
		}
		require.Equal(t, []string{"heard"}, texts(t, r.Transcribe(t.Context(), nil, inference.Hearing{})))
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for _, err := range r.Transcribe(ctx, nil, inference.Hearing{}) {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Zero(t, r.Stats().Running)
		_, err := r.Listen(ctx, inference.Hearing{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, r.Stats().Sessions)
	})
}

func TestRecognizerClose(t *testing.T) {
	ears(t, engine.Options{}, func(t *testing.T, r *engine.Recognizer, _ func() []*ear) {
		t.Helper()
		u, err := r.Listen(t.Context(), inference.Hearing{})
		require.NoError(t, err)
		errs := make(chan error, 1)
		go func() {
			_, err := u.Hear(t.Context(), nil)
			errs <- err
		}()
		synctest.Wait()
		require.NoError(t, r.Close(), "an idle utterance does not keep it")
		require.ErrorIs(t, <-errs, engine.ErrClosed)
		_, err = u.Finish(t.Context(), nil)
		require.ErrorIs(t, err, engine.ErrClosed)
		require.NoError(t, u.Close())
		_, err = r.Listen(t.Context(), inference.Hearing{})
		require.ErrorIs(t, err, engine.ErrClosed)
	})
}

func TestRecognizerLoadedAnew(t *testing.T) {
	ears(t, engine.Options{RetryMin: time.Second}, func(t *testing.T, r *engine.Recognizer, loads func() []*ear) {
		t.Helper()
		u, err := r.Listen(t.Context(), inference.Hearing{})
		require.NoError(t, err)
		loads()[0].sick.Store(true)
		require.Equal(t, inference.PhaseFailed, r.Status().Phase)
		time.Sleep(10 * time.Second)
		require.Len(t, loads(), 2)
		_, err = u.Hear(t.Context(), nil)
		require.ErrorIs(t, err, inference.ErrNotReady)
		require.ErrorContains(t, err, "begin the utterance again")
		require.NoError(t, u.Close())
	})
}

func TestRecognizerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("the device is lost")
		e := &ear{lost: make(chan struct{})}
		r, err := engine.NewRecognizer(func(context.Context, engine.Progress) (inference.Recognizer, error) { return e, nil },
			inference.Recognizes{}, engine.Options{Preload: true, ErrLost: lost})
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		synctest.Wait()
		close(e.lost)
		require.ErrorIs(t, <-ended, lost)
	})
	_, err := engine.NewRecognizer(nil, inference.Recognizes{}, engine.Options{})
	require.Error(t, err)
}
