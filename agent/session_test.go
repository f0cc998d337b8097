package agent_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/internal/quantile"
	"touchline/media"
	"touchline/pacing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a session with scripted parts, running in a bubble.
type rig struct {
	*agent.Session
	camera *agenttest.Camera
	dec    *agenttest.Decoder
	screen *agenttest.Screen
	voice  *agenttest.Voice
	reader *agenttest.Reader
	engine *agenttest.Engine
	stop   func()
}

// instruct gives a new instruction.
func (r *rig) instruct(text string) error {
	_, err := r.Change(command.Change{Instruction: &text}, "test")
	return err
}

func profiles() []prompt.Profile {
	return []prompt.Profile{{Name: "default", Prompt: "comment"}, {Name: "sports", Prompt: "sport"}}
}

// scripted returns the engine of the options.
func scripted(o *agent.Options) *agenttest.Engine {
	return o.Engine.(*engine.Session).Loaded().(*agenttest.Engine)
}

// newRig starts a session; change may alter the options before.
func newRig(t *testing.T, answer func(n int, p inference.Prompt) agenttest.Answer, change func(*agent.Options)) *rig {
	t.Helper()
	r := &rig{
		camera: &agenttest.Camera{FPS: 30, Jitter: 30 * time.Millisecond, Rand: rand.New(rand.NewPCG(1, 1))},
		dec:    &agenttest.Decoder{},
		screen: &agenttest.Screen{},
		voice:  agenttest.NewVoice(),
		reader: &agenttest.Reader{},
		engine: &agenttest.Engine{Answer: answer},
	}
	opts := agent.Options{
		Agent: settings.DefaultConfig(), Pacing: pacing.DefaultConfig(), Media: media.DefaultConfig(),
		Inference: inference.DefaultConfig(), Profiles: profiles(),
		Engine: agenttest.Open(r.engine), Input: r.camera,
		NewDecoder: func(sinks agent.DecoderSinks) (agent.Decoder, error) {
			r.dec.OnPicture = sinks.Picture
			return r.dec, nil
		},
		Video: r.screen, Audio: r.voice, Texts: []agent.TextOutput{r.reader}, Log: zerolog.Nop(),
	}
	opts.Agent.Repeats = settings.RepeatsAllow // scripted answers are the same again and again
	if change != nil {
		change(&opts)
	}
	s, err := agent.New(opts)
	require.NoError(t, err)
	r.Session = s
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	go func() { _ = s.Run(ctx); done <- struct{}{} }()
	go func() { r.voice.Run(ctx); done <- struct{}{} }()
	r.stop = func() { cancel(); <-done; <-done }
	return r
}

func steady(latency, speech time.Duration) func(int, inference.Prompt) agenttest.Answer {
	return func(int, inference.Prompt) agenttest.Answer {
		return agenttest.Answer{Latency: latency, Text: "Red attacks down the left wing.", Speech: speech}
	}
}

// heardGaps are the silences between utterances.
func heardGaps(heard []agenttest.Heard) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(heard); i++ {
		gaps = append(gaps, heard[i].From.Sub(heard[i-1].To))
	}
	return gaps
}

// TestHourOfVideo is the promise in one test: an hour of video, latencies drawn
// at random from 0.4 to 3 s.
func TestHourOfVideo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
			return agenttest.Answer{
				Latency: 400*time.Millisecond + time.Duration(rng.Int64N(int64(2600*time.Millisecond))),
				Text:    "Blue wins the ball back and turns at once.",
				Speech:  3200 * time.Millisecond,
			}
		}, nil)
		time.Sleep(time.Hour)
		r.stop()

		records := r.reader.Records()
		require.Greater(t, len(records), 900)
		var errs, ready []time.Duration
		dropped := 0
		for _, rec := range records[5:] {
			if rec.Outcome == look.OutcomeDropped {
				dropped++
				continue
			}
			require.Equal(t, look.OutcomeSpoken, rec.Outcome, rec.Reason)
			t.Logf("%+v", rec)
			require.True(t, rec.Aligned)
			errs = append(errs, time.Duration(rec.AlignmentError*float64(time.Second)).Abs())
			ready = append(ready, time.Duration(rec.ReadySec*float64(time.Second)))
		}
		require.LessOrEqual(t, quantile.Of(errs, 0.95), 20*time.Millisecond)
		require.LessOrEqual(t, dropped, len(records)/100)

		settled := time.Duration(records[len(records)-2].Delay * float64(time.Second))
		require.LessOrEqual(t, settled, quantile.Of(ready, 0.95)+500*time.Millisecond)

		gaps := heardGaps(r.voice.Utterances())[5:]
		require.Positive(t, slices.Min(gaps), "comments do not overlap")
		require.InDelta(t, 0.5, quantile.Of(gaps, 0.5).Seconds(), 0.1)
		require.InDelta(t, 0.5, quantile.Of(gaps, 0.95).Seconds(), 0.3, "random latency")
		require.InDelta(t, 0.5, quantile.Of(gaps, 0.05).Seconds(), 0.3, "random latency")

		last := time.Duration(-1)
		for _, p := range r.screen.Pictures() {
			require.Greater(t, p.PTS, last, "pictures never go back")
			last = p.PTS
		}
	})
}

func TestSteadyEngineLeavesThePause(t *testing.T) {
	for _, tt := range []struct{ latency, speech time.Duration }{
		{300 * time.Millisecond, 2 * time.Second},
		{1500 * time.Millisecond, 2 * time.Second},
		{2400 * time.Millisecond, 2500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, steady(tt.latency, tt.speech), nil)
			time.Sleep(3 * time.Minute)
			r.stop()
			gaps := heardGaps(r.voice.Utterances())
			require.Greater(t, len(gaps), 40)
			for _, gap := range gaps[len(gaps)/3:] {
				require.InDelta(t, 0.5, gap.Seconds(), 0.15, "%+v", tt)
			}
		})
	}
}

// TestNewInstruction sends an order in each state and asks when the next look
// began and when the old speech ended.
func TestNewInstruction(t *testing.T) {
	const frame = time.Second / 30
	tests := []struct {
		name    string
		latency time.Duration
		speech  time.Duration
		idle    bool
		until   func(r *rig) bool // send the order when this holds
	}{
		{
			name: "idle", latency: time.Second, speech: 2 * time.Second, idle: true,
			until: func(r *rig) bool { return r.Snapshot().FramesBuffered > 2 },
		},
		{
			name: "thinking", latency: 2 * time.Second, speech: 2 * time.Second,
			until: func(r *rig) bool { return r.Status().State == agent.StateThinking },
		},
		{
			name: "waiting for its frame", latency: 100 * time.Millisecond, speech: 2 * time.Second,
			until: func(r *rig) bool {
				return len(r.engine.Questions()) == 1 && r.Snapshot().Status.Activity == agent.ActivityWatching
			},
		},
		{
			name: "mid-speech", latency: 500 * time.Millisecond, speech: 6 * time.Second,
			until: func(r *rig) bool { return r.Status().State == agent.StateSpeaking },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, steady(tt.latency, tt.speech), func(o *agent.Options) {
					o.Agent.AutoStart = !tt.idle
					o.Pacing.FixedDelay = 3 * time.Second
				})
				for !tt.until(r) {
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(300 * time.Millisecond)
				before := len(r.engine.Questions())
				sent := time.Now()
				require.NoError(t, r.instruct("only the goalkeeper"))
				time.Sleep(frame + 50*time.Millisecond)
				asked := r.engine.Questions()
				require.Greater(t, len(asked), before, "the next look has begun")
				next := asked[before]
				require.WithinRange(t, next.At, sent, sent.Add(frame+50*time.Millisecond))
				require.Equal(t, "only the goalkeeper", next.Instruction)
				require.Contains(t, next.Text, "only the goalkeeper")
				require.NotContains(t, next.Text, "you said", "the carry-over is gone")
				time.Sleep(50 * time.Millisecond)
				require.NotEqual(t, agent.StateSpeaking, r.Status().State, "old speech is silent")
				time.Sleep(20 * time.Second)
				r.stop()
				for _, h := range r.voice.Utterances() {
					if h.From.Before(sent) {
						require.False(t, h.To.After(sent.Add(100*time.Millisecond)))
					}
				}
				last := r.reader.Records()[len(r.reader.Records())-1]
				require.Equal(t, "only the goalkeeper", last.Instruction)
				if tt.name == "waiting for its frame" {
					first := r.reader.Records()[0]
					require.Equal(t, look.OutcomeDropped, first.Outcome, "a dropped comment is reported")
					require.NotEmpty(t, first.Text)
					require.NotZero(t, r.Snapshot().Dropped)
				}
				require.Equal(t, len(r.engine.Questions()), len(r.reader.Records())+unfinished(r), "every look has its record")
				for _, rec := range r.reader.Records() {
					if rec.Outcome == look.OutcomeDropped || rec.Outcome == look.OutcomeCut {
						require.NotEmpty(t, rec.Reason)
					}
				}
			})
		})
	}
}

// unfinished is how many looks may have no record at the end of a run: comments
// that wait or are being spoken.
func unfinished(r *rig) int {
	seen := map[uint64]bool{}
	for _, rec := range r.reader.Records() {
		seen[rec.Cycle] = true
	}
	n := 0
	for c := uint64(1); c <= r.Snapshot().CycleCount; c++ {
		if !seen[c] {
			n++
		}
	}
	return min(n, 3)
}

func TestSlowCameraIsAskedOnceAPicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(int, inference.Prompt) agenttest.Answer { return agenttest.Answer{Text: "..."} },
			func(o *agent.Options) {
				o.Pacing.MinInterval = 0
				o.Input.(*agenttest.Camera).FPS = 1
			})
		time.Sleep(30 * time.Second)
		r.stop()
		require.InDelta(t, 30, len(r.engine.Questions()), 2, "one look a picture, not a spin")
	})
}

func TestSpeechGoesOnWhenNotToBeCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 6*time.Second), func(o *agent.Options) { o.Agent.CutOnInstruction = false })
		for r.Status().State != agent.StateSpeaking {
			time.Sleep(10 * time.Millisecond)
		}
		before := len(r.engine.Questions())
		require.NoError(t, r.instruct("the referee"))
		time.Sleep(100 * time.Millisecond)
		require.Greater(t, len(r.engine.Questions()), before)
		time.Sleep(20 * time.Second)
		r.stop()
		h := r.voice.Utterances()[0]
		require.False(t, h.Cut)
		require.Equal(t, 6*time.Second, h.To.Sub(h.From))
	})
}

// TestSpeechStillGeneratedGoesOnWhenNotToBeCut: with cut_on_instruction off, a comment that is being spoken while
// its end is still generated is heard to that end.
func TestSpeechStillGeneratedGoesOnWhenNotToBeCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
			return agenttest.Answer{
				Latency: 500 * time.Millisecond, Text: "Red attacks down the left wing.",
				Speech: 6 * time.Second, Second: 2500 * time.Millisecond,
			}
		}, func(o *agent.Options) {
			o.Agent.CutOnInstruction = false
			o.Pacing.FixedDelay = 700 * time.Millisecond
		})
		for r.Status().State != agent.StateSpeaking {
			time.Sleep(10 * time.Millisecond)
		}
		before := len(r.engine.Questions())
		require.NoError(t, r.instruct("the referee"))
		time.Sleep(20 * time.Second)
		r.stop()
		h := r.voice.Utterances()[0]
		require.False(t, h.Cut)
		require.Equal(t, 6*time.Second, h.To.Sub(h.From))
		first := r.reader.Records()[0]
		require.Equal(t, look.OutcomeSpoken, first.Outcome)
		require.Empty(t, first.Reason)
		require.Equal(t, "Red attacks down the left wing.", first.Text)
		next := r.engine.Questions()[before]
		require.Less(t, next.At.Sub(h.From), 3*time.Second, "the order acts when the generation ends, not after the speech")
		require.Contains(t, next.Text, "the referee")
		require.NotContains(t, next.Text, "you said", "comments on the old instruction are not in the prompt")
	})
}

// behind answers each look at once, and its sound of 2 s comes 3 s later.
func behind(n int, _ inference.Prompt) agenttest.Answer {
	return agenttest.Answer{
		Latency: 200 * time.Millisecond, Text: "Red attacks down the left " + strconv.Itoa(n) + ".", TimedWords: true,
		Speech: 2 * time.Second, Behind: 3 * time.Second,
	}
}

// TestLookEndsWithItsText: the next look does not wait for the sound of the last; comments are heard in the order of their looks.
func TestLookEndsWithItsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, behind, func(o *agent.Options) { o.Pacing.FixedDelay = 6 * time.Second })
		time.Sleep(40 * time.Second)
		require.LessOrEqual(t, r.engine.Answering(), 3, "sound does not pile up")
		r.stop()
		asked := r.engine.Questions()
		require.Less(t, asked[1].At.Sub(asked[0].At), 2700*time.Millisecond, "before the first sound")
		var spoken []look.Record
		for _, rec := range r.reader.Records() {
			if rec.Outcome == look.OutcomeSpoken {
				require.InDelta(t, 0.2, rec.InferenceSec, 0.05)
				require.InDelta(t, 3.2, rec.FirstAudioSec, 0.1)
				require.InDelta(t, 0, rec.AlignmentError, 0.02)
				spoken = append(spoken, rec)
			}
		}
		require.Greater(t, len(spoken), 5)
		heard := r.voice.Utterances()
		for i, rec := range spoken {
			require.Equal(t, uint64(i+1), rec.Cycle)
			require.Equal(t, heard[i].From, rec.StartedAt)
			require.Equal(t, 2*time.Second, heard[i].To.Sub(heard[i].From))
		}
		for _, gap := range heardGaps(heard) {
			require.Positive(t, gap, "comments do not overlap")
		}
	})
}

// TestRateOfSpeechIsLearned: the next look begins before the length of the sound is known. With the rate of the last comments it fits,
// for a slow voice and for a quick one.
func TestRateOfSpeechIsLearned(t *testing.T) {
	for more, length := range map[string]time.Duration{
		"Slow.": 4 * time.Second, "The keeper comes out of the box and shouts at the wall.": 3 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(n int, p inference.Prompt) agenttest.Answer {
				a := behind(n, p)
				a.Text, a.Speech = a.Text+" "+more, length
				return a
			}, func(o *agent.Options) { o.Pacing.FixedDelay = 6 * time.Second })
			time.Sleep(60 * time.Second)
			r.stop()
			heard := r.voice.Utterances()
			require.Greater(t, len(heard), 8)
			for _, gap := range heardGaps(heard)[2:] {
				require.InDelta(t, pacing.DefaultConfig().PauseAfter.Seconds(), gap.Seconds(), 0.2)
			}
			for _, rec := range r.reader.Records()[2:] {
				if rec.Outcome == look.OutcomeSpoken {
					require.InDelta(t, 0, rec.AlignmentError, 0.02, rec.Text)
				}
			}
		})
	}
}

// TestSoundBehindItsTextIsCancelled: an order, an announcement, silence and the end free the answers whose sound was to come.
func TestSoundBehindItsTextIsCancelled(t *testing.T) {
	for name, end := range map[string]func(r *rig) error{
		"an order": func(r *rig) error { return r.instruct("only the goalkeeper") },
		"stop":     func(r *rig) error { r.Stop("test"); return nil },
		"speech off": func(r *rig) error {
			_, err := r.Change(command.Change{Settings: settings.Settings{Speech: new(false)}}, "test")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, behind, func(o *agent.Options) { o.Pacing.FixedDelay = 6 * time.Second })
				time.Sleep(900 * time.Millisecond) // behind the text of the first look
				require.Positive(t, r.engine.Answering())
				before := len(r.engine.Questions())
				require.NoError(t, end(r))
				time.Sleep(time.Millisecond)
				require.LessOrEqual(t, r.engine.Answering(), len(r.engine.Questions())-before, "of the looks before")
				time.Sleep(20 * time.Second)
				r.stop()
				require.Zero(t, r.engine.Answering())
				first := r.reader.Records()[0]
				if name == "speech off" {
					require.Equal(t, look.OutcomeShown, first.Outcome)
				} else {
					require.Equal(t, look.OutcomeDropped, first.Outcome)
				}
				require.NotContains(t, first.Reason, "canceled")
			})
		})
	}
}

// TestEngineFailsDuringSound: what was heard of a comment stays, one without sound is shown, and the reason is in the record. Later
// looks are not delayed.
func TestEngineFailsDuringSound(t *testing.T) {
	for outcome, length := range map[string]time.Duration{look.OutcomeSpoken: 2 * time.Second, look.OutcomeShown: 0} {
		t.Run(outcome, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(n int, p inference.Prompt) agenttest.Answer {
					a := behind(n, p)
					if n == 0 {
						a.Speech, a.Err = length, errors.New("the device is lost")
					}
					return a
				}, func(o *agent.Options) { o.Pacing.FixedDelay = 6 * time.Second })
				time.Sleep(20 * time.Second)
				r.stop()
				recs := r.reader.Records()
				require.Greater(t, len(recs), 2)
				require.Equal(t, outcome, recs[0].Outcome)
				require.Equal(t, "Red attacks down the left 0.", recs[0].Text)
				require.Equal(t, "the device is lost", recs[0].Reason)
				for _, rec := range recs[1:3] {
					require.Equal(t, look.OutcomeSpoken, rec.Outcome)
					require.Empty(t, rec.Reason)
				}
				require.Zero(t, r.Snapshot().Failed)
				require.Less(t, r.engine.Questions()[1].At.Sub(r.engine.Questions()[0].At), 3*time.Second)
			})
		})
	}
}

func TestSilenceIsNeitherSpokenNorShown(t *testing.T) {
	for _, text := range []string{"...", " … ", "\"...\"", ""} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
				return agenttest.Answer{Latency: 300 * time.Millisecond, Text: text, Speech: time.Second}
			}, nil)
			time.Sleep(20 * time.Second)
			r.stop()
			require.Empty(t, r.voice.Utterances())
			require.Empty(t, r.reader.Captions())
			require.Greater(t, r.Snapshot().Silent, uint64(10))
			require.Equal(t, pacing.DefaultConfig().InitialDelay.Seconds(), r.Snapshot().TargetDelay, "silence teaches nothing")
			for _, rec := range r.reader.Records()[:10] {
				require.Equal(t, look.OutcomeSilent, rec.Outcome)
				require.Empty(t, rec.Text)
			}
		})
	}
}

func TestStillSceneIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(300*time.Millisecond, time.Second), func(o *agent.Options) { o.Agent.ChangeThreshold = 5 })
		r.dec.SetLuma(func(pts time.Duration) byte { return byte(pts / (20 * time.Second) * 60) })
		time.Sleep(39 * time.Second)
		require.Len(t, r.engine.Questions(), 2, "one look a scene")
		require.Greater(t, r.Snapshot().Skipped, uint64(20))
		require.NoError(t, r.instruct("the flags"))
		time.Sleep(500 * time.Millisecond)
		require.Len(t, r.engine.Questions(), 3, "a new order always looks")
		r.stop()
	})
}

func TestTextMeetsItsFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(900*time.Millisecond, 0), func(o *agent.Options) { o.Inference.Voice.Enabled = false })
		time.Sleep(2 * time.Minute)
		r.stop()
		shown := r.screen.Pictures()
		captions := r.reader.Captions()
		records := r.reader.Records()
		require.Greater(t, len(records), 20)
		byCycle := map[uint64]time.Time{}
		for _, c := range captions {
			if _, ok := byCycle[c.Cycle]; !ok {
				byCycle[c.Cycle] = c.At
			}
		}
		for _, rec := range records[5 : len(records)-2] {
			require.Equal(t, look.OutcomeShown, rec.Outcome)
			i := slices.IndexFunc(shown, func(p agenttest.Shown) bool { return p.PTS.Seconds() == rec.AnchorPTS })
			require.GreaterOrEqual(t, i, 0)
			require.InDelta(t, 0, byCycle[rec.Cycle].Sub(shown[i].At).Seconds(), 0.02)
			require.InDelta(t, byCycle[rec.Cycle].Sub(shown[i].At).Seconds(), rec.AlignmentError, 0.005,
				"the bot's own figure")
		}
	})
}

// A comment about an event before the newest picture meets the picture of the event, and the delay learns the longer time.
func TestTextMeetsItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before = 1200 * time.Millisecond
		r := newRig(t, func(n int, p inference.Prompt) agenttest.Answer {
			a := steady(300*time.Millisecond, 0)(n, p)
			a.Anchor = p.Frames[len(p.Frames)-1].PTS - before
			return a
		}, func(o *agent.Options) { o.Inference.Voice.Enabled = false })
		time.Sleep(2 * time.Minute)
		r.stop()
		records := r.reader.Records()
		require.Greater(t, len(records), 20)
		aligned := 0
		for _, rec := range records[len(records)/2 : len(records)-2] {
			require.InDelta(t, before.Seconds(), rec.PTSTo-rec.AnchorPTS, 1e-6)
			require.Greater(t, rec.ReadySec, before.Seconds())
			require.Greater(t, rec.TargetDelay, rec.ReadySec)
			if rec.Aligned { // else the picture comes at the same moment
				aligned++
				require.InDelta(t, 0, rec.AlignmentError, 0.05)
			}
		}
		require.Positive(t, aligned)
	})
}

func TestWordsFollowTheVoice(t *testing.T) {
	for _, timed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const text = "Red \u2013 attacks down the left wing, two on one."
			r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
				return agenttest.Answer{Latency: 500 * time.Millisecond, Text: text, Speech: 3 * time.Second, TimedWords: timed}
			}, nil)
			time.Sleep(30 * time.Second)
			r.stop()
			heard := r.voice.Utterances()[0]
			all := r.reader.Captions()
			shownAt := map[string]time.Duration{}
			var said strings.Builder
			for _, c := range all {
				if c.Segment != all[0].Segment {
					break
				}
				said.WriteString(c.Delta)
				require.Equal(t, said.String(), c.Text)
				require.True(t, c.Spoken)
				for _, w := range strings.Fields(c.Delta) {
					shownAt[w] = c.At.Sub(heard.From)
				}
				if c.Final {
					require.InDelta(t, 0, c.At.Sub(heard.To).Seconds(), 0.1)
				}
			}
			require.Equal(t, text, said.String())
			if !timed {
				require.Less(t, shownAt["attacks"], shownAt["one."])
				return
			}
			for i, w := range strings.Fields(text) { // ten, of which the dash is one, five in each half
				require.InDelta(t, .3*float64(i), shownAt[w].Seconds(), .04, w)
			}
		})
	}
}

func TestEngineFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
			switch n {
			case 0, 1:
				return agenttest.Answer{Latency: time.Second, Err: errors.New("http://10.0.0.5:8000/v1: status 500")}
			case 2:
				return agenttest.Answer{Latency: time.Second, Text: "Half a sentence", Speech: time.Second, Err: errors.New("http://10.0.0.5:8000/v1: closed")}
			}
			return agenttest.Answer{Latency: time.Second, Text: "All is well again.", Speech: time.Second}
		}, func(o *agent.Options) {
			scripted(o).Phase = func() inference.Status {
				return inference.Status{Phase: inference.PhaseReady, VoiceProblem: "https://voice.example/v1: status 500"}
			}
		})
		time.Sleep(30 * time.Second)
		require.Equal(t, "the server: status 500", r.Snapshot().VoiceProblem)
		r.stop()
		rec := r.reader.Records()
		require.Equal(t, look.OutcomeFailed, rec[0].Outcome)
		require.Equal(t, "the server: status 500", rec[1].Reason, "viewers read it")
		require.Equal(t, look.OutcomeSpoken, rec[2].Outcome, "what had come is kept")
		require.Equal(t, "the server: closed", rec[2].Reason)
		require.Equal(t, "All is well again.", rec[3].Text)
		asked := r.engine.Questions()
		require.Equal(t, 2*time.Second, asked[1].At.Sub(asked[0].At), "1 s to fail, 1 s to wait")
		require.Equal(t, 3*time.Second, asked[2].At.Sub(asked[1].At))
	})
}

// TestAnAnswerWithoutEnd: an engine that never ends, with a word now and then, fails its cycle, and the state shows it.
func TestAnAnswerWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
			if n == 0 {
				return agenttest.Answer{Text: "...", Speech: time.Second, Second: 24 * time.Hour}
			}
			return agenttest.Answer{Latency: time.Second, Text: "All is well again.", Speech: time.Second}
		}, func(o *agent.Options) { o.Agent.CycleTimeout = 30 * time.Second })
		time.Sleep(29 * time.Second)
		require.Equal(t, agent.ActivityThinking, r.Status().Activity)
		time.Sleep(1500 * time.Millisecond)
		const why = "the scripted engine did not finish its answer within 30s (agent.cycle_timeout)"
		require.Equal(t, agent.ActivityFailed, r.Status().Activity)
		require.Equal(t, why, r.Status().Detail)
		time.Sleep(20 * time.Second)
		r.stop()
		rec := r.reader.Records()
		require.Equal(t, look.OutcomeFailed, rec[0].Outcome)
		require.Equal(t, why, rec[0].Reason)
		require.Equal(t, look.OutcomeSpoken, rec[1].Outcome, "the room goes on")
	})
}

// TestLoadingIsNoPartOfAnAnswer: a model that is loaded on demand may take longer to load than an answer may take.
func TestLoadingIsNoPartOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := newRig(t, steady(65*time.Second, time.Second), func(o *agent.Options) {
			o.Agent.CycleTimeout = 30 * time.Second
			scripted(o).Phase = func() inference.Status {
				if time.Since(start) < 50*time.Second {
					return inference.Status{Phase: inference.PhaseUnloaded}
				}
				return inference.Status{Phase: inference.PhaseReady}
			}
		})
		time.Sleep(80 * time.Second)
		r.stop()
		require.NotEqual(t, look.OutcomeFailed, r.reader.Records()[0].Outcome)
	})
}

func TestStopAndStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 4*time.Second), nil)
		require.NoError(t, r.instruct("the goalkeeper"))
		for r.Status().State != agent.StateSpeaking {
			time.Sleep(10 * time.Millisecond)
		}
		require.ErrorIs(t, r.Start("test"), command.ErrRunning)
		stopped := time.Now()
		r.Stop("test")
		time.Sleep(30 * time.Second)
		snap := r.Snapshot()
		require.Empty(t, snap.Instruction)
		require.Equal(t, "IDLE", snap.MonitorMode)
		require.Equal(t, agent.ActivityIdle, snap.Status.Activity)
		for _, q := range r.engine.Questions() {
			require.False(t, q.At.After(stopped))
		}
		for _, h := range r.voice.Utterances() {
			require.False(t, h.To.After(stopped.Add(100*time.Millisecond)))
		}
		require.NoError(t, r.Start("test"))
		time.Sleep(10 * time.Second)
		r.stop()
		require.True(t, r.reader.Records()[len(r.reader.Records())-1].InferenceStart.After(stopped))
	})
}

func TestSpeechOffAndOnLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 4*time.Second), nil)
		for r.Status().State != agent.StateSpeaking {
			time.Sleep(10 * time.Millisecond)
		}
		off, on := false, true
		at := time.Now()
		_, err := r.Change(command.Change{Settings: settings.Settings{Speech: &off}}, "test")
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		require.Len(t, r.voice.Utterances(), 1)
		require.False(t, r.voice.Utterances()[0].To.After(at.Add(100*time.Millisecond)))
		require.Equal(t, "Red attacks down the left wing.", r.reader.Records()[0].Text, "its text is still shown whole")
		_, err = r.Change(command.Change{Settings: settings.Settings{Speech: &on}}, "test")
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		require.Greater(t, len(r.voice.Utterances()), 3)
		r.stop()
	})
}

func TestSpeechOffWhileACommentWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(100*time.Millisecond, 2*time.Second), func(o *agent.Options) {
			o.Pacing.FixedDelay = 3 * time.Second
		})
		for len(r.engine.Questions()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond) // the comment waits for its frame
		off := false
		_, err := r.Change(command.Change{Settings: settings.Settings{Speech: &off}}, "test")
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		r.stop()
		require.Empty(t, r.voice.Utterances())
		require.Equal(t, look.OutcomeShown, r.reader.Records()[0].Outcome)
		require.Equal(t, "Red attacks down the left wing.", r.reader.Records()[0].Text)
	})
}

func TestCameraGoesAndAnotherComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 2*time.Second), nil)
		time.Sleep(20 * time.Second)
		resume := r.camera.Pause(true)
		time.Sleep(10 * time.Second)
		require.Equal(t, agent.ActivityWaiting, r.Status().Activity)
		require.False(t, r.Snapshot().CaptureRunning)
		before := len(r.engine.Questions())
		resume()
		back := time.Now()
		time.Sleep(20 * time.Second)
		r.stop()
		next := r.engine.Questions()[before]
		require.WithinDuration(t, back, next.At, 500*time.Millisecond)
		require.NotContains(t, next.Text, "you said", "another source empties the carry-over")
		for _, f := range next.Frames {
			require.Equal(t, uint32(1), f.Epoch, "and the window")
		}
		require.Equal(t, look.OutcomeSpoken, r.reader.Records()[len(r.reader.Records())-2].Outcome)
	})
}

// TestNoLookAtACameraThatHasGone: cameras go at any moment of a cycle and others come. A look at the last picture
// of one that went would be a comment that is late by as much as the picture is old.
func TestNoLookAtACameraThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
			return agenttest.Answer{
				Latency: 400*time.Millisecond + time.Duration(rng.Int64N(int64(2600*time.Millisecond))),
				Text:    "Blue wins the ball back and turns at once.",
				Speech:  3200 * time.Millisecond,
			}
		}, nil)
		pauses := rand.New(rand.NewPCG(5, 6)) // not the engine's: that one is used by its goroutine
		time.Sleep(5 * time.Minute)
		settled := len(r.reader.Records())
		for range 50 {
			resume := r.camera.Pause(true)
			time.Sleep(3*time.Second + time.Duration(pauses.Int64N(int64(7*time.Second))))
			resume()
			time.Sleep(20*time.Second + time.Duration(pauses.Int64N(int64(5*time.Second))))
		}
		r.stop()
		var errs []time.Duration
		for _, rec := range r.reader.Records()[settled:] {
			if rec.Outcome == look.OutcomeSpoken {
				errs = append(errs, time.Duration(rec.AlignmentError*float64(time.Second)).Abs())
			}
		}
		require.Greater(t, len(errs), 250)
		require.LessOrEqual(t, slices.Max(errs), 100*time.Millisecond)
	})
}

// TestForcedDelay moves D from 2 to 5 and back: no gap over 100 ms between
// pictures, and they never go back.
func TestForcedDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 2*time.Second), func(o *agent.Options) {
			o.Pacing.FixedDelay = 2 * time.Second
		})
		for _, d := range []float64{2, 5, 2} {
			_, err := r.Change(command.Change{Settings: settings.Settings{FixedDelay: &d}}, "test")
			require.NoError(t, err)
			time.Sleep(45 * time.Second)
			require.InDelta(t, d, r.Snapshot().Delay, 0.01)
		}
		r.stop()
		pictures := r.screen.Pictures()
		require.Greater(t, len(pictures), 3800)
		for i := 1; i < len(pictures); i++ {
			require.Less(t, pictures[i].At.Sub(pictures[i-1].At), 100*time.Millisecond)
			require.Greater(t, pictures[i].PTS, pictures[i-1].PTS)
		}
	})
}

func TestSettingsOutOfBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(time.Second, time.Second), nil)
		fps, frames := 99.0, 0
		_, err := r.Change(command.Change{Settings: settings.Settings{CaptureFPS: &fps, Frames: &frames}}, "test")
		require.ErrorContains(t, err, "capture_fps: expected a number from 0.1 to 30, got 99")
		require.ErrorContains(t, err, "frames_per_look: expected a whole number from 1 to 64, got 0")
		require.Equal(t, 4, *r.Snapshot().Settings.Frames, "nothing was changed")
		require.ErrorContains(t, r.instruct(strings.Repeat("x", 2001)), "at most 2000 characters")
		_, err = r.Change(command.Change{Profile: new("opera")}, "test")
		require.ErrorContains(t, err, `expected one of ["default" "sports"]`)

		// All or nothing.
		order, opera, sports, fine := "the keeper", "opera", "sports", 2
		before := r.Snapshot()
		_, err = r.Change(command.Change{Instruction: &order, Profile: &opera, Settings: settings.Settings{Frames: &frames}}, "test")
		require.ErrorContains(t, err, "profile: expected one of")
		require.ErrorContains(t, err, "frames_per_look: expected a whole number")
		require.Equal(t, before.Instruction, r.Snapshot().Instruction)
		require.Equal(t, 4, *r.Snapshot().Settings.Frames)
		change := command.Change{Instruction: &order, Profile: &sports, Settings: settings.Settings{Frames: &fine}}
		require.NoError(t, r.Check(change))
		require.Equal(t, before.Instruction, r.Snapshot().Instruction, "only checked")
		settings, err := r.Change(change, "test")
		require.NoError(t, err)
		require.Equal(t, 2, *settings.Frames)
		after := r.Snapshot()
		require.Equal(t, []string{order, sports, "ACTIVE"}, []string{after.Instruction, after.Profile, after.MonitorMode})
		none := " "
		_, err = r.Change(command.Change{Instruction: &none}, "test")
		require.NoError(t, err)
		require.Equal(t, "IDLE", r.Snapshot().MonitorMode)
		r.stop()
	})
}

// TestEngineLimits: settings that the engine does not support are refused with the reason.
func TestEngineLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := newRig(t, steady(time.Second, time.Second), func(o *agent.Options) {
			o.Inference.Voice.Language = "nl"
			o.Log = zerolog.New(zerolog.SyncWriter(&log))
			scripted(o).Can = &inference.Capabilities{
				Languages: []string{"en"},
				MaxFrames: func(width, height, _ int) int { return 24 / (width * height) * 4 },
			}
		})
		time.Sleep(10 * time.Second)
		require.False(t, r.Snapshot().Capabilities.Instructions)
		require.Equal(t, "en", r.engine.Questions()[0].Language, "the voice reads English as English")

		frames, language, british := 5, "de", "en-GB"
		_, err := r.Change(command.Change{Settings: settings.Settings{Frames: &frames, Language: &language}}, "test")
		require.EqualError(t, err, `language: expected one of ["en"], as the scripted engine speaks nothing else, got "de"`+"\n"+
			"frames_per_look: expected at most 4, as the scripted engine has no room for more pictures of 4x4 in up to 2 tiles in a prompt, got 5")
		frames = 4
		_, err = r.Change(command.Change{Settings: settings.Settings{Frames: &frames, Language: &british}}, "test")
		require.NoError(t, err)
		side, slices, k := 5, 3, 7
		for want, change := range map[string]settings.Settings{
			"max_slices: expected no value, as the scripted engine cuts no pictures into tiles, got 3": {MaxSlices: &slices},
			"top_k: expected no value, as the scripted engine draws nothing at random, got one":        {TopK: &k},
			"long_side: expected a whole number from 64 to 4096, got 5":                                {LongSide: &side},
		} {
			_, err = r.Change(command.Change{Settings: change}, "test")
			require.EqualError(t, err, want)
		}
		r.stop()
		require.Contains(t, log.String(), "language not spoken by the engine")
	})
}

// TestLookSettings: settings of pictures and of random draws act on the next look.
func TestLookSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := 0.7
		var dec *agenttest.Decoder
		r := newRig(t, steady(time.Second, time.Second), func(o *agent.Options) {
			newDecoder := o.NewDecoder
			o.NewDecoder = func(sinks agent.DecoderSinks) (agent.Decoder, error) {
				d, err := newDecoder(sinks)
				dec, _ = d.(*agenttest.Decoder)
				return d, err
			}
			scripted(o).Can = &inference.Capabilities{
				Instructions: true, Slices: true, Sampling: &inference.Sampling{Temperature: &own},
				MaxFrames: func(width, _, slices int) int { return 4000 / (max(width, 4) * slices) },
			}
		})
		time.Sleep(10 * time.Second)
		before := r.Snapshot().Settings
		require.Equal(t, []any{0.7, 2, 448}, []any{*before.Temperature, *before.MaxSlices, *before.LongSide})
		require.Nil(t, before.TopK, "the engine does not say")
		require.Nil(t, r.engine.Questions()[0].Sampling.Temperature)

		warm, k, p, penalty, slices, side, quantile, margin := 1.2, 40, 0.9, 1.1, 3, 640, 0.8, 0.2
		out, err := r.Change(command.Change{Settings: settings.Settings{
			Temperature: &warm, TopK: &k, TopP: &p, RepetitionPenalty: &penalty, MaxSlices: &slices, Quantile: &quantile, Margin: &margin,
		}}, "test")
		require.NoError(t, err)
		require.Equal(t, []any{1.2, 40, 0.9, 1.1, 3, 0.8, 0.2}, []any{
			*out.Temperature, *out.TopK, *out.TopP, *out.RepetitionPenalty, *out.MaxSlices, *out.Quantile, *out.Margin,
		})
		asked := len(r.engine.Questions())
		time.Sleep(10 * time.Second)
		next := r.engine.Questions()[asked+1]
		require.Equal(t, inference.Sampling{Temperature: &warm, TopK: &k, TopP: &p, RepetitionPenalty: &penalty}, next.Sampling)
		require.Equal(t, 3, next.MaxSlices)

		_, err = r.Change(command.Change{Settings: settings.Settings{LongSide: &side}}, "test")
		require.EqualError(t, err, "frames_per_look: expected at most 2, as the scripted engine has no room for more pictures of 640x360 in up to 3 tiles in a prompt, got 4")
		require.Zero(t, dec.LongSide())
		one := 1
		_, err = r.Change(command.Change{Settings: settings.Settings{LongSide: &side, MaxSlices: &one}}, "test")
		require.NoError(t, err)
		require.Equal(t, 640, dec.LongSide())
		require.Equal(t, 640, r.Snapshot().LongSide)
		r.stop()
	})
}

// TestPromptsAreLoggedAtDebug: prompts and comments are people's words, and so in no other level.
func TestPromptsAreLoggedAtDebug(t *testing.T) {
	for _, level := range []zerolog.Level{zerolog.DebugLevel, zerolog.InfoLevel} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			r := newRig(t, steady(time.Second, time.Second), func(o *agent.Options) {
				o.Agent.Instruction = "the goalkeeper"
				o.Log = zerolog.New(zerolog.SyncWriter(&log)).Level(level)
			})
			time.Sleep(20 * time.Second)
			other := "the referee"
			_, err := r.Change(command.Change{Instruction: &other}, "ana")
			require.NoError(t, err)
			_, err = r.Session.Command(command.Undo, "ana")
			require.NoError(t, err)
			time.Sleep(20 * time.Second)
			r.stop()
			for _, words := range []string{"Focus: the goalkeeper", `"text":"Red attacks down the left wing."`, "“the goalkeeper”"} {
				require.Equal(t, level == zerolog.DebugLevel, strings.Contains(log.String(), words), "%v: %s", level, words)
			}
		})
	}
}

func TestLoadingModelSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := newRig(t, steady(time.Second, time.Second), func(o *agent.Options) {
			scripted(o).Phase = func() inference.Status {
				if d := time.Since(start); d < 20*time.Second {
					return inference.Status{Phase: inference.PhaseLoading, Percent: int(d.Seconds() * 5), Detail: "reading weights"}
				}
				return inference.Status{Phase: inference.PhaseReady, Percent: 100}
			}
		})
		time.Sleep(5 * time.Second)
		require.Equal(t, agent.StateInitializing, r.Status().State)
		require.Equal(t, agent.ActivityLoading, r.Status().Activity)
		time.Sleep(10 * time.Second)
		require.Equal(t, agent.StateIdle, r.Status().State, "initializing for at most 10 s")
		require.Empty(t, r.engine.Questions())
		time.Sleep(6 * time.Second)
		require.NotEmpty(t, r.engine.Questions())
		r.stop()
	})
}

// TestRoomLostInTheMiddle: a comment that ends while the room is away has the outcome "cut"; if the room
// is back before the end, it is whole.
func TestRoomLostInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 3*time.Second), nil)
		defer r.stop()
		speaking := func() {
			for r.Status().State != agent.StateSpeaking {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(500 * time.Millisecond)
		}
		speaking()
		r.SetRoom("the room is away: gone")
		time.Sleep(time.Second)
		r.SetRoom("")
		time.Sleep(2500 * time.Millisecond)
		first := r.reader.Records()
		require.NotEmpty(t, first)
		require.Equal(t, look.OutcomeSpoken, first[len(first)-1].Outcome)

		speaking()
		r.SetRoom("the room is away: gone")
		time.Sleep(4 * time.Second)
		second := r.reader.Records()[len(first):]
		require.NotEmpty(t, second)
		require.Equal(t, look.OutcomeCut, second[0].Outcome)
		require.Equal(t, "the room is away: gone", second[0].Reason)
		require.NotEmpty(t, second[0].Text)
		r.SetRoom("")
	})
}

// lockedVoice is a voice whose Write needs something of the session that waits for its lock, as the voice's own
// goroutine does.
type lockedVoice struct {
	speech.Voice
	session *agent.Session
	stuck   atomic.Int32
	written chan struct{}
}

type lockedSpeech struct {
	speech.Sound
	v *lockedVoice
}

func (v *lockedVoice) NewUtterance(ev speech.Events) speech.Sound {
	return &lockedSpeech{v.Voice.NewUtterance(ev), v}
}

func (s *lockedSpeech) Write(pcm media.PCM) (time.Duration, error) {
	free := make(chan struct{})
	go func() { s.v.session.Snapshot(); close(free) }()
	select {
	case <-free:
	case <-time.After(5 * time.Second):
		s.v.stuck.Add(1)
	}
	select {
	case s.v.written <- struct{}{}:
	default:
	}
	return s.Sound.Write(pcm)
}

// TestAudioIsConvertedWithoutTheLock: converting a sentence takes milliseconds, in which the voice under way must be
// able to say what became of it.
func TestAudioIsConvertedWithoutTheLock(t *testing.T) {
	t.Parallel()
	v := &lockedVoice{Voice: agenttest.NewVoice(), written: make(chan struct{}, 1)}
	start := make(chan struct{})
	r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
		<-start
		return agenttest.Answer{Text: "Red attacks down the left wing.", Speech: time.Second}
	}, func(o *agent.Options) { o.Audio = v })
	v.session = r.Session
	close(start)
	<-v.written
	<-v.written
	r.stop()
	require.Zero(t, v.stuck.Load(), "writes during which the session was locked")
}

// closeFails is an engine whose sessions do not close.
type closeFails struct{ *agenttest.Engine }

type closeFailsSession struct{ inference.Session }

func (m closeFails) NewSession() (inference.Session, error) {
	s, err := m.Engine.NewSession()
	return closeFailsSession{s}, err
}

func (closeFailsSession) Close() error { return errors.New("memory is still in use") }

func TestAFailedCloseIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := newRig(t, steady(time.Second, time.Second), func(o *agent.Options) {
			o.Engine = agenttest.Open(closeFails{&agenttest.Engine{Answer: steady(time.Second, time.Second)}})
			o.Log = zerolog.New(zerolog.SyncWriter(&log))
		})
		time.Sleep(time.Second)
		r.stop()
		require.Contains(t, log.String(), "memory is still in use")
	})
}

// TestPresets: a preset sets several settings at once, a setting made by hand ends it, and "auto" follows the engine.
func TestPresets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		preset := func(name string, fps float64, frames int) settings.Preset {
			return settings.Preset{Name: name, Settings: settings.Settings{CaptureFPS: &fps, Frames: &frames}}
		}
		var slow atomic.Int64
		r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
			return agenttest.Answer{Latency: time.Duration(slow.Load()), Text: "Red attacks down the left wing.", Speech: time.Second}
		}, func(o *agent.Options) {
			o.Presets = []settings.Preset{preset("beast", 5, 10), preset("owl", 4, 8), preset("sentry", 2, 4), preset("sniper", 5, 4)}
			scripted(o).Can = &inference.Capabilities{
				Instructions: true, MaxFrames: func(int, int, int) int { return 8 },
			}
		})
		slow.Store(int64(200 * time.Millisecond))
		change := func(s settings.Settings) error {
			_, err := r.Change(command.Change{Settings: s}, "test")
			return err
		}
		snap := r.Snapshot()
		require.Equal(t, []string{"beast", "owl", "sentry", "sniper"}, snap.Presets)
		require.Empty(t, *snap.Settings.Preset)
		require.NoError(t, change(settings.Settings{Preset: new("owl")}))
		snap = r.Snapshot()
		require.Equal(t, []any{"owl", 8, 4.0}, []any{*snap.Settings.Preset, *snap.Settings.Frames, *snap.Settings.CaptureFPS})
		require.ErrorContains(t, change(settings.Settings{Preset: new("beast")}), "frames_per_look: expected at most 8")
		require.ErrorContains(t, change(settings.Settings{Preset: new("eagle")}), `preset: expected one of ["auto" "beast" "owl" "sentry" "sniper"], or "" for none, got "eagle"`)
		require.NoError(t, change(settings.Settings{Frames: new(3)}))
		require.Empty(t, *r.Snapshot().Settings.Preset, "by hand")

		require.NoError(t, change(settings.Settings{Preset: new("auto")}))
		require.Equal(t, "sniper", r.Snapshot().PresetInForce)
		time.Sleep(2 * time.Minute)
		snap = r.Snapshot()
		require.Equal(t, []any{"auto", "owl", 8}, []any{*snap.Settings.Preset, snap.PresetInForce, *snap.Settings.Frames}, "beast does not fit")
		require.Contains(t, snap.PresetReason, "leave room for owl")
		slow.Store(int64(3 * time.Second))
		time.Sleep(5 * time.Minute)
		snap = r.Snapshot()
		require.Equal(t, []any{"sentry", 2.0}, []any{snap.PresetInForce, *snap.Settings.CaptureFPS})
		require.Contains(t, snap.PresetReason, "too slow for sniper")
		slow.Store(int64(200 * time.Millisecond))
		time.Sleep(5 * time.Minute)
		require.Equal(t, "owl", r.Snapshot().PresetInForce, "and up again")
		r.stop()
	})
}

// TestRepeatsAreCounted: the snapshot counts the comments that repeat one and are not said.
func TestRepeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(time.Second, 2*time.Second), func(o *agent.Options) { o.Agent.Repeats = settings.RepeatsSilence })
		time.Sleep(30 * time.Second)
		r.stop()
		repeated := uint64(0)
		for _, rec := range r.reader.Records() {
			if rec.Outcome == look.OutcomeRepeated {
				repeated++
			}
		}
		require.Positive(t, repeated)
		require.Equal(t, repeated, r.Snapshot().Repeated)
	})
}

// barred is a decoder that refuses all pictures.
type barred struct{ *agenttest.Decoder }

func (barred) Trouble() string { return "a picture of 7680 x 4320 pixels needs 569 MB of memory" }

// TestPictureThatIsNotDecoded: the status says why the model sees nothing of a camera that sends pictures.
func TestPictureThatIsNotDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 2*time.Second), func(o *agent.Options) {
			o.NewDecoder = func(agent.DecoderSinks) (agent.Decoder, error) {
				return barred{&agenttest.Decoder{OnPicture: func(media.VideoFrame) {}}}, nil
			}
		})
		time.Sleep(5 * time.Second)
		got := r.Status()
		resume := r.camera.Pause(true)
		time.Sleep(10 * time.Second)
		away := r.Status()
		resume()
		r.stop()
		require.Equal(t, agent.ActivityWaiting, got.Activity)
		require.Equal(t, "the camera's picture cannot be decoded: a picture of 7680 x 4320 pixels needs 569 MB of memory", got.Detail)
		require.Equal(t, "the camera sends no picture", away.Detail)
	})
}
