package sight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

// watched is a Watcher as the eyes of a Sensor.
type watched struct {
	*Watcher

	f func(inference.Sight)
}

func (w *watched) Watch(f func(inference.Sight)) { w.f = f }
func (*watched) Observe(inference.Frame)         {}
func (*watched) Close() error                    { return nil }
func (w *watched) Forget()                       { w.Reset() }

func (*watched) Judge([]string, []inference.Region) (inference.Judgement, bool) {
	return inference.Judgement{}, false
}

func (w *watched) look(l Look) {
	w.Push(l)
	w.f(w.Sight())
}

// A measurement has the numbers of things and the text of boards; there is news when a fact would be told and at no other time.
func TestSensorMeasures(t *testing.T) {
	w, calls := &watched{Watcher: newTestWatcher(1)}, 0
	s := NewSensor(w, func(news bool) {
		if news {
			calls++
		}
	})
	_, ok := s.Facts()
	require.False(t, ok, "no look yet")
	for at := time.Duration(0); at < 4*time.Second; at += 400 * time.Millisecond {
		w.look(Look{PTS: at, Texts: []string{"ARS 1-0 CHE"}, Boxes: []Box{
			{Class: "person", Score: 0.9, X0: 0.1, Y0: 0.4, X1: 0.2, Y1: 0.8},
			{Class: "person", Score: 0.9, X0: 0.7, Y0: 0.4, X1: 0.8, Y1: 0.8},
			{Class: "car", Score: 0.9, X0: 0.4, Y0: 0.7, X1: 0.6, Y1: 0.9},
		}})
	}
	facts, ok := s.Facts()
	require.True(t, ok)
	require.Equal(t, inference.Facts{PTS: 3600 * time.Millisecond, News: 1, Things: "2 people, 1 car", Texts: []string{"ARS 1-0 CHE"}}, facts)
	require.Equal(t, 2, calls, "the first look, and what is in view")
	w.look(Look{
		PTS: 4 * time.Second, Texts: []string{"ARS 1-1 CHE"}, Lines: []BoardChange{{PTS: 4 * time.Second, New: "ARS 1-1 CHE"}},
	})
	facts, _ = s.Facts()
	require.Equal(t, uint64(2), facts.News)
	require.Equal(t, 3, calls)
	w.Reset()
	w.look(Look{PTS: time.Second})
	facts, _ = s.Facts()
	require.Equal(t, uint64(2), facts.News, "another source")
	require.Equal(t, 3, calls)
}

// There is news whenever an answer after each look would tell something, and never more often.
func TestNewsIsWhatIsTold(t *testing.T) {
	w := newTestWatcher(1)
	told, before := 0, uint64(0)
	recorded(t, "vtest").play(w, func(now time.Duration) {
		w.countNews()
		tells := w.Tell(TellOptions{MaxSentences: 10}).Text != ""
		require.Equal(t, tells, w.news.count > before, now)
		before = w.news.count
		if tells {
			told++
		}
	})
	require.Greater(t, told, 20)
}
