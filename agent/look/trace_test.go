package look_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/inference"
)

// ofKind returns the looks of a kind.
func ofKind(looks []look.Trace, kind string) []look.Trace {
	return slices.DeleteFunc(slices.Clone(looks), func(l look.Trace) bool { return l.Kind != kind })
}

// TestLooks: the last looks of each kind are those that the engine was asked, newest first, and cost no more memory after an hour.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := watching(replies(holds))
		r := newRig(t, func(n int, p inference.Prompt) agenttest.Answer {
			a := answer(n, p)
			if n%7 == 3 && !p.Structured() {
				a.Err = inference.ErrOverloaded
			}
			return a
		}, func(r *rig) { r.rules = rules(t, alert.Rule{When: "a goal is scored"}) })
		require.Empty(t, r.Traces())
		r.instruct("only the keeper")
		time.Sleep(5 * time.Minute)
		_, err := r.TryRule(t.Context(), "a goal is scored", false, 0)
		require.NoError(t, err)

		looks := r.Traces()
		comments, ruled := ofKind(looks, look.TraceComment), ofKind(looks, look.TraceRules)
		require.Len(t, comments, 20)
		require.Len(t, ruled, 20)
		require.Len(t, ofKind(looks, look.TraceTrial), 1)
		require.True(t, slices.IsSortedFunc(looks, func(a, b look.Trace) int { return int(b.ID) - int(a.ID) }))
		require.Contains(t, ruled[0].Text, "1. a goal is scored")
		require.JSONEq(t, holds, ruled[0].Answer)
		require.NotEmpty(t, ruled[0].Schema)

		records := map[uint64]look.Record{}
		for _, rec := range r.Records() {
			records[rec.Cycle] = rec
		}
		asked := map[time.Time]agenttest.Asked{}
		for _, q := range r.engine.Questions() {
			asked[q.At] = q
		}
		for _, l := range comments {
			q, ok := asked[l.At]
			require.True(t, ok)
			require.Equal(t, []any{q.System, q.Text, q.MaxTokens, q.Speech}, []any{l.System, l.Text, l.MaxTokens, l.Spoken})
			require.Len(t, l.Pictures, len(q.Frames))
			require.Equal(t, []inference.Exchange{{Request: q.System + "\n" + q.Text, Answer: l.Answer}}, l.Exchanges)
			rec, ended := records[l.Cycle]
			require.Equal(t, rec.Outcome, l.Outcome)
			if ended {
				require.Equal(t, rec.FrameIDs[0], l.Pictures[0].ID)
			}
			require.InDelta(t, 0.5, l.FirstWordSec, 1e-9)
		}
		_, err = json.Marshal(looks)
		require.NoError(t, err)
		r.stop()
	})
}

// TestLooksAreBounded: long answers are cut, and long looks leave room for fewer.
func TestLooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("goal é ", 20_000)
		r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
			return agenttest.Answer{Text: long, Latency: time.Second}
		}, func(r *rig) { r.task.Spoken = false })
		r.instruct("look")
		time.Sleep(2 * time.Minute)
		looks := r.Traces()
		require.Greater(t, len(looks), 2)
		require.Less(t, len(looks), 10)
		for _, l := range looks {
			require.True(t, l.Cut)
			require.LessOrEqual(t, len(l.Answer), 64<<10+len("…"))
			require.True(t, strings.HasSuffix(l.Answer, "…"))
		}
		r.stop()
	})
}

// TestLooksOfFailures: an error and a new instruction are in the look; a second try has its own.
func TestLooksOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("the model is on fire")
		r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
			switch n {
			case 0:
				return agenttest.Answer{Err: broken, Latency: time.Second}
			case 3:
				return agenttest.Answer{Text: "Blue scores.", Latency: time.Hour}
			}
			return agenttest.Answer{Text: "Red attacks down the left wing.", Latency: time.Second}
		}, func(r *rig) { r.task.Agent.Repeats, r.task.Spoken = settings.RepeatsRetry, false })
		r.instruct("look")
		for len(r.engine.Questions()) < 4 {
			time.Sleep(100 * time.Millisecond)
		}
		r.instruct("look at blue")
		time.Sleep(500 * time.Millisecond)
		looks := r.Traces()
		require.Len(t, looks, 4)
		slices.Reverse(looks)
		for i, want := range []struct{ kind, outcome, err string }{
			{look.TraceComment, look.OutcomeFailed, broken.Error()},
			{look.TraceComment, look.OutcomeShown, ""},
			{look.TraceComment, look.OutcomeRepeated, ""},
			{look.TraceRetry, look.OutcomeDropped, "a new instruction came"},
		} {
			l := looks[i]
			require.Equal(t, want.kind, l.Kind, i)
			require.Equal(t, want.outcome, l.Outcome, i)
			require.Equal(t, want.err, l.Error, i)
		}
		require.Equal(t, looks[2].Cycle, looks[3].Cycle)
		require.Equal(t, looks[2].Text+"\nYou said that before. Say something else, or answer only with ...", looks[3].Text)
		r.stop()
	})
}

// TestNextPrompt: the preview is the prompt that the next cycle has if it begins at once, and changes nothing.
func TestNextPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(time.Second, 2*time.Second), func(r *rig) { r.task.Agent.ChangeThreshold = 0 })
		_, err := r.NextPrompt()
		require.ErrorIs(t, err, look.ErrNoPicture)
		time.Sleep(20 * time.Second)
		before, asked := r.State(), len(r.engine.Questions())
		next, err := r.NextPrompt()
		require.NoError(t, err)
		require.Equal(t, before, r.State())
		require.Len(t, r.engine.Questions(), asked)
		require.Equal(t, look.TraceNext, next.Kind)
		require.NotEmpty(t, next.Pictures)
		last := r.Traces()[0]
		require.Equal(t, last.System, next.System)
		require.Contains(t, next.Text, "Red attacks down the left wing.")

		r.instruct("only the keeper")
		next, err = r.NextPrompt()
		require.NoError(t, err)
		synctest.Wait()
		questions := r.engine.Questions()
		require.Len(t, questions, asked+1)
		withoutHint := func(text string) string { _, rest, _ := strings.Cut(text, "\n"); return rest }
		require.Equal(t, withoutHint(questions[asked].Text), withoutHint(next.Text))

		r.task.Agent.ChangeThreshold = 255
		r.Set(r.task)
		next, err = r.NextPrompt()
		require.NoError(t, err)
		require.Equal(t, look.OutcomeSkipped, next.Outcome)
		r.stop()
	})
}
