package grade

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/look"
	"touchline/worlds"
	"touchline/worlds/match"
)

// graded is a grader of a world that began at a moment.
type graded struct {
	*Grader

	world *worlds.World
	began time.Time
}

func newGraded(t *testing.T, world string, seed uint64) *graded {
	t.Helper()
	w, err := worlds.New(worlds.Options{World: world, Seed: seed})
	require.NoError(t, err)
	g := &graded{world: w, began: time.Now()}
	g.Grader = &Grader{language: "en", film: func(arrived time.Time) (*worlds.World, time.Duration, bool) {
		return g.world, arrived.Sub(g.began), !arrived.Before(g.began)
	}}
	return g
}

// say records the answer to a look at a moment of the world; "" is silence.
func (g *graded) say(at time.Duration, text, instruction string) {
	r := look.Record{Outcome: look.OutcomeSilent, Instruction: instruction, NewestFrameAt: g.began.Add(at), OldestFrameAt: g.began.Add(at - time.Second)}
	if text != "" {
		r.Outcome, r.Text = look.OutcomeSpoken, text
	}
	g.Record(r)
}

// goal is one without another within a minute.
func goal(t *testing.T, w *worlds.World) (at time.Duration, team, other string) {
	t.Helper()
	var goals []worlds.Event
	for _, e := range w.Events(0, time.Hour) {
		if e.Match.Kind == match.Goal {
			goals = append(goals, e)
		}
	}
	for i := 1; i < len(goals)-1; i++ {
		e := goals[i]
		if e.At()-goals[i-1].At() > time.Minute && goals[i+1].At()-e.At() > time.Minute {
			teams := w.Truth(e.At()).Match.Teams
			return e.At(), teams[*e.Match.Team], teams[1-*e.Match.Team]
		}
	}
	require.FailNow(t, "no goal in an hour stands alone")
	return 0, "", ""
}

func TestGradeOfTheMatch(t *testing.T) {
	t.Parallel()
	g := newGraded(t, worlds.Match, 5)
	at, team, other := goal(t, g.world)
	now := g.began.Add(at + 30*time.Second)
	require.Nil(t, g.Grade(now), "nothing was said")

	g.say(at+time.Second, team+" score!", "")
	g.say(at+3*time.Second, other+" score!", "")
	g.say(at+4*time.Second, "Well, well.", "")
	g.say(at+5*time.Second, "", "")
	require.Equal(t, &agent.Grade{Right: 1, Wrong: 1, Unjudged: 1, Missed: new(0)}, g.Grade(now))
	later := g.Grade(now.Add(2 * gradedFor))
	require.Zero(t, later.Right+later.Wrong+later.Unjudged, "a minute later they are forgotten")

	// A goal that no comment tells is missed, unless an instruction may have left it out.
	g.Restart(g.began.Add(-time.Hour))
	g.say(at-5*time.Second, "", "")
	require.Equal(t, &agent.Grade{Missed: new(1)}, g.Grade(now))
	g.say(at-2*time.Second, "", "What's the score?")
	require.Equal(t, &agent.Grade{}, g.Grade(now))

	// Pictures of the previous source do not count, nor a failed cycle.
	g.Restart(g.began.Add(at))
	g.say(at, "Red score!", "")
	g.Record(look.Record{Outcome: look.OutcomeFailed, OldestFrameAt: now, NewestFrameAt: now})
	require.Nil(t, g.Grade(now))
	g.say(at-time.Hour, "Red score!", "")
	require.Nil(t, g.Grade(now), "a picture from before the world began")
}

func TestGradeOfTheYard(t *testing.T) {
	t.Parallel()
	g := newGraded(t, worlds.Yard, 1)
	var all int
	from := 30 * time.Second
	for _, e := range g.world.Events(from, from+40*time.Second) {
		for _, kind := range expected(g.world) {
			if e.Kind() == kind {
				all++
			}
		}
	}
	require.Positive(t, all, "somebody comes or goes")
	g.say(from, "", "")
	require.GreaterOrEqual(t, *g.Grade(g.began.Add(from + 50*time.Second)).Missed, all)
}

// Another language has words of its own.
func TestGradeInSpanish(t *testing.T) {
	t.Parallel()
	g := newGraded(t, worlds.Match, 5)
	at, _, _ := goal(t, g.world)
	now := g.began.Add(at + 30*time.Second)
	g.say(at+time.Second, "¡Gol!", "")
	was := g.Grade(now)
	g.Speak("es")
	require.Nil(t, g.Grade(now), "begun again")
	g.say(at+time.Second, "¡Gol!", "")
	require.NotEqual(t, was, g.Grade(now))
	require.Equal(t, 1, g.Grade(now).Right)
}
