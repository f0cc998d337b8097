package speech_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent/speech"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/pacing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// voice plays each sound at once, for its length.
type voice struct{ gain float64 }

type sound struct {
	ev      speech.Events
	audible time.Duration
	timer   *time.Timer
	onset   time.Time
}

func (v *voice) SetGain(db float64)                         { v.gain = db }
func (v *voice) NewUtterance(ev speech.Events) speech.Sound { return &sound{ev: ev} }
func (s *sound) Write(pcm media.PCM) (time.Duration, error) {
	s.audible += pcm.Duration()
	return s.audible, nil
}
func (s *sound) LeadTrimmed() time.Duration { return 0 }
func (s *sound) End() time.Duration         { return s.audible }
func (s *sound) Pause()                     {}
func (s *sound) Resume()                    {}

func (s *sound) Start(at time.Time) {
	s.onset = at
	s.ev.Started(at)
	s.timer = time.AfterFunc(time.Until(at.Add(s.audible)), func() { s.ev.Ended(time.Now(), false) })
}

func (s *sound) Cut() {
	if s.timer != nil && s.timer.Stop() {
		s.ev.Ended(time.Now(), true)
	}
}

// maker makes a second of sound.
type maker struct {
	s     *speech.Scheduler
	err   error
	panic bool
	ended chan speech.Result
}

func (m *maker) Make(ctx context.Context, u *speech.Utterance) error {
	if m.panic {
		panic("crash")
	}
	if ctx.Err() == nil && m.err == nil {
		u.Sound(media.PCM{Rate: 8000, Samples: make([]int16, 8000)}, nil)
	}
	u.EndSound(nil)
	return m.err
}

func (m *maker) Begun(bool)            {}
func (m *maker) Caption(speech.Step)   {}
func (m *maker) Ended(r speech.Result) { m.ended <- r }

// TestScheduler: what is added is said, the voice has the level that barge-in sets, and an error or a panic of a maker ends Run with
// all its goroutines.
func TestScheduler(t *testing.T) {
	for name, fault := range map[string]func(*maker){
		"":        func(*maker) {},
		"error":   func(m *maker) { m.err = errMaker },
		"a panic": func(m *maker) { m.panic = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			v := &voice{}
			s := speech.NewScheduler(speech.Settings{Voice: v, Pacing: pacing.DefaultConfig()})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			s.Behave(speech.Duck, 0, 3)
			s.Floor(speech.FloorTaken, time.Now())
			require.InDelta(t, -9, v.gain, 0)
			m := &maker{s: s, ended: make(chan speech.Result, 2)}
			require.NoError(t, s.Add(speech.New(speech.Options{Maker: m, Priority: speech.Announcement, Text: "Half time.", Spoken: true})))
			synctest.Wait()
			require.True(t, s.Speaking())
			require.Equal(t, speech.Spoken, (<-m.ended).Outcome)
			require.False(t, s.Busy())
			fault(m)
			require.NoError(t, s.Add(speech.New(speech.Options{Maker: m, Priority: speech.Announcement, Text: "Half time.", Spoken: true})))
			time.Sleep(2 * time.Second)
			if name == "" {
				cancel()
			}
			err := <-done
			cancel()
			_, crash := rescue.Of(err)
			require.Equal(t, m.panic, crash)
			require.Equal(t, name == "error", errors.Is(err, errMaker))
		})
	}
}
