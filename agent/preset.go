package agent

import (
	"errors"
	"fmt"
	"time"

	"touchline/pacing"
)

// PresetAuto is the preset that goes up and down the others as the engine keeps up.
const PresetAuto = "auto"

// Preset is a linked set of settings.
type Preset struct {
	Name     string
	Settings Settings
}

// budgets are the median times of a cycle that the presets of PresetAuto take at most, cheapest first; 0 is none.
func budgets() []pacing.Rung {
	return []pacing.Rung{
		{Name: "sentry"},
		{Name: "sniper", Budget: 1500 * time.Millisecond},
		{Name: "owl", Budget: time.Second},
		{Name: "beast", Budget: 800 * time.Millisecond},
	}
}

// autoStart is the preset that PresetAuto begins with.
const autoStart = "sniper"

// findPreset returns a preset by name; PresetAuto is the one that it begins with.
func (s *Session) findPreset(name string) (Preset, error) {
	if name == "" {
		return Preset{}, nil
	}
	want := name
	if name == PresetAuto {
		want = autoStart
	}
	known := []string{PresetAuto}
	for _, p := range s.opts.Presets {
		if p.Name == want {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Preset{}, &RangeError{"preset", fmt.Sprintf(`one of %q, or "" for none`, known), fmt.Sprintf("%q", name)}
}

// withPreset returns settings with those of their preset, which those set by hand override.
func (s *Session) withPreset(v Settings) (Settings, error) {
	if v.Preset == nil {
		return v, nil
	}
	p, err := s.findPreset(*v.Preset)
	out := p.Settings
	out.merge(v)
	return out, err
}

// choosePresetLocked begins or ends a preset. One that begins replaces the settings made by hand before. A setting of a
// preset made by hand, or the name "", ends it: its other settings stay in force, as if made by hand.
func (s *Session) choosePresetLocked(v Settings) {
	switch {
	case v.Preset != nil && *v.Preset != "":
		for _, p := range s.opts.Presets {
			s.set.clear(p.Settings)
		}
		s.preset = *v.Preset
	case v.Preset != nil, s.preset != "" && touches(v, s.opts.Presets):
		if s.set.Preset != nil || s.ladder != nil { // else the configuration has them
			p, _ := s.findPreset(s.presetInForceLocked()) // checked when it began
			p.Settings.merge(s.set)
			s.set = p.Settings
		}
		s.preset = ""
	default:
		return
	}
	s.set.Preset = new(s.preset)
	s.startLadder()
}

// presetInForceLocked returns the name of the preset whose settings are in force.
func (s *Session) presetInForceLocked() string {
	if s.ladder != nil {
		return s.ladder.Rung().Name
	}
	return s.preset
}

// startLadder begins or ends PresetAuto as the preset says.
func (s *Session) startLadder() {
	s.ladder, s.presetReason = nil, ""
	if s.preset != PresetAuto {
		return
	}
	var rungs []pacing.Rung
	at := 0
	for _, rung := range budgets() {
		p, err := s.findPreset(rung.Name)
		if err != nil {
			continue
		}
		if rung.Name == autoStart {
			at = len(rungs)
		}
		rung.Cost = float64(*p.Settings.Frames)
		rungs = append(rungs, rung)
	}
	if len(rungs) > 0 {
		s.ladder = pacing.NewLadder(rungs, at)
	}
}

// touches reports whether v sets what presets set.
func touches(v Settings, presets []Preset) bool {
	for _, p := range presets {
		if p.Settings.overlaps(v) {
			return true
		}
	}
	return false
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
	p, err := s.findPreset(name)
	if err == nil {
		err = errors.Join(s.checkWindowLocked(p.Settings), s.checkEngineLocked(p.Settings))
	}
	if err != nil {
		s.ladder.Stay()
		s.log.Info().Err(err).Str("preset", name).Msg("preset not possible")
		return
	}
	s.presetReason = why
	s.set.clear(p.Settings)
	s.applyLocked(p.Settings)
	s.log.Info().Str("preset", name).Str("reason", why).Msg("preset changed by itself")
}
