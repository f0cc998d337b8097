package sight

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/sight/facts"
)

// A measurement has the numbers of things; there is news when the engine would say something and at no other time.
func TestSensorMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{took: 60 * time.Millisecond, finds: func(f inference.Frame) []facts.Box {
			return append(comesIn(f), facts.Box{Class: "car", Score: 0.9, X0: 0.7, Y0: 0.7, X1: 0.9, Y1: 0.9})
		}}
		var looks, news atomic.Int32
		s := NewSensor(n.session(t), func(fresh bool) {
			if looks.Add(1); fresh {
				news.Add(1)
			}
		})
		_, ok := s.Facts()
		require.False(t, ok, "no look yet")
		var at time.Duration
		observe := func(until time.Duration) {
			for ; at < until; at += 200 * time.Millisecond {
				s.Observe(street(at, 1))
				time.Sleep(200 * time.Millisecond)
			}
		}
		observe(4 * time.Second)
		facts, ok := s.Facts()
		require.True(t, ok)
		require.Equal(t, inference.Facts{PTS: 3600 * time.Millisecond, Epoch: 1, News: 1, Things: "1 car"}, facts)
		require.EqualValues(t, 2, news.Load(), "the first look, and what is in view")
		observe(9 * time.Second)
		facts, _ = s.Facts()
		require.Equal(t, "1 person, 1 car", facts.Things)
		require.Equal(t, uint64(2), facts.News)
		require.EqualValues(t, 3, news.Load(), "the arrival")
		require.EqualValues(t, 23, looks.Load())

		n.mu.Lock()
		n.err = errors.New("the network failed")
		n.mu.Unlock()
		observe(10 * time.Second)
		facts, _ = s.Facts()
		require.Equal(t, 8800*time.Millisecond, facts.PTS, "no look since then")
		require.NoError(t, s.Problem())
		observe(15 * time.Second)
		require.EqualError(t, s.Problem(), "the network failed")
		require.EqualValues(t, 23, looks.Load())
		n.mu.Lock()
		n.err = nil
		n.mu.Unlock()
		observe(18 * time.Second)
		require.NoError(t, s.Problem())
		s.Forget()
		_, ok = s.Facts()
		require.False(t, ok, "forgotten")
		require.NoError(t, s.Close())
	})
}

// A panic of what follows a look is the sensor's problem until the next look.
func TestSensorPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{finds: comesIn}
		looks := 0
		s := NewSensor(n.session(t), func(bool) {
			if looks++; looks == 1 {
				panic("broken")
			}
		})
		s.Observe(street(0, 1))
		time.Sleep(time.Second)
		require.ErrorContains(t, s.Problem(), "broken")
		s.Observe(street(time.Second, 1))
		time.Sleep(time.Second)
		require.NoError(t, s.Problem())
		require.NoError(t, s.Close())
		require.Equal(t, 2, looks)
	})
}

// Rules with zones hold beside a large model: what its sensor asks has the zones too.
func TestSensorJudgesZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{took: 60 * time.Millisecond, finds: comesIn}
		hall := inference.Region{Name: "Hall", Corners: [][2]float64{{0.2, 0}, {1, 0}, {1, 1}, {0.2, 1}}}
		rules := []string{`a person enters the zone "Hall"`, `a person is in the zone "Hall"`, `a person appears`}
		var held [3]atomic.Int32
		var s *Sensor
		s = NewSensor(n.session(t), func(bool) {
			found, _ := s.Judge(rules, []inference.Region{hall})
			for i, f := range found.Findings {
				if f.Holds {
					held[i].Add(1)
				}
			}
		})
		for at := time.Duration(0); at < 12*time.Second; at += 200 * time.Millisecond {
			s.Observe(street(at, 1))
			time.Sleep(200 * time.Millisecond)
		}
		require.NoError(t, s.Close())
		for i := range held {
			require.Positive(t, held[i].Load(), rules[i])
		}
	})
}
