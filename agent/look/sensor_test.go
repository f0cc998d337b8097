package look_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/inference/sight"
)

// recordedEyes are engine sight with what its detector found in a clip of 80 s, whose looks take no time.
type recordedEyes struct {
	looks []recordedLook
	open  atomic.Bool

	mu      sync.Mutex
	watcher *sight.Watcher
	began   time.Time // of the clip
	epoch   uint32
	teller  *sight.Watcher
	told    []time.Time // when engine sight would have told a fact
}

type recordedLook struct {
	T     int // ms
	Boxes []sight.Box
}

func newRecordedEyes(t *testing.T) *recordedEyes {
	t.Helper()
	f, err := os.Open("../../inference/sight/testdata/looks/vtest.json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var r struct{ Looks []recordedLook }
	require.NoError(t, json.NewDecoder(z).Decode(&r))
	e := &recordedEyes{looks: r.Looks, watcher: newWatcher(), teller: newWatcher()}
	e.open.Store(true)
	return e
}

func newWatcher() *sight.Watcher { return sight.NewWatcher(rand.New(rand.NewPCG(1, 1))) }

func (e *recordedEyes) Observe(f inference.Frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.began.IsZero() {
		e.began = time.Now()
	}
	e.epoch = f.Epoch
	for len(e.looks) > 0 && time.Since(e.began) >= time.Duration(e.looks[0].T)*time.Millisecond {
		look := sight.Look{PTS: time.Duration(e.looks[0].T) * time.Millisecond, Boxes: e.looks[0].Boxes}
		e.watcher.Push(look)
		e.teller.Push(look)
		e.looks = e.looks[1:]
		if e.teller.Tell(sight.TellOptions{}).Text != "" {
			e.told = append(e.told, time.Now())
		}
	}
}

func (e *recordedEyes) Sight() (inference.Sight, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := e.watcher.Sight()
	seen.Epoch = e.epoch
	return seen, !e.began.IsZero()
}

func (e *recordedEyes) Close() error { e.open.Store(false); return nil }

func (e *recordedEyes) Forget() {}

// clipLooks returns the times of the looks of a model of 1.2 s at the clip, and the times of new facts.
func clipLooks(t *testing.T, when string) (looks, facts []time.Time) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		eyes := newRecordedEyes(t)
		r := newRig(t, func(_ int, p inference.Prompt) agenttest.Answer {
			if when == settings.LookByFacts && len(looks) > 0 {
				require.Contains(t, p.Text, "detector: ")
			}
			looks = append(looks, time.Now())
			return agenttest.Answer{Latency: 1200 * time.Millisecond, Text: "People walk."}
		}, func(r *rig) {
			r.task.Agent.LookWhen, r.task.Spoken = when, false
			r.sensor = func() (inference.Sensor, error) { return sight.NewSensor(eyes), nil }
		})
		time.Sleep(80 * time.Second)
		r.stop()
		require.Equal(t, when == settings.LookByPixels, eyes.open.Load(), "closed in the end")
		facts = eyes.told
	})
	return looks, facts
}

// Of the facts of the clip, none is without a look that began soon after, and looks are fewer than by pixels.
func TestLooksByFacts(t *testing.T) {
	pixels, _ := clipLooks(t, settings.LookByPixels)
	looks, facts := clipLooks(t, settings.LookByFacts)
	var waits []time.Duration
	for _, at := range facts {
		i := slices.IndexFunc(looks, func(l time.Time) bool { return !l.Before(at) })
		require.GreaterOrEqual(t, i, 0)
		waits = append(waits, looks[i].Sub(at))
	}
	slices.Sort(waits)
	late := slices.DeleteFunc(slices.Clone(waits), func(w time.Duration) bool { return w <= time.Second })
	t.Logf("%d looks by pixels, %d by facts; %d told facts, looks later than 1 s after: %v", len(pixels), len(looks), len(facts), late)
	require.LessOrEqual(t, 2*len(looks), len(pixels))
	require.LessOrEqual(t, 4*len(late), len(facts)+4, "facts of crowds")
	require.Less(t, waits[len(waits)-1], 4*time.Second)
}

// Without a sensor, looks begin by pixels and the note says why. The setting opens and closes it.
func TestSensorFollowsTheSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eyes := newRecordedEyes(t)
		var fails atomic.Bool
		fails.Store(true)
		r := newRig(t, steady(500*time.Millisecond, 0), func(r *rig) {
			r.task.Agent.LookWhen = settings.LookByFacts
			r.sensor = func() (inference.Sensor, error) {
				if fails.Load() {
					return nil, errors.New("no networks")
				}
				return sight.NewSensor(eyes), nil
			}
		})
		time.Sleep(20 * time.Second)
		require.Equal(t, "Looks begin by pixels, not by facts: no networks.", r.Note())
		require.Greater(t, len(r.Records()), 3)
		set := func(when string) {
			r.task.Agent.LookWhen = when
			r.Set(r.task)
			r.Wake()
			time.Sleep(20 * time.Second)
		}
		set(settings.LookByPixels)
		require.Empty(t, r.Note())
		fails.Store(false)
		set(settings.LookByFacts)
		require.Empty(t, r.Note())
		_, looks := eyes.Sight()
		require.True(t, looks)
		require.True(t, eyes.open.Load())
		set(settings.LookByPixels)
		require.False(t, eyes.open.Load())
		r.stop()
	})
}
