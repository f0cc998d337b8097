package look_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/inference"
	"touchline/media"
)

// TestTryRule: a rule is tried on the present pictures and on past looks, beside the commentary and without votes.
func TestTryRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []time.Duration // newest picture of each trial
		r := newRig(t, watching(func(p inference.Prompt) agenttest.Answer {
			seen = append(seen, p.Frames[len(p.Frames)-1].PTS)
			switch len(seen) % 3 {
			case 0:
				return agenttest.Answer{Err: inference.ErrOverloaded}
			case 1:
				return replies(holds)(p)
			}
			return replies(`{"fired":[]}`)(p)
		}), func(r *rig) { r.rules = rules(t) })
		const rule = "a goal is scored"
		_, err := r.TryRule(t.Context(), rule, false, 0)
		require.ErrorIs(t, err, look.ErrNoPicture)
		time.Sleep(2 * time.Minute)
		byFacts, err := r.TryRule(t.Context(), rule, true, 0)
		require.NoError(t, err)
		require.Equal(t, look.TrialUnanswered, byFacts[0].Verdict)
		require.Equal(t, "the detector runs only while a rule by facts is active", byFacts[0].Reason)
		failed := r.of(look.OutcomeFailed)

		trials, err := r.TryRule(t.Context(), rule, false, look.MaxTrials)
		require.NoError(t, err)
		require.Len(t, trials, 1+look.MaxTrials)
		for i, trial := range trials {
			want := look.Trial{At: trial.At, FrameID: trial.FrameID, EngineSec: trial.EngineSec}
			switch i % 3 {
			case 0:
				want.Verdict, want.Reason = look.TrialHolds, "the ball is in the net"
				require.InDelta(t, 0.2, trial.EngineSec, 1e-9)
			case 1:
				want.Verdict = look.TrialHoldsNot
			case 2:
				want.Verdict, want.Reason = look.TrialUnanswered, inference.ErrOverloaded.Error()
			}
			require.Equal(t, want, trial)
			if i > 1 {
				require.True(t, trial.At.Before(trials[i-1].At), "newest first")
				require.Less(t, seen[i], seen[i-1])
			}
		}
		require.Zero(t, r.alerts)
		require.Equal(t, failed, r.of(look.OutcomeFailed))

		go func() { _, _ = r.TryRule(t.Context(), rule, false, look.MaxTrials) }()
		synctest.Wait()
		_, err = r.TryRule(t.Context(), rule, false, 0)
		require.ErrorIs(t, err, look.ErrTrying)
		time.Sleep(10 * time.Second)

		resume := r.camera.Pause(true)
		resume()
		time.Sleep(time.Second)
		trials, err = r.TryRule(t.Context(), rule, false, look.MaxTrials)
		require.NoError(t, err)
		require.Less(t, len(trials), 4, "looks at another source are forgotten")

		time.Sleep(time.Minute)
		r.engine.Become(inference.Capabilities{Instructions: true, Facts: true})
		time.Sleep(10 * time.Second)
		trials, err = r.TryRule(t.Context(), rule, false, look.MaxTrials)
		require.NoError(t, err)
		require.Len(t, trials, 1, "an engine that decides by facts needs no past looks")
		r.stop()
	})
}

// TestForget: pictures that were taken before a mask came into force are in no later look, and raise no alert.
func TestForget(t *testing.T) {
	for _, mask := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var loop *rig
			var took atomic.Int64 // PTS of the first picture for a look
			took.Store(-1)
			answer := watching(func(p inference.Prompt) agenttest.Answer {
				if mask { // while the look is in flight
					loop.Loop.Forget()
				}
				return replies(holds)(p)
			})
			r := newRig(t, func(n int, p inference.Prompt) agenttest.Answer {
				for _, f := range p.Frames {
					assert.Greater(t, int64(f.PTS), took.Load())
				}
				return answer(n, p)
			}, func(r *rig) {
				loop = r
				r.rules = rules(t, alert.Rule{When: "a goal is scored"})
				r.latest = func(f media.VideoFrame) {
					if took.CompareAndSwap(-1, int64(f.PTS)) {
						r.Loop.Forget()
					}
				}
			})
			time.Sleep(2 * time.Minute)
			r.stop()
			require.Equal(t, mask, r.alerts == 0)
			require.GreaterOrEqual(t, took.Load(), int64(0))
		})
	}
}

// TestForgetEndsCycle: a cycle in flight when a mask comes into force has no comment.
func TestForgetEndsCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loop *rig
		r := newRig(t, func(n int, p inference.Prompt) agenttest.Answer {
			if n == 0 {
				loop.Loop.Forget()
			}
			return steady(500*time.Millisecond, time.Second)(n, p)
		}, func(r *rig) { loop = r })
		time.Sleep(20 * time.Second)
		r.stop()
		first := r.Records()[0]
		require.Equal(t, look.OutcomeDropped, first.Outcome)
		require.Equal(t, "the masks or zones changed", first.Reason)
		require.NotZero(t, r.of(look.OutcomeSpoken))
	})
}

// TestForgetEndsRules: a look with rules in flight when a mask comes into force ends at once, and is no failure.
func TestForgetEndsRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := replies(holds)(inference.Prompt{})
		slow.Latency = time.Hour
		r := newRig(t, watching(func(inference.Prompt) agenttest.Answer { return slow }), func(r *rig) {
			r.rules, r.task.Active = rules(t, alert.Rule{When: "a goal is scored"}), false
		})
		time.Sleep(10 * time.Second)
		require.Empty(t, ofKind(r.Traces(), look.TraceRules), "in flight")
		for n := range 3 {
			r.Loop.Forget()
			time.Sleep(5 * time.Second) // less than cycle_timeout
			ruled := ofKind(r.Traces(), look.TraceRules)
			require.Len(t, ruled, n+1)
			require.Equal(t, "the masks or zones changed", ruled[0].Error)
		}
		r.stop()
		require.Zero(t, r.alerts)
	})
}

// TestTryRuleIsBounded: a slow engine answers some of the trials, and an engine that reads no rules none.
func TestTryRuleIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watching(func(inference.Prompt) agenttest.Answer {
			return agenttest.Answer{Latency: 25 * time.Second, Text: holds}
		}), func(r *rig) { r.rules = rules(t) })
		time.Sleep(time.Minute)
		began := time.Now()
		trials, err := r.TryRule(t.Context(), "a goal is scored", false, look.MaxTrials)
		require.NoError(t, err)
		require.Len(t, trials, 2)
		require.Equal(t, time.Minute, time.Since(began))
		r.engine.Become(inference.Capabilities{})
		_, err = r.TryRule(t.Context(), "a goal is scored", false, 0)
		require.ErrorIs(t, err, look.ErrRulesUnread)
		require.ErrorContains(t, err, "the scripted engine reads no alert rules")
		r.stop()
	})
}
