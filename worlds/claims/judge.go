package claims

import (
	"slices"
	"time"

	"touchline/worlds"
)

// Tolerances of the judge; see the package's documentation.
const (
	eventFor = 8 * time.Second  // after an event, in which a comment may report it
	goalFor  = 20 * time.Second // the same for a goal
	ahead    = 500 * time.Millisecond
	longer   = 3 * time.Second // before the beginning, for events that are visible before they begin
	around   = 500 * time.Millisecond
	step     = 125 * time.Millisecond // between two moments at which a state is checked
)

// Film is the truth of a world over time. A worlds.World is one.
type Film interface {
	// Truth returns what the picture at a moment shows.
	Truth(at time.Duration) worlds.Truth
	// Events lists the events that begin in [from, to).
	Events(from, to time.Duration) []worlds.Event
}

// Verdict is the judgement of one claim.
type Verdict struct {
	Claim Claim
	// True means that the claim holds. Judged means that it can be judged; a refusal cannot.
	True, Judged bool
	// Events are the events that the claim reports correctly, the newest last.
	Events []worlds.Event
}

// Judge compares the claims of a comment with the truth around the newest picture of its look.
func Judge(all []Claim, film Film, at time.Duration) []Verdict {
	m := &moment{film: film, at: at, now: film.Truth(at)}
	for t := max(0, at-around); t <= at+around; t += step {
		m.near = append(m.near, film.Truth(t))
	}
	out := make([]Verdict, 0, len(all))
	for _, c := range all {
		out = append(out, m.judge(c))
	}
	return out
}

// moment is the truth around a picture.
type moment struct {
	film Film
	at   time.Duration
	now  worlds.Truth
	near []worlds.Truth // within the tolerance of states, including the present
}

func (m *moment) judge(c Claim) Verdict {
	v := Verdict{Claim: c, Judged: true}
	switch c.Kind {
	case Cannot, Someone:
		v.Judged, v.True = false, true
		return v
	case Stranger, Dark, Never:
		v.True = c.Kind == Never && c.Not
		return v
	}
	if m.now.Match != nil {
		v.Events = m.matching(func(e worlds.Event) bool { return m.tellsMatch(c, e) }, m.span(c.Kind))
		v.True = len(v.Events) > 0 || m.any(func(t worlds.Truth) bool { return m.holdsMatch(c, t) })
	} else {
		v.Events = m.matching(func(e worlds.Event) bool { return m.tellsYard(c, e) }, m.span(c.Kind))
		v.True = len(v.Events) > 0 || m.any(func(t worlds.Truth) bool { return m.holdsYard(c, t) })
	}
	if c.Not {
		v.True, v.Events = !v.True, nil
		if isState(c.Kind) {
			v.True = m.any(func(t worlds.Truth) bool { return !m.holds(c, t) })
		}
	}
	return v
}

func (m *moment) holds(c Claim, t worlds.Truth) bool {
	if t.Match != nil {
		return m.holdsMatch(c, t)
	}
	return m.holdsYard(c, t)
}

// any reports whether a condition holds at any moment near the picture.
func (m *moment) any(holds func(worlds.Truth) bool) bool {
	return slices.ContainsFunc(m.near, holds)
}

// span returns how long before and after the picture an event of a kind may begin.
func (m *moment) span(k Kind) (out [2]time.Duration) {
	switch k {
	case Goal, Joy:
		return [2]time.Duration{goalFor, ahead}
	case Dusk, Dawn:
		return [2]time.Duration{twilightFor, ahead}
	case Leave, CarLeave, ParcelLeft, ParcelTaken, KickOff:
		return [2]time.Duration{eventFor, longer}
	}
	return [2]time.Duration{eventFor, ahead}
}

// matching lists the events of a span that match the claim.
func (m *moment) matching(fits func(worlds.Event) bool, span [2]time.Duration) (out []worlds.Event) {
	for _, e := range m.film.Events(max(0, m.at-span[0]), m.at+span[1]+1) {
		if fits(e) {
			out = append(out, e)
		}
	}
	return out
}

// isState reports whether a kind is a pure state. Near a change, both the state and its opposite hold.
func isState(k Kind) bool {
	switch k {
	case Ball, Score, Lead, Level, Person, People, Empty, Car, Cars, ParcelThere, ParcelNone, Carries, Animal, Rain, Dry, LampLit, NoLit,
		Night, Day:
		return true
	}
	return false
}
