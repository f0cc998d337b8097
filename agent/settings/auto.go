package settings

import (
	"time"

	"touchline/pacing"
)

// budgets are the median times of a cycle that the presets of Auto take at most, cheapest first; 0 is none.
func budgets() []pacing.Rung {
	return []pacing.Rung{
		{Name: "sentry"},
		{Name: "sniper", Budget: 1500 * time.Millisecond},
		{Name: "owl", Budget: time.Second},
		{Name: "beast", Budget: 800 * time.Millisecond},
	}
}

// startLadder begins or ends Auto as the preset says.
func (s *Set) startLadder() {
	s.ladder, s.reason, s.laddered = nil, "", s.state.Preset
	if s.state.Preset != Auto {
		return
	}
	var rungs []pacing.Rung
	first, _ := s.Find(Auto)
	at := 0
	for _, rung := range budgets() {
		p, err := s.Find(rung.Name)
		if err != nil {
			continue
		}
		if rung.Name == first.Name {
			at = len(rungs)
		}
		rung.Cost = float64(*p.Settings.Frames)
		rungs = append(rungs, rung)
	}
	if len(rungs) > 0 {
		s.ladder = pacing.NewLadder(rungs, at)
	}
}

// Took records the engine's time for a cycle. It returns the preset that Auto moves to, and why; false without a
// move. Step carries it out, Stay does not.
func (s *Set) Took(cycle time.Duration, now time.Time) (p Preset, why string, moved bool) {
	if s.ladder == nil {
		return Preset{}, "", false
	}
	if why, moved = s.ladder.Observe(cycle, now); !moved {
		return Preset{}, "", false
	}
	p, _ = s.Find(s.ladder.Rung().Name)
	return p, why, true
}

// Step puts another preset in force, as Auto decided.
func (s *Set) Step(p Preset, why string) {
	s.use(p)
	s.settle()
	s.reason = why
}

// Stay leaves Auto at the present preset.
func (s *Set) Stay() { s.ladder.Stay() }

// Automatic returns the preset that Auto has chosen, and why; "" without Auto.
func (s *Set) Automatic() (name, why string) {
	if s.ladder == nil {
		return "", s.reason
	}
	return s.ladder.Rung().Name, s.reason
}
