package settings

import (
	"fmt"

	"touchline/pacing"
)

// Auto is the preset that goes up and down the others as the engine keeps up, and autoStart the one that it begins with.
const (
	Auto      = "auto"
	autoStart = "sniper"
)

// Preset is a linked set of settings.
type Preset struct {
	Name     string
	Settings Settings
}

// Set is the settings of one commentator. In force is, of each setting, the first of: what people chose since the profile was
// chosen; the profile's; what people chose before; the preset's that they chose, or that Auto did; the configured value.
type Set struct {
	InForce

	configured InForce
	presets    []Preset
	state      State

	ladder   *pacing.Ladder // of Auto; nil without it
	laddered string         // the preset that the ladder was begun for
	reason   string         // why Auto has chosen its preset
}

// State is the preset and the settings that people have chosen.
type State struct {
	// Preset is the name of the preset in force; "" for none. chosen is set if people named it, or ended the configured one.
	Preset string
	chosen bool

	made    Settings // by people; without the preset
	since   Settings // those that a profile can have, of made, and newer than the profile
	profile Settings // the profile's own
	base    Settings // of the last preset
	begun   int      // presets that people have chosen
}

// Same reports whether two states are the same.
func (s State) Same(t State) bool {
	return s.Preset == t.Preset && s.begun == t.begun && s.made.Same(t.made) && s.since.Same(t.since) && s.profile.Same(t.profile)
}

// New returns the configured settings; preset is the name of the configured preset.
func New(configured InForce, presets []Preset, preset string) *Set {
	s := &Set{InForce: configured, configured: configured, presets: presets, state: State{Preset: preset}}
	s.startLadder()
	return s
}

// State returns what people have chosen.
func (s *Set) State() State { return s.state }

// Find returns a preset by name; Auto is the one that it begins with.
func (s *Set) Find(name string) (Preset, error) {
	if name == "" {
		return Preset{}, nil
	}
	want := name
	if name == Auto {
		want = autoStart
	}
	known := []string{Auto}
	for _, p := range s.presets {
		if p.Name == want {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Preset{}, &RangeError{Name: "preset", Want: fmt.Sprintf(`one of %q, or "" for none`, known), Got: fmt.Sprintf("%q", name)}
}

// WithPreset returns v with the settings of its preset, for those that v leaves open.
func (s *Set) WithPreset(v Settings) (Settings, error) {
	if v.Preset == nil {
		return v, nil
	}
	p, err := s.Find(*v.Preset)
	return v.Over(p.Settings), err
}

// Change applies settings that were checked. A preset replaces the settings that people made before. A setting of a preset, or
// the name "", ends it: its other settings stay in force.
func (s *Set) Change(v Settings) {
	st := &s.state
	switch {
	case v.Preset != nil && *v.Preset != "":
		s.begin(*v.Preset)
	case v.Preset != nil, st.Preset != "" && !s.ofPresets(v).Same(Settings{}):
		st.Preset, st.chosen = "", true
	}
	v.Preset = nil
	st.made = v.Over(st.made)
	st.since = v.Only(func(row Setting) bool { return row.Profile }).Over(st.since)
	s.settle()
}

// begin puts a preset that people chose in force.
func (s *Set) begin(name string) {
	p, _ := s.Find(name) // checked before
	s.state.Preset, s.state.chosen = name, true
	s.state.begun++
	s.use(p)
}

// use puts a preset in force, and drops people's changes of the settings that presets set.
func (s *Set) use(p Preset) {
	for _, other := range s.presets {
		s.state.made = s.state.made.Without(other.Settings)
	}
	s.state.base = p.Settings
}

// ofPresets returns the settings that presets set.
func (s *Set) ofPresets(v Settings) Settings {
	rest := v
	for _, p := range s.presets {
		rest = rest.Without(p.Settings)
	}
	return v.Without(rest)
}

// UseProfile puts a profile's own settings in force.
func (s *Set) UseProfile(own Settings) {
	s.state.profile, s.state.since = own, Settings{}
	s.settle()
}

// Undo reverts the changes between two states, except settings that have changed since. If the change chose a profile, own are the settings
// of the previous profile, else nil.
func (s *Set) Undo(before, after State, own *Settings) {
	now := s.state
	st := &s.state
	if own != nil {
		st.profile = *own
	}
	st.made = now.made.revert(before.made, after.made)
	st.since = now.since.revert(before.since, after.since)
	if now.begun != after.begun { // another preset was chosen
		st.made = s.ofPresets(now.made).Over(st.made.Without(s.ofPresets(st.made)))
	} else {
		st.base, st.begun = before.base, before.begun
		if s.ofPresets(st.made).Same(s.ofPresets(before.made)) { // and none of its settings was made
			st.Preset, st.chosen = before.Preset, before.chosen
		}
		if p, err := s.Find(Auto); err == nil && st.Preset == Auto && st.chosen {
			st.base = p.Settings // it begins anew
		}
	}
	s.settle()
}

// revert returns v with the settings of before that a change replaced, unless they have changed since.
func (v Settings) revert(before, after Settings) Settings {
	for _, s := range rows {
		if !s.same(&before, &after) && s.same(&v, &after) {
			s.copy(&v, &before)
		}
	}
	return v
}

// settle computes what is in force.
func (s *Set) settle() {
	st := s.state
	v := st.since.Over(st.profile).Over(st.made).Over(st.base)
	s.InForce = s.configured
	for _, row := range rows {
		row.apply(&s.InForce, &v)
	}
	if st.Preset != s.laddered || st.Preset == Auto && s.ladder == nil {
		s.startLadder()
	}
}

// Made returns what people have chosen, and no other settings: Change applies it to the configured ones with the same effect.
func (s *Set) Made() Settings {
	out := s.state.made
	if s.state.chosen {
		if s.state.Preset == "" {
			out = out.Over(s.state.base)
		}
		out.Preset = new(s.state.Preset)
	}
	return out
}

// OverProfile returns the names of the settings that override the profile's own; behind are those that they
// chose before the profile, which is in force.
func (s *Set) OverProfile() (over, behind []string) {
	st := &s.state
	both := st.made.Only(func(row Setting) bool { return row.isSet(&st.profile) })
	over = st.since.Only(func(row Setting) bool { return row.isSet(&st.profile) }).Names()
	return over, both.Without(st.since).Names()
}

// Read returns the settings in force.
func (s *Set) Read() Settings {
	v := s.InForce.Read()
	if len(s.presets) > 0 {
		v.Preset = new(s.state.Preset)
	}
	return v
}
