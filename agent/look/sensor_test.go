package look_test

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/inference/sight"
	"touchline/inference/sight/facts"
)

// recordedEyes are engine sight with what its detector found in a clip of 80 s, whose looks take no time.
type recordedEyes struct {
	open    atomic.Bool
	watched func(inference.Sight)

	mu      sync.Mutex
	looks   []recordedLook
	watcher *facts.Watcher
	began   time.Time     // of the clip
	first   time.Duration // PTS of the picture then
	epoch   uint32
	told    []event
}

type recordedLook struct {
	T     int // ms
	Boxes []facts.Box
}

func newRecordedEyes(t *testing.T, clip string) *recordedEyes {
	t.Helper()
	f, err := os.Open("../../inference/sight/facts/testdata/looks/" + clip + ".json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var r struct{ Looks []recordedLook }
	require.NoError(t, json.NewDecoder(z).Decode(&r))
	e := &recordedEyes{looks: r.Looks, watcher: facts.NewWatcher(rand.New(rand.NewPCG(1, 1)))}
	e.open.Store(true)
	return e
}

func (e *recordedEyes) Observe(f inference.Frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.began.IsZero() {
		e.began, e.first = time.Now(), f.PTS
	}
	e.epoch = f.Epoch
	for len(e.looks) > 0 && time.Since(e.began) >= time.Duration(e.looks[0].T)*time.Millisecond {
		e.watcher.Push(facts.Look{PTS: time.Duration(e.looks[0].T) * time.Millisecond, Boxes: e.looks[0].Boxes})
		e.looks = e.looks[1:]
		e.watched(e.watcher.Sight())
	}
}

// Generate says what engine sight would say after each look.
func (e *recordedEyes) Generate(context.Context, inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		e.mu.Lock()
		told := e.watcher.Tell(facts.TellOptions{})
		if told.Text != "" {
			e.told = append(e.told, event{time.Now(), told.Newest})
		}
		e.mu.Unlock()
		yield(inference.Chunk{Text: cmp.Or(told.Text, inference.Silence)}, nil)
	}
}

func (e *recordedEyes) Judge([]string, []inference.Region) (inference.Judgement, bool) {
	return inference.Judgement{}, false
}

func (e *recordedEyes) Sight() (inference.Sight, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := e.watcher.Sight()
	seen.PTS, seen.Epoch = seen.PTS+e.first, e.epoch
	return seen, true
}

func (e *recordedEyes) Watch(f func(inference.Sight)) { e.watched = f }

func (e *recordedEyes) Close() error { e.open.Store(false); return nil }

func (e *recordedEyes) Forget() {}

// event is a look of the model or a fact that engine sight would tell: when it began, and the time in the clip of its newest picture, or
// of the event.
type event struct {
	at   time.Time
	clip time.Duration
}

// clipLooks returns the looks of a model of 1.2 s at a clip, and the facts that engine sight would tell.
func clipLooks(t *testing.T, clip, when string) (looks, facts []event) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		eyes := newRecordedEyes(t, clip)
		r := newRig(t, func(_ int, p inference.Prompt) agenttest.Answer {
			if when == settings.LookByFacts && len(looks) > 0 {
				require.Contains(t, p.Text, "detector: ")
			}
			looks = append(looks, event{time.Now(), p.Frames[len(p.Frames)-1].PTS})
			return agenttest.Answer{Latency: 1200 * time.Millisecond, Text: "People walk."}
		}, func(r *rig) {
			r.task.Agent.LookWhen, r.task.Spoken = when, false
			r.sensor = func(looked func(bool)) (inference.Sensor, error) { return sight.NewSensor(eyes, looked), nil }
		})
		time.Sleep(80 * time.Second)
		r.stop()
		require.Equal(t, when == settings.LookByPixels, eyes.open.Load(), "closed in the end")
		facts = eyes.told
		for i := range looks {
			looks[i].clip -= eyes.first
		}
	})
	return looks, facts
}

// Each fact that engine sight tells of the clip has a look that began within 1 s and shows the event: its newest picture is not older.
// Usually the look begins after the detector found the fact. It may also have begun shortly before: sight waits up to 2 s until it is sure
// of a fact, so a look that runs has the event in its pictures, and the next look begins when it ends.
func TestLooksByFacts(t *testing.T) {
	for _, clip := range []string{"vtest", "mirrored"} {
		t.Run(clip, func(t *testing.T) { testLooksByFacts(t, clip) })
	}
}

func testLooksByFacts(t *testing.T, clip string) {
	t.Helper()
	pixels, _ := clipLooks(t, clip, settings.LookByPixels)
	looks, facts := clipLooks(t, clip, settings.LookByFacts)
	after, longest := 0, time.Duration(0)
	for _, f := range facts {
		seen := slices.ContainsFunc(looks, func(l event) bool {
			return l.at.Sub(f.at).Abs() <= time.Second && l.clip >= f.clip
		})
		require.True(t, seen, "a fact without a look within 1 s: %v", f)
		i := slices.IndexFunc(looks, func(l event) bool { return !l.at.Before(f.at) })
		require.GreaterOrEqual(t, i, 0)
		wait := looks[i].at.Sub(f.at)
		longest = max(longest, wait)
		if wait <= time.Second {
			after++
		}
	}
	t.Logf("%d looks by pixels, %d by facts; %d told facts, %d with a look within 1 s after, the longest wait %v",
		len(pixels), len(looks), len(facts), after, longest)
	require.Greater(t, len(facts), 20)
	require.LessOrEqual(t, 2*len(looks), len(pixels))
	require.GreaterOrEqual(t, after, len(facts)-2)
	require.Less(t, longest, 1200*time.Millisecond, "the answer before")
}

// While the detector finds nothing new, a look begins look_max_wait after the one before.
func TestLookMaxWait(t *testing.T) {
	for _, wait := range []time.Duration{2 * time.Second, settings.DefaultConfig().LookMaxWait} {
		synctest.Test(t, func(t *testing.T) {
			eyes := newRecordedEyes(t, "vtest")
			for i := range eyes.looks {
				eyes.looks[i].Boxes = nil
			}
			var calls []time.Time
			r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
				calls = append(calls, time.Now())
				return agenttest.Answer{Latency: 1200 * time.Millisecond, Text: "An empty yard."}
			}, func(r *rig) {
				r.task.Agent.LookWhen, r.task.Agent.LookMaxWait, r.task.Spoken = settings.LookByFacts, wait, false
				r.sensor = func(looked func(bool)) (inference.Sensor, error) { return sight.NewSensor(eyes, looked), nil }
			})
			time.Sleep(75 * time.Second) // of the clip's 80 s
			r.stop()
			require.Greater(t, len(calls), 5)
			for i := range calls[2:] { // the first look may be before the detector's
				gap := calls[i+2].Sub(calls[i+1])
				require.InDelta(t, wait.Seconds(), gap.Seconds(), 0.2, "look %d", i+2)
			}
		})
	}
}

// Without a sensor, looks begin by pixels and the note says why. The setting opens and closes it.
func TestSensorFollowsTheSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eyes := newRecordedEyes(t, "vtest")
		var fails atomic.Bool
		fails.Store(true)
		r := newRig(t, steady(500*time.Millisecond, 0), func(r *rig) {
			r.task.Agent.LookWhen = settings.LookByFacts
			r.sensor = func(looked func(bool)) (inference.Sensor, error) {
				if fails.Load() {
					return nil, errors.New("no networks")
				}
				return sight.NewSensor(eyes, looked), nil
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
		require.NotEmpty(t, eyes.told)
		require.True(t, eyes.open.Load())
		set(settings.LookByPixels)
		require.False(t, eyes.open.Load())
		r.stop()
	})
}

// A prompt has the zones and lines that the room has then.
func TestPromptHasRegions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with, without := 0, 0
		yard := []inference.Region{{Name: "yard", Corners: [][2]float64{{0, 0}, {1, 0}, {0, 1}}}}
		began := time.Now()
		r := newRig(t, func(_ int, p inference.Prompt) agenttest.Answer {
			if time.Since(began) > 20*time.Second {
				assert.Empty(t, p.Regions)
				without++
			} else {
				assert.Equal(t, yard, p.Regions)
				with++
			}
			return agenttest.Answer{Latency: time.Second, Text: "People walk."}
		}, func(r *rig) {
			r.regions = func() []inference.Region {
				if time.Since(began) > 20*time.Second {
					return nil
				}
				return yard
			}
		})
		time.Sleep(40 * time.Second)
		r.stop()
		require.Positive(t, min(with, without))
	})
}

// A detector that fails or falls far behind leaves looks to the pixels.
func TestOldFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eyes := newRecordedEyes(t, "vtest")
		eyes.looks = eyes.looks[:10] // 4 s
		old, withFacts, began := 0, 0, time.Now()
		r := newRig(t, func(_ int, p inference.Prompt) agenttest.Answer {
			if time.Since(began) > 20*time.Second {
				old++
				if strings.Contains(p.Text, "detector: ") {
					withFacts++
				}
			}
			return agenttest.Answer{Latency: time.Second, Text: "People walk."}
		}, func(r *rig) {
			r.task.Agent.LookWhen, r.task.Spoken = settings.LookByFacts, false
			r.sensor = func(looked func(bool)) (inference.Sensor, error) { return sight.NewSensor(eyes, looked), nil }
		})
		time.Sleep(40 * time.Second)
		r.stop()
		require.Greater(t, old, 15)
		require.Zero(t, withFacts)
	})
}

// alarm is a sensor that finds each rule to hold in each picture.
type alarm struct {
	looked  func(bool)
	newest  atomic.Pointer[inference.Frame]
	problem atomic.Pointer[error]
}

func (a *alarm) Observe(f inference.Frame) {
	a.newest.Store(&f)
	a.looked(false)
}

func (a *alarm) Judge(rules []string, _ []inference.Region) (inference.Judgement, bool) {
	f := a.newest.Load()
	if f == nil {
		return inference.Judgement{}, false
	}
	found := slices.Repeat([]inference.Finding{{Holds: true, PTS: f.PTS}}, len(rules))
	return inference.Judgement{PTS: f.PTS, Epoch: f.Epoch, Findings: found}, true
}

func (a *alarm) Problem() error {
	if p := a.problem.Load(); p != nil {
		return *p
	}
	return nil
}

func (a *alarm) Facts() (inference.Facts, bool) { return inference.Facts{}, false }
func (a *alarm) Close() error                   { return nil }

// A sensor that could not be opened is tried again once facts may decide rules again. The note has the problem of an open one.
func TestSensorIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opens, failed atomic.Int64
		a := &alarm{}
		r := newRig(t, steady(500*time.Millisecond, 0), func(r *rig) {
			r.task.Agent.LookWhen = settings.LookByFacts
			r.rules = rules(t, alert.Rule{When: "a person enters", By: alert.ByFacts})
			r.rules.Accept(func(alert.RuleText) (bool, error) {
				if at := failed.Load(); at > 0 && time.Since(time.Unix(0, at)) < time.Minute {
					return true, errors.New("no memory")
				}
				return true, nil
			})
			r.sensor = func(looked func(bool)) (inference.Sensor, error) {
				if opens.Add(1) < 3 {
					failed.Store(time.Now().UnixNano())
					return nil, errors.New("no memory")
				}
				a.looked = looked
				return a, nil
			}
		})
		time.Sleep(50 * time.Second)
		require.EqualValues(t, 1, opens.Load())
		require.Equal(t, "Looks begin by pixels, not by facts: no memory.", r.Note())
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, opens.Load())
		time.Sleep(time.Minute)
		require.EqualValues(t, 3, opens.Load())
		require.Empty(t, r.Note())
		a.problem.Store(new(errors.New("no look")))
		time.Sleep(10 * time.Second)
		require.Equal(t, "Looks begin by pixels, not by facts: no look.", r.Note())
		a.problem.Store(nil)
		time.Sleep(10 * time.Second)
		require.Empty(t, r.Note())
		r.stop()
	})
}

// A mask that comes into force between two rules of one look ends the look. An alert has a picture.
func TestForgetEndsJudging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &alarm{}
		var votes, forgotten []look.Answer
		r := newRig(t, steady(500*time.Millisecond, 0), func(r *rig) {
			r.rules = rules(t, alert.Rule{When: "a person enters"}, alert.Rule{When: "a person leaves"})
			r.rules.Accept(func(alert.RuleText) (bool, error) { return true, nil })
			r.sensor = func(looked func(bool)) (inference.Sensor, error) {
				a.looked = looked
				return a, nil
			}
			r.voted = func(v look.Answer) {
				if votes = append(votes, v); len(votes)%2 == 1 && len(forgotten) == 0 {
					forgotten = append(forgotten, v)
					r.Loop.Forget()
				}
			}
		})
		time.Sleep(20 * time.Second)
		r.stop()
		require.Greater(t, len(votes), 20)
		require.Equal(t, forgotten[0].Rules[0].ID, votes[0].Rules[0].ID)
		require.Equal(t, votes[0].Rules[0].ID, votes[1].Rules[0].ID, "the second rule has no vote by the look that was forgotten")
		for _, v := range votes {
			require.NotZero(t, v.Anchor.ID)
		}
	})
}
