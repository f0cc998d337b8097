package sight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

// watched is a Watcher as the eyes of a Sensor.
type watched struct{ *Watcher }

func (w watched) Sight() (inference.Sight, bool) { return w.Watcher.Sight(), w.started }
func (watched) Observe(inference.Frame)          {}
func (watched) Close() error                     { return nil }
func (w watched) Forget()                        { w.Reset() }

// A measurement has the numbers of things and the text of boards; it changes when a fact is told and at no other time.
func TestSensorMeasures(t *testing.T) {
	w := watched{newTestWatcher(1)}
	s := NewSensor(w)
	_, ok := s.Facts()
	require.False(t, ok, "no look yet")
	for at := time.Duration(0); at < 4*time.Second; at += 400 * time.Millisecond {
		w.Push(Look{PTS: at, Texts: []string{"ARS 1-0 CHE"}, Boxes: []Box{
			{Class: "person", Score: 0.9, X0: 0.1, Y0: 0.4, X1: 0.2, Y1: 0.8},
			{Class: "person", Score: 0.9, X0: 0.7, Y0: 0.4, X1: 0.8, Y1: 0.8},
			{Class: "car", Score: 0.9, X0: 0.4, Y0: 0.7, X1: 0.6, Y1: 0.9},
		}})
	}
	facts, ok := s.Facts()
	require.True(t, ok)
	require.Equal(t, inference.Facts{PTS: 3600 * time.Millisecond, Changes: 1, Things: "2 people, 1 car", Texts: []string{"ARS 1-0 CHE"}}, facts)
	again, _ := s.Facts()
	require.Equal(t, facts, again)
	w.Push(Look{PTS: 4 * time.Second, Lines: []BoardChange{{PTS: 4 * time.Second, New: "ARS 1-1 CHE"}}})
	facts, _ = s.Facts()
	require.Equal(t, uint64(2), facts.Changes)
}
