package agent

import (
	"errors"
	"time"

	"touchline/pacing"
)

// budgets are the median times of a cycle that the presets of PresetAuto take at most, cheapest first; 0 is none.
func budgets() []pacing.Rung {
	return []pacing.Rung{
		{Name: "sentry"},
		{Name: "sniper", Budget: 1500 * time.Millisecond},
		{Name: "owl", Budget: time.Second},
		{Name: "beast", Budget: 800 * time.Millisecond},
	}
}

// startLadder begins or ends PresetAuto as the preset says.
func (s *Session) startLadder() {
	s.ladder, s.presetReason = nil, ""
	if s.live.State().Preset != PresetAuto {
		return
	}
	var rungs []pacing.Rung
	first, _ := s.live.Find(PresetAuto)
	at := 0
	for _, rung := range budgets() {
		p, err := s.live.Find(rung.Name)
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

// stepPresetLocked takes the time of a cycle that the engine finished, and changes the preset if PresetAuto is on and says so.
func (s *Session) stepPresetLocked(cycle time.Duration, now time.Time) {
	if s.ladder == nil {
		return
	}
	why, moved := s.ladder.Observe(cycle, now)
	if !moved {
		return
	}
	name := s.ladder.Rung().Name
	p, err := s.live.Find(name)
	if err == nil {
		err = errors.Join(s.checkWindowLocked(p.Settings), s.checkEngineLocked(p.Settings))
	}
	if err != nil {
		s.ladder.Stay()
		s.log.Info().Err(err).Str("preset", name).Msg("preset not possible")
		return
	}
	s.presetReason = why
	s.settleLocked(func() { s.live.Step(p) })
	s.log.Info().Str("preset", name).Str("reason", why).Msg("preset changed by itself")
}
