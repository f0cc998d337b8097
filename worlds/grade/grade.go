// Package grade judges the comments on a generated world by the world's truth, for the page. It reads no pictures.
package grade

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/agent/look"
	"touchline/worlds"
	"touchline/worlds/claims"
	"touchline/worlds/match"
	"touchline/worlds/yard"
)

const (
	// gradedFor is the interval that a grade covers.
	gradedFor = time.Minute
	// toldFor is how long after an event a comment still counts as its report.
	toldFor = 20 * time.Second
	// switching is how long pictures of the previous source may still arrive.
	switching = 500 * time.Millisecond
)

// Grader judges the comments on a generated world by the world's truth. It is safe for concurrent use.
type Grader struct {
	// film returns the world that plays, and its time in the picture that arrived at a moment; ok is false for a picture before its
	// first.
	film func(arrived time.Time) (w *worlds.World, at time.Duration, ok bool)

	mu       sync.Mutex
	language string
	since    time.Time     // when the source was chosen; comments on earlier pictures do not count
	world    *worlds.World // the world of looks and tally
	looks    []answer      // not yet judged: Grade does it, because it needs time and memory
	tally    *claims.Tally // nil before the first
	ordered  time.Duration // world time of the last look that followed an instruction
}

// answer is an answer of the model; "" is silence.
type answer struct {
	at   time.Duration
	text string
}

var _ bot.Grader = (*Grader)(nil)

// New makes the grader of a camera's comments in a language (BCP 47).
func New(cameras *camera.Worlds, language string) *Grader {
	return &Grader{language: language, film: func(arrived time.Time) (*worlds.World, time.Duration, bool) {
		demo := cameras.Present()
		at, ok := demo.Time(arrived)
		return demo.World, at, ok
	}}
}

// Caption implements agent.TextOutput.
func (*Grader) Caption(agent.Caption) {}

// State implements agent.TextOutput.
func (*Grader) State(agent.Status) {}

// Record implements agent.TextOutput.
func (g *Grader) Record(r look.Record) {
	comment := r.IsComment()
	if !comment && r.Outcome != look.OutcomeSilent && r.Outcome != look.OutcomeRepeated {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, _, ok := g.film(r.OldestFrameAt); !ok || r.OldestFrameAt.Before(g.since) {
		return
	}
	world, at, _ := g.film(r.NewestFrameAt)
	if g.world != world {
		g.forgetLocked()
		g.world = world
	}
	if r.Instruction != "" {
		g.ordered = at
	}
	if !comment {
		r.Text = ""
	}
	g.looks = append(slices.DeleteFunc(g.looks, func(l answer) bool { return l.at < at-gradedFor-toldFor }), answer{at, r.Text})
}

func (g *Grader) forgetLocked() { g.world, g.looks, g.tally, g.ordered = nil, nil, nil, -gradedFor }

// Restart implements bot.Grader: it starts again with the pictures after a moment.
func (g *Grader) Restart(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since = now.Add(switching)
	g.forgetLocked()
}

// Speak implements bot.Grader.
func (g *Grader) Speak(language string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.language != language {
		g.language = language
		g.forgetLocked()
	}
}

// Grade implements bot.Grader.
func (g *Grader) Grade(now time.Time) *agent.Grade {
	g.mu.Lock()
	defer g.mu.Unlock()
	world, to, ok := g.film(now)
	if !ok || g.world != world {
		return nil
	}
	if g.tally == nil {
		g.tally = claims.NewTally(world, cmp.Or(g.language, "en"), world.Name())
	}
	for _, l := range g.looks {
		g.tally.Add(l.at, l.text)
	}
	g.looks = nil
	from := max(0, to-gradedFor)
	g.tally.Forget(from - toldFor)
	r := g.tally.Report(from, to)
	out := &agent.Grade{Right: r.Comments - r.Wrong - r.Unjudged, Wrong: r.Wrong, Unjudged: r.Unjudged}
	if g.ordered < from { // comments may omit events because of an instruction
		missed := 0
		for _, kind := range expected(world) {
			missed += r.Events[kind].Of - r.Events[kind].Right
		}
		out.Missed = &missed
	}
	return out
}

// expected lists the kinds of events that count as missed if no comment reports them.
func expected(w *worlds.World) []string {
	if w.Name() == worlds.Match {
		return []string{string(match.Goal)}
	}
	return []string{
		string(yard.Arrive), string(yard.Leave), string(yard.ParcelLeft), string(yard.ParcelTaken), string(yard.CarArrive), string(yard.CarLeave),
	}
}
