package alert_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/inference"
	"touchline/internal/clocktest"
	"touchline/media"
	"touchline/media/window"
)

func start() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// room looks for its rules each second.
type room struct {
	*alert.Set

	now time.Time
}

func newRoom(t *testing.T, rules ...alert.Rule) *room {
	t.Helper()
	set, err := alert.NewSet(alert.Config{Rules: rules})
	require.NoError(t, err)
	return &room{set, start()}
}

// look takes one look, whose answer comes half a second later, and returns what came of it.
func (r *room) look(answer string) []alert.Alert {
	r.now = r.now.Add(time.Second)
	return r.Answer(look.Answer{
		Rules: r.Due(r.now), Text: answer, Anchor: window.Frame{ID: 7, VideoFrame: media.VideoFrame{
			PTS: 90 * time.Second, Arrival: r.now.Add(-100 * time.Millisecond),
		}}, Answered: r.now.Add(500 * time.Millisecond),
	})
}

const (
	none  = `{"fired":[]}`
	first = `{"fired":[{"rule":1,"reason":"Red  scores.\n"}]}`
)

func door() alert.Rule {
	return alert.Rule{Name: "door", When: "somebody enters", Level: "critical", Cadence: "1s", Interrupt: true}
}

func TestAlert(t *testing.T) {
	t.Parallel()
	r := newRoom(t, door())
	require.Empty(t, r.look(first), "one vote")
	alerts := r.look(first)
	require.Len(t, alerts, 1)
	a := alerts[0]
	require.NotEmpty(t, a.ID)
	require.Equal(t, alert.Alert{
		Type: "alert", ID: a.ID, Phase: alert.PhaseNew, At: r.now.Add(500 * time.Millisecond), Rule: "r1", Name: "door",
		Level: "critical", Reason: "Red scores.", AnchorPTS: 90, FrameID: 7, Agreed: 2, Looks: 3, LatencySec: 0.6, Interrupt: true,
	}, a)
	require.True(t, r.List(r.now)[0].On)
	for range 4 {
		require.Empty(t, r.look(none))
	}
	alerts = r.look(none)
	require.Len(t, alerts, 1)
	require.Equal(t, a.ID, alerts[0].ID)
	require.Equal(t, alert.PhaseCleared, alerts[0].Phase)
	require.Equal(t, "5 looks in a row did not see it", alerts[0].Reason)
	require.False(t, r.List(r.now)[0].On)
	require.Equal(t, uint64(7), r.List(r.now)[0].Looks)
}

func TestReasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"": "somebody enters", "\n": "somebody enters", strings.Repeat("é", 300): strings.Repeat("é", 199) + "…",
	} {
		r := newRoom(t, door())
		answer := fmt.Sprintf(`{"fired":[{"rule":1,"reason":%q}]}`, reason)
		r.look(answer)
		require.Equal(t, want, r.look(answer)[0].Reason)
	}
}

// TestAnswers: an answer that is none changes no votes.
func TestAnswers(t *testing.T) {
	t.Parallel()
	r := newRoom(t, door())
	r.look(first)
	require.Empty(t, r.look("I see nothing."))
	require.Empty(t, r.Answer(look.Answer{Rules: r.Due(r.now.Add(time.Second)), Text: first, Err: errors.New("engine stopped")}))
	r.now = r.now.Add(time.Second)
	status := r.List(r.now)[0]
	require.Equal(t, uint64(1), status.Looks)
	require.Equal(t, uint64(2), status.Unanswered)
	require.Len(t, r.look(first), 1, "the second vote")

	require.Empty(t, r.look(`{"fired":[{"rule":2,"reason":"x"},{"rule":0}]}`), "rules that the look did not ask about")
	require.Equal(t, uint64(2), r.List(r.now)[0].Unanswered, "an answer all the same")
}

func TestDue(t *testing.T) {
	t.Parallel()
	r := newRoom(t, alert.Rule{When: "slow", Cadence: "10s"}, alert.Rule{When: "quick", Level: "info", Cadence: "1s"})
	at := func(seconds float64) time.Time { return start().Add(time.Duration(seconds * float64(time.Second))) }
	next := func(now time.Time) time.Time {
		at, ok := r.Next(now)
		require.True(t, ok)
		return at
	}
	require.Equal(t, at(0), next(at(0)), "the first look")
	require.Equal(t, []prompt.Rule{{Number: 1, When: "slow", ID: "r1"}, {Number: 2, When: "quick", ID: "r2"}}, r.Due(at(0)))
	require.Equal(t, at(2), next(at(0)), "a look of its own only when no other came in a cadence")
	require.Empty(t, r.Due(at(0.9)))
	require.Equal(t, []prompt.Rule{{Number: 1, When: "quick", ID: "r2"}}, r.Due(at(2)))
	require.Zero(t, r.List(at(2))[1].Late, "within its cadence after it was due")
	require.Len(t, r.Due(at(4.1)), 1)
	require.Equal(t, uint64(1), r.List(at(4.1))[1].Late)

	id, err := r.Add(alert.RuleText{When: "now", Level: "critical", Cadence: "1s"})
	require.NoError(t, err)
	require.Equal(t, at(4.2), next(at(4.2)), "a critical rule waits for no other look")
	require.Equal(t, id, r.Due(at(10))[0].ID, "critical rules come first")

	_, ok := newRoom(t).Next(start())
	require.False(t, ok)
	_, ok = newRoom(t, alert.Rule{When: "x", Hours: "01:00-02:00", Zone: "UTC"}).Next(start())
	require.False(t, ok)
}

func TestEdit(t *testing.T) {
	t.Parallel()
	r := newRoom(t, door())
	id, err := r.Add(alert.RuleText{When: "the pan smokes"})
	require.NoError(t, err)
	require.Equal(t, "r2", id)
	require.NoError(t, r.Replace("r1", alert.RuleText{When: "a dog barks"}))
	require.ErrorIs(t, r.Replace("r9", alert.RuleText{When: "x"}), alert.ErrNoRule)
	require.ErrorContains(t, r.Replace("r1", alert.RuleText{}), "when: must be a sentence")
	_, err = r.Add(alert.RuleText{When: "x", Level: "loud"})
	require.ErrorContains(t, err, "level: must be info")
	require.NoError(t, r.Remove("r2"))
	require.ErrorIs(t, r.Remove("r2"), alert.ErrNoRule)
	for i := range alert.MaxRules - 1 {
		id, err = r.Add(alert.RuleText{When: "x"})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("r%d", i+3), id, "an id is never used again")
	}
	_, err = r.Add(alert.RuleText{When: "x"})
	require.ErrorIs(t, err, alert.ErrTooManyRules)
	list := r.List(r.now)
	require.Len(t, list, alert.MaxRules)
	require.Equal(t, "a dog barks", list[0].When)
}

// TestExpire: alerts end without a look.
func TestExpire(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		end    func(r *room)
		reason string
	}{
		{"removed", func(r *room) { _ = r.Remove("r1") }, "the rule was removed"},
		{"replaced", func(r *room) { _ = r.Replace("r1", alert.RuleText{When: "x"}) }, "the rule was changed"},
		{"another source", func(r *room) { r.Forget() }, "the source changed"},
		{"no looks", func(r *room) { r.now = r.now.Add(time.Minute) }, "no look confirmed it"},
		{"after hours", func(r *room) { r.now = r.now.Add(2 * time.Hour) }, "the hours of the rule are over"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rule := door()
			rule.Hours, rule.Zone = "12:00-13:00", "UTC"
			r := newRoom(t, rule)
			r.look(first)
			a := r.look(first)[0]
			require.Empty(t, r.Expire(r.now))
			tt.end(r)
			a.Phase, a.At, a.Reason = alert.PhaseCleared, r.now, tt.reason
			require.Equal(t, []alert.Alert{a}, r.Expire(r.now))
			require.Empty(t, r.Expire(r.now))
		})
	}
}

// TestAnswerOfARemovedRule: a rule that changed while the engine answered gets no vote.
func TestAnswerOfARemovedRule(t *testing.T) {
	t.Parallel()
	r := newRoom(t, alert.Rule{When: "a", Votes: "1 of 1"}, alert.Rule{When: "b", Votes: "1 of 1"}, alert.Rule{When: "c", Votes: "1 of 1"})
	asked := look.Answer{
		Rules: r.Due(start()), Text: `{"fired":[{"rule":1},{"rule":2},{"rule":3}]}`, Answered: start().Add(time.Second),
	}
	require.NoError(t, r.Remove("r1"))
	require.NoError(t, r.Replace("r2", alert.RuleText{When: "d", Votes: "1 of 1"}))
	alerts := r.Answer(asked)
	require.Len(t, alerts, 1)
	require.Equal(t, "c", alerts[0].Name)
}

// TestSnooze: a snoozed rule is not looked for, and its alert ends.
func TestSnooze(t *testing.T) {
	t.Parallel()
	r := newRoom(t, door())
	r.look(first)
	r.look(first)
	late := look.Answer{Rules: r.Due(r.now.Add(time.Second)), Text: first, Answered: r.now.Add(time.Second)}
	require.NoError(t, r.Snooze("r1", "10m", "Ana", r.now))
	require.Empty(t, r.Answer(late), "no votes of a look under way")
	ended := r.Expire(r.now)
	require.Len(t, ended, 1)
	require.Equal(t, alert.PhaseCleared, ended[0].Phase)
	require.Equal(t, "the rule is snoozed", ended[0].Reason)
	st := r.List(r.now)[0]
	require.Equal(t, "Ana", st.SnoozedBy)
	require.Equal(t, r.now.Add(10*time.Minute), st.SnoozedUntil)
	require.False(t, st.On)
	require.Empty(t, r.Due(r.now.Add(9*time.Minute)))
	_, ok := r.Next(r.now.Add(9 * time.Minute))
	require.False(t, ok)

	require.NoError(t, r.Replace("r1", alert.RuleText(door())))
	require.Equal(t, "Ana", r.List(r.now)[0].SnoozedBy, "a changed rule stays snoozed")
	require.NoError(t, r.Snooze("r1", "0s", "Eva", r.now))
	st = r.List(r.now)[0]
	require.Empty(t, st.SnoozedBy)
	require.Zero(t, st.SnoozedUntil)
	require.Len(t, r.Due(r.now), 1, "due at once")

	require.NoError(t, r.Snooze("r1", "1m", "Ana", r.now))
	require.Len(t, r.Due(r.now.Add(time.Minute)), 1, "the time is over")
	require.ErrorIs(t, r.Snooze("r9", "1m", "Ana", r.now), alert.ErrNoRule)
	for _, length := range []string{"", "ten minutes", "-1s", "25h"} {
		require.ErrorContains(t, r.Snooze("r1", length, "Ana", r.now), `for: must be a time between 0s (which ends it) and 24h0m0s, such as "10m", is`)
	}
}

func TestAcknowledge(t *testing.T) {
	t.Parallel()
	r := newRoom(t, door())
	r.look(first)
	a := r.look(first)[0]
	require.ErrorIs(t, r.Acknowledge("", "Ana"), alert.ErrNoAlert)
	require.ErrorIs(t, r.Acknowledge("r1-x", "Ana"), alert.ErrNoAlert)
	require.NoError(t, r.Acknowledge(a.ID, "Ana"))
	require.NoError(t, r.Acknowledge(a.ID, "Eva"), "the first one counts")
	acked := r.Expire(r.now)
	require.Len(t, acked, 1)
	a.Phase, a.AckedBy, a.At = alert.PhaseAcked, "Ana", r.now
	require.Equal(t, a, acked[0])
	st := r.List(r.now)[0]
	require.Equal(t, a.ID, st.Alert)
	require.Equal(t, "Ana", st.AckedBy)
	require.True(t, st.On)
	r.Forget()
	cleared := r.Expire(r.now)
	require.Len(t, cleared, 1)
	require.Equal(t, "Ana", cleared[0].AckedBy)
}

// TestTest: a test has a begin and an end, and no votes.
func TestTest(t *testing.T) {
	t.Parallel()
	r := newRoom(t, door())
	require.ErrorIs(t, r.Test("r9", r.now), alert.ErrNoRule)
	require.NoError(t, r.Test("r1", r.now))
	require.NoError(t, r.Test("r1", r.now), "no second one at once")
	alerts := r.Expire(r.now)
	require.Len(t, alerts, 1)
	a := alerts[0]
	require.Equal(t, alert.Alert{
		Type: "alert", ID: a.ID, Phase: alert.PhaseNew, At: r.now, Rule: "r1", Name: "door", Level: "critical",
		Reason: "Test: somebody enters", Interrupt: true, Test: true,
	}, a)
	require.NoError(t, r.Acknowledge(a.ID, "Ana"))
	require.Len(t, r.Expire(r.now), 1)
	require.Empty(t, r.Expire(r.now.Add(4*time.Second)))
	alerts = r.Expire(r.now.Add(5 * time.Second))
	require.Len(t, alerts, 1)
	require.Equal(t, alert.PhaseCleared, alerts[0].Phase)
	require.Equal(t, a.ID, alerts[0].ID)
	require.True(t, alerts[0].Test)
	st := r.List(r.now)[0]
	require.False(t, st.On)
	require.Empty(t, st.Alert)
	require.Zero(t, st.Looks)
}

// TestAccept: a sentence that the engine refuses cannot be added, and a rule that has one waits for another engine.
func TestAccept(t *testing.T) {
	t.Parallel()
	r := newRoom(t, door(), alert.Rule{When: "cut"})
	refused := errors.New("the scene engine answers the rules cut and still")
	var check error
	r.Accept(func(r alert.RuleText) (facts bool, err error) {
		if r.When == "cut" {
			return false, nil
		}
		return false, check
	})
	require.Len(t, r.Due(r.now), 2)
	check = refused
	_, err := r.Add(alert.RuleText{When: "a dog barks"})
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "when: ")
	require.ErrorIs(t, r.Replace("r1", alert.RuleText{When: "a dog barks"}), refused)
	_, err = r.Check(alert.RuleText{When: "a dog barks"})
	require.ErrorIs(t, err, refused)
	_, err = r.Check(alert.RuleText{When: " cut"})
	require.NoError(t, err)
	list := r.List(r.now)
	require.Equal(t, refused.Error(), list[0].Problem)
	require.Empty(t, list[1].Problem)
	due := r.Due(r.now.Add(time.Minute))
	require.Len(t, due, 1)
	require.Equal(t, "cut", due[0].When)
}

// TestByFacts: facts need one look, unless the rule says otherwise, and looks of the engine do not check such a rule. The alert has the
// picture and the box of the finding. The rest is as with a model.
func TestByFacts(t *testing.T) {
	t.Parallel()
	r := newRoom(t, alert.Rule{When: "a person enters", Name: "yard"}, alert.Rule{When: "a goal is scored"},
		alert.Rule{When: "a car enters", Votes: "2 of 2"})
	facts := true
	r.Accept(func(r alert.RuleText) (bool, error) { return facts && strings.HasSuffix(r.When, "enters"), nil })
	require.Len(t, r.Due(r.now), 1)
	rules := r.ByFacts(r.now)
	require.Equal(t, []prompt.Rule{{Number: 1, ID: "r1", When: "a person enters"}, {Number: 1, ID: "r3", When: "a car enters"}}, rules)
	list := r.List(r.now)
	require.Equal(t, []string{"1 of 1", "2 of 3", "2 of 2"}, []string{list[0].Votes, list[1].Votes, list[2].Votes})
	require.Equal(t, alert.ByAuto, list[0].By)
	look := func(i int, holds bool) []alert.Alert {
		r.now = r.now.Add(400 * time.Millisecond)
		return r.Answer(look.Answer{
			Rules: rules[i : i+1], Answered: r.now,
			Finding: &inference.Finding{Holds: holds, Reason: "A person comes in.", Box: &inference.Box{X1: 0.5, Y1: 1}},
			Anchor:  window.Frame{ID: 7, VideoFrame: media.VideoFrame{PTS: 90 * time.Second, Arrival: r.now.Add(-2 * time.Second)}},
		})
	}
	require.Empty(t, look(0, false))
	alerts := look(0, true)
	require.Len(t, alerts, 1)
	require.Equal(t, alert.Alert{
		Type: "alert", ID: alerts[0].ID, Phase: alert.PhaseNew, At: r.now, Rule: "r1", Name: "yard", Level: "warning",
		Reason: "A person comes in.", AnchorPTS: 90, FrameID: 7, Agreed: 1, Looks: 1, LatencySec: 2, Box: &inference.Box{X1: 0.5, Y1: 1},
	}, alerts[0])
	require.Empty(t, look(2-1, true), "the first of two votes")
	require.Len(t, look(1, true), 1)
	for range 4 {
		require.Empty(t, look(0, false))
	}
	require.Equal(t, alert.PhaseCleared, look(0, false)[0].Phase, "after five looks without it")
	require.Empty(t, look(0, true), "the pause of 30 s")

	// A client that returns the default votes changes nothing.
	saved := r.Saved().Rules[0].RuleText
	require.NoError(t, r.Replace("r1", r.List(r.now)[0].RuleText))
	require.Equal(t, saved, r.Saved().Rules[0].RuleText)
	facts = false
	require.Equal(t, "2 of 3", r.List(r.now)[0].Votes)
	require.Len(t, r.Due(r.now.Add(time.Minute)), 3)
	_, err := r.Add(alert.RuleText{When: "a person enters", By: "me"})
	require.EqualError(t, err, `by: must be auto, facts or model, is "me"`)
}

// TestRulesAndTheWallClock: steps of the wall clock neither start looks nor stop them, and a snooze and a test last as long as asked. The
// hours of a rule are those of the wall clock.
func TestRulesAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		now := time.Now()
		after := func(d time.Duration) time.Time { return clocktest.Step(now.Add(d), step) }
		r := newRoom(t, alert.Rule{When: "slow", Cadence: "10s"})
		require.Len(t, r.Due(now), 1)
		require.Empty(t, r.Due(after(9*time.Second)), step)
		next, ok := r.Next(after(9 * time.Second))
		require.True(t, ok)
		require.Equal(t, 20*time.Second, next.Sub(now), step)
		require.Len(t, r.Due(after(10*time.Second)), 1, step)
		require.NoError(t, r.Snooze("r1", "10m", "Ann", now))
		require.NotZero(t, r.List(after(9 * time.Minute))[0].SnoozedUntil, step)
		require.Zero(t, r.List(after(11 * time.Minute))[0].SnoozedUntil, step)
		require.NoError(t, r.Test("r1", now))
		require.Len(t, r.Expire(after(4*time.Second)), 1, step)
		require.Len(t, r.Expire(after(6*time.Second)), 1, "%v: its end", step)

		today := now.UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
		hours := newRoom(t, alert.Rule{When: "noon", Cadence: "10s", Hours: "11:30-12:30", Zone: "UTC"})
		set := clocktest.Step(now, today.Sub(now).Truncate(time.Second)) // about noon
		require.True(t, hours.List(set)[0].Active)
		require.Equal(t, step.Abs() != time.Hour, hours.List(clocktest.Step(set, step))[0].Active, step)
	}
}
