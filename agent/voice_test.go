package agent_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/look"
	agentspeech "touchline/agent/speech"
	"touchline/inference"
	"touchline/media"
	"touchline/media/speech"
)

// busyVoice is a real voice track on a machine that is too busy: stall is called after each packet, and the frames whose time is past
// then are skipped.
type busyVoice struct {
	*speech.Writer
	stall func() time.Duration
}

// newBusyRig starts a session with a busyVoice.
func newBusyRig(t *testing.T, answer func(int, inference.Prompt) agenttest.Answer, stall func() time.Duration, change func(*agent.Options)) *rig {
	t.Helper()
	v := &busyVoice{stall: stall}
	w, err := speech.New(speech.Options{Out: v, Log: zerolog.Nop()})
	require.NoError(t, err)
	v.Writer = w
	r := newRig(t, answer, func(o *agent.Options) {
		o.Audio = v
		change(o)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop := r.stop
	r.stop = func() {
		stop()
		cancel()
		require.NoError(t, <-done)
	}
	return r
}

func (v *busyVoice) NewUtterance(ev agentspeech.Events) agentspeech.Sound {
	return v.Writer.NewUtterance(speech.Events(ev))
}

func (v *busyVoice) WriteOpus([]byte, uint32, bool) (time.Time, error) {
	now := time.Now()
	time.Sleep(v.stall())
	return now, nil
}

// TestStarvedVoiceMakesPauses: a voice that skips frames at random makes longer pauses. Only the comments whose looks were taken before
// their time was lost are late; the error does not grow, and is gone when the voice is well again.
func TestStarvedVoiceMakesPauses(t *testing.T) {
	const late = 100 * time.Millisecond
	tests := []struct {
		name  string
		fixed time.Duration // delay of the picture; 0 follows the answers, so that a look is taken near the end of the speech before it
		ahead int           // comments whose looks may have been taken when time is lost
	}{
		{"the delay follows the answers", 0, 2},
		{"the delay has room for two comments", 7 * time.Second, 3},
	}
	for _, tt := range tests {
		for seed := range uint64(2) {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					starved, well := time.Now().Add(time.Minute), time.Now().Add(3*time.Minute)
					rng := rand.New(rand.NewPCG(seed, 1))
					r := newBusyRig(t, steady(time.Second, 3*time.Second), func() time.Duration {
						if now := time.Now(); now.Before(starved) || now.After(well) || rng.IntN(30) > 0 {
							return 0
						}
						return time.Duration(rng.Int64N(int64(600 * time.Millisecond)))
					}, func(o *agent.Options) { o.Pacing.FixedDelay = tt.fixed })
					time.Sleep(4 * time.Minute)
					r.stop()

					comments, lost, lates, run := 0, 0.0, 0, 0
					var before time.Time // the end of the last comment
					var longest time.Duration
					for _, rec := range r.reader.Records() {
						if rec.Outcome != look.OutcomeSpoken {
							require.Equal(t, errStopping, rec.Reason)
							continue
						}
						require.True(t, rec.Aligned)
						if !before.IsZero() {
							longest = max(longest, rec.StartedAt.Sub(before))
						}
						before = rec.EndedAt
						off := time.Duration(rec.AlignmentError * float64(time.Second)).Abs()
						if rec.StartedAt.Before(starved) || rec.InferenceStart.After(well) {
							require.LessOrEqual(t, off, 20*time.Millisecond, "cycle %d", rec.Cycle)
							continue
						}
						comments++
						lost += rec.EndedAt.Sub(rec.StartedAt).Seconds() - rec.AudioSec
						if run++; off <= late {
							run = 0
						} else {
							lates++
						}
						require.LessOrEqual(t, run, tt.ahead, "comments late in a row, cycle %d", rec.Cycle)
					}
					require.Greater(t, comments, 9)
					require.Greater(t, longest, 4*time.Second)
					require.Less(t, longest, 12*time.Second)
					require.Greater(t, lost/float64(comments), 0.8, "seconds lost in a comment")
					require.LessOrEqual(t, lates, comments/3)
				})
			})
		}
	}
}

// errStopping is the reason of a comment that was under way at the end of a test.
const errStopping = "the session ends"

// TestWordsWaitForAStarvedVoice: words behind skipped frames are shown with their sound, not before it.
func TestWordsWaitForAStarvedVoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text, stall = "Red attacks down the left wing.", 310 * time.Millisecond
		begin, stalled := time.Now(), false
		r := newBusyRig(t, func(int, inference.Prompt) agenttest.Answer {
			return agenttest.Answer{Latency: 500 * time.Millisecond, Text: text, Speech: 3 * time.Second, TimedWords: true}
		}, func() time.Duration {
			if stalled || time.Since(begin) < 5100*time.Millisecond { // a second of the first comment, which comes with its frame
				return 0
			}
			stalled = true
			return stall
		}, func(o *agent.Options) { o.Pacing.FixedDelay = 4 * time.Second })
		time.Sleep(30 * time.Second)
		r.stop()
		first := r.reader.Records()[0]
		require.Equal(t, look.OutcomeSpoken, first.Outcome)
		require.InDelta(t, (3*time.Second + stall).Seconds(), first.EndedAt.Sub(first.StartedAt).Seconds(), 0.05)
		all := r.reader.Captions()
		all = slices.DeleteFunc(all, func(c agenttest.ReadCaption) bool { return c.Segment != all[0].Segment })
		var shown []float64
		for _, c := range all {
			for range strings.Fields(c.Delta) {
				shown = append(shown, c.At.Sub(first.StartedAt).Seconds())
			}
		}
		require.InDeltaSlice(t, []float64{0, 0.5, 1, 1.8, 2.3, 2.8}, shown, 0.06)
	})
}

// slowVoice plays everything at half speed, one after the other, as on a
// machine that is too busy.
type slowVoice struct {
	mu   sync.Mutex
	free time.Time
	late []time.Duration // of each onset, after the moment asked for
}

type slowSpeech struct {
	v       *slowVoice
	ev      agentspeech.Events
	audible time.Duration
}

func (v *slowVoice) SetGain(float64) {}

func (v *slowVoice) NewUtterance(ev agentspeech.Events) agentspeech.Sound {
	return &slowSpeech{v: v, ev: ev}
}

func (s *slowSpeech) Write(pcm media.PCM) (time.Duration, error) {
	s.audible += pcm.Duration()
	return s.audible, nil
}
func (s *slowSpeech) LeadTrimmed() time.Duration { return 0 }
func (s *slowSpeech) End() time.Duration         { return s.audible }
func (s *slowSpeech) Cut()                       {}
func (s *slowSpeech) Pause()                     {}
func (s *slowSpeech) Resume()                    {}

func (s *slowSpeech) Start(at time.Time) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	onset := at
	if onset.Before(s.v.free) {
		onset = s.v.free
	}
	end := onset.Add(2 * s.audible)
	s.v.free = end
	s.v.late = append(s.v.late, onset.Sub(at))
	time.AfterFunc(time.Until(onset), func() { s.ev.Started(onset) })
	time.AfterFunc(time.Until(end), func() { s.ev.Ended(end, false) })
}

// TestVoiceThatFallsBehind: comments do not pile up in a slow voice.
func TestVoiceThatFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &slowVoice{}
		r := newRig(t, steady(500*time.Millisecond, 4*time.Second), func(o *agent.Options) { o.Audio = v })
		time.Sleep(10 * time.Minute)
		r.stop()
		time.Sleep(time.Minute) // the rest of the voice's queue
		require.Greater(t, len(v.late), 40)
		require.Less(t, slices.Max(v.late), time.Second)
	})
}
