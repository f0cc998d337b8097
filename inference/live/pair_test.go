package live_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/live/livetest"
)

// fast is a recognizer whose texts are in capitals.
type fast struct {
	*livetest.Recognizer
	phase atomic.Value // inference.Phase
	held  atomic.Int32
}

func newFast(before func(ctx context.Context, c livetest.Call) error) *fast {
	f := &fast{Recognizer: &livetest.Recognizer{Before: before}}
	f.phase.Store(inference.PhaseReady)
	return f
}

func (f *fast) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "fast", Languages: []string{"en", "nl"}, Partials: true}
}

func (f *fast) Status() inference.Status {
	return inference.Status{Phase: f.phase.Load().(inference.Phase), Detail: "encoder"}
}

func (f *fast) Hold() func() {
	f.held.Add(1)
	return func() { f.held.Add(-1) }
}

func (f *fast) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	u, err := f.Recognizer.Listen(ctx, h)
	return capitals{u}, err
}

type capitals struct{ inference.Utterance }

func (c capitals) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	t, err := c.Utterance.Hear(ctx, sound)
	t.Text = strings.ToUpper(t.Text)
	return t, err
}

// methods counts the calls of a recognizer by their method.
func methods(r *livetest.Recognizer) map[string]int {
	out := map[string]int{}
	for _, c := range r.Calls() {
		out[c.Method]++
	}
	return out
}

// hangs waits for the end of a call.
func hangs(ctx context.Context, _ livetest.Call) error { <-ctx.Done(); return ctx.Err() }

// TestPair: the fast recognizer writes the interim texts, the exact one the finals, with the times of words.
func TestPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exact, f := slow(100*ms), newFast(nil)
		p := live.Pair(exact, f, zerolog.Nop())
		require.Equal(t, "fast", p.Recognizes().Interim)
		require.Equal(t, "; interim texts by fast", p.Status().Detail)
		h := listenBy(t, p, exact, func(c *live.Config) { c.Hearing = inference.Hearing{WordTimes: true} })
		h.speak(livetest.Say(600*ms, 1, 2))
		h.speak(silence(time.Second))
		h.speak(livetest.Say(600*ms, 3))
		events := h.end()
		require.Equal(t, []string{
			"1 start_of_speech", "1 interim W1", "1 interim W1 W2", "1 end_of_speech", "1 final w1 w2",
			"2 start_of_speech", "2 interim W3", "2 end_of_speech", "2 final w3",
		}, lines(events))
		require.Len(t, events[4].Words, 2)
		require.Equal(t, 100*ms, events[4].Lag)
		require.Equal(t, map[string]int{"finish": 2}, methods(exact))
		require.NotContains(t, methods(f.Recognizer), "finish")
		require.False(t, f.Calls()[0].Hearing.WordTimes)
		require.Zero(t, f.Open())
	})
}

// TestPairWhereTheFastOneFails: in the middle of an utterance, the exact recognizer writes the interim texts, until the fast one rested.
func TestPairWhereTheFastOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		f := newFast(func(context.Context, livetest.Call) error {
			if broken.Load() {
				return errors.New("out of memory")
			}
			return nil
		})
		exact := &livetest.Recognizer{}
		p := live.Pair(exact, f, zerolog.Nop())
		h := listenBy(t, p, exact)
		h.speak(livetest.Say(600*ms, 1))
		broken.Store(true)
		h.speak(livetest.Say(600*ms, 2, 3))
		require.Equal(t, "; interim texts too, as fast failed: out of memory", p.Status().Detail)
		broken.Store(false)
		h.speak(silence(10 * time.Second))
		h.speak(livetest.Say(600*ms, 4))
		require.Equal(t, []string{
			"1 start_of_speech", "1 interim W1", "1 interim w1 w2", "1 interim w1 w2 w3", "1 end_of_speech", "1 final w1 w2 w3",
			"2 start_of_speech", "2 interim W4", "2 end_of_speech", "2 final w4",
		}, lines(h.end()))
		require.Equal(t, "; interim texts by fast", p.Status().Detail)
		require.Zero(t, f.Open())
	})
}

// TestPairWhereTheFastOneHangs: a final text does not wait for it, and its time limit is that of one text.
func TestPairWhereTheFastOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exact, f := slow(100*ms), newFast(hangs)
		p := live.Pair(exact, f, zerolog.Nop())
		h := listenBy(t, p, exact)
		h.speak(livetest.Say(800*ms, 1))
		h.speak(silence(time.Second))
		h.speak(livetest.Say(800*ms, 2))
		h.Clear() // while it hangs
		h.speak(livetest.Say(800*ms, 3, 4, 5, 6))
		h.speak(silence(time.Second))
		events := h.end()
		for _, e := range events {
			if e.Kind == live.Final {
				require.Equal(t, 100*ms, e.Lag)
			}
		}
		require.Equal(t, []string{
			"1 start_of_speech", "1 end_of_speech", "1 final w1", "2 start_of_speech",
			"3 start_of_speech", "3 interim w3", "3 interim w3 w4 w5 w6", "3 end_of_speech", "3 final w3 w4 w5 w6",
		}, lines(events))
		require.Equal(t, "; interim texts too, as fast failed: no interim text within 2s", p.Status().Detail)
		require.Zero(t, f.Open())
	})
}

// TestPairWithoutTheFastOne: while it loads, and for a language that it does not know, it is not asked.
func TestPairWithoutTheFastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exact, f := &livetest.Recognizer{}, newFast(hangs)
		p := live.Pair(exact, f, zerolog.Nop())
		h := listenBy(t, p, exact, func(c *live.Config) { c.Hearing.Language = "ja" })
		h.speak(livetest.Say(600*ms, 1))
		h.speak(silence(time.Second))
		f.phase.Store(inference.PhaseLoading)
		require.Equal(t, "; interim texts too, as fast is loading: encoder", p.Status().Detail)
		h.Set(inference.Hearing{})
		h.speak(livetest.Say(600*ms, 2))
		require.Equal(t, []string{
			"1 start_of_speech", "1 interim w1", "1 end_of_speech", "1 final w1",
			"2 start_of_speech", "2 interim w2", "2 end_of_speech", "2 final w2",
		}, lines(h.end()))
		require.Empty(t, f.Calls())
	})
}

// TestPairIsARecognizer: it keeps both models loaded, translates if the exact one does, and Close ends a text.
func TestPairIsARecognizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exact, f := &livetest.Recognizer{}, newFast(hangs)
		p := live.Pair(exact, f, zerolog.Nop())
		release := p.(interface{ Hold() func() }).Hold()
		require.EqualValues(t, 1, f.held.Load())
		release()
		require.Zero(t, f.held.Load())
		for _, err := range p.(inference.Translator).Translate(t.Context(), livetest.Say(time.Second, 1), inference.Hearing{}) {
			require.NoError(t, err)
		}
		require.Equal(t, map[string]int{"translate": 1}, methods(exact))
		_, translates := live.Pair(struct{ inference.Recognizer }{exact}, f, zerolog.Nop()).(inference.Translator)
		require.False(t, translates)

		u, err := p.Listen(t.Context(), inference.Hearing{})
		require.NoError(t, err)
		ended := make(chan error)
		go func() {
			_, err := u.Hear(t.Context(), livetest.Say(time.Second, 1))
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, u.Close())
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Zero(t, f.Open())
		require.Zero(t, exact.Open())
		require.NoError(t, p.Close())
	})
}
