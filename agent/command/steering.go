package command

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/inference"
)

// ErrRunning is returned by Start when commenting is on.
var ErrRunning = errors.New("commenting is already on; stop it first")

// State is the requested state of a commentator.
type State struct {
	settings.InForce

	Active        bool // commenting is on
	Instruction   string
	InstructionBy string
	// InstructionNumber is raised by each instruction that acts.
	InstructionNumber uint64
	Profile           prompt.Profile
	Background        prompt.Background
}

// Live holds the settings that people change while a commentator runs.
type Live struct {
	// Settings holds only the settings that were set.
	Settings settings.Settings
	// OverProfile names the settings that override the profile's own, BehindProfile the settings that the profile overrides.
	OverProfile, BehindProfile []string
	// Active is false when commenting is off.
	Active        bool
	Instruction   string
	InstructionBy string
	Profile       string // its name
	// Profiles are the room's own.
	Profiles []prompt.Profile
	// Background is the text of the background.
	Background string
}

// Change is a set of changes that apply together. A nil pointer leaves its part alone.
type Change struct {
	// Instruction is the new instruction; "" clears it and stops commenting.
	Instruction *string
	// Profile names a prompt profile.
	Profile *string
	// Source to watch: "" is the first camera, "camera:IDENTITY" another, "scene" the built-in one, "world:NAME" the
	// built-in one with this generated world. Steering ignores it.
	Source *string
	// Settings to change.
	Settings settings.Settings
}

// Room applies the changes. Its methods are called with the lock of Steering held, except Changed.
type Room interface {
	// Look changes the state for the looks to come.
	Look(now State)
	// Settle acts on settings that changed.
	Settle(now State, was settings.InForce)
	// ActNow makes the state act at once, Stop ends all comments.
	ActNow(now State)
	Stop(now State)
	// Busy reports whether the voice has something to say.
	Busy() bool
	// Repeat says the last comment again.
	Repeat(by string) error
	// Changed is called after each change by people, with the outcomes of instructions.
	Changed(events []OrderEvent)
}

// Ears recognizes speech in the room; package hearing implements it.
type Ears interface {
	// CheckHearing returns why hearing settings cannot be used; nil if they can.
	CheckHearing(c settings.Hearing) error
}

// Options are the parts of a Steering.
type Options struct {
	Configured settings.InForce
	Profiles   []prompt.Profile // at least the one that Configured names
	Presets    []settings.Preset
	Preset     string
	Engine     inference.Model // in force
	Ears       Ears            // nil without speech recognition
	Room       Room
	Mute       bool // the room has no voice
	// PictureSize returns the size of the engine's pictures with a long side; changed says that it is not in force yet.
	PictureSize func(longSide int, changed bool) (width, height int)
	SetLongSide func(pixels int) error
	Log         zerolog.Logger
}

// Steering is the control of one commentator by people: settings, profile, background, the instruction in force, the waiting instructions,
// and the history for undo. Its methods are safe for concurrent use.
type Steering struct {
	opts   Options
	engine inference.Model
	room   Room
	log    zerolog.Logger

	mu       sync.Mutex
	live     *settings.Set
	profiles prompt.Profiles
	state    State // but for its settings, which live has
	orders   orders
	past     []order // the last ones, oldest first
	done     *Done   // the last command
}

// NewSteering checks the options and returns the state as it is configured.
func NewSteering(o Options) (*Steering, error) {
	agent := &o.Configured.Agent
	s := &Steering{
		opts: o, engine: o.Engine, room: o.Room, log: o.Log, profiles: prompt.Profiles{BuiltIn: o.Profiles},
		orders: orders{hold: o.Configured.Agent.InstructionHold},
		state:  State{Instruction: agent.Instruction, Active: agent.AutoStart || agent.Instruction != ""},
	}
	agent.Verbosity = cmp.Or(agent.Verbosity, settings.UsualVerbosity)
	s.live = settings.New(o.Configured, o.Presets, o.Preset)
	profile, err := s.findProfile(agent.Profile)
	if err != nil {
		return nil, err
	}
	s.state.Profile = profile
	s.live.UseProfile(settingsOf(profile))
	return s, s.checkHearing(settings.Settings{Hearing: &agent.Hearing.Mode})
}

// now returns the state with the settings in force.
func (s *Steering) now() State {
	out := s.state
	out.InForce = s.live.InForce
	return out
}

// State returns the requested state.
func (s *Steering) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// do runs f with the lock held, and notifies the room of a change unless f fails.
func (s *Steering) do(f func() error) error {
	var events []OrderEvent
	err := s.locked(func() error {
		err := f()
		events, s.orders.events = s.orders.events, nil
		return err
	})
	if err == nil {
		s.room.Changed(events)
	}
	return err
}

// locked runs f with the lock held and releases it even when f, which calls the room, panics.
func (s *Steering) locked(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// Start begins commenting.
func (s *Steering) Start(by string) error {
	err := s.do(func() error {
		if s.state.Active {
			return ErrRunning
		}
		s.remember(func() { s.state.Active = true })
		s.room.ActNow(s.now())
		return nil
	})
	if err == nil {
		s.log.Info().Str("by", by).Msg("commenting started")
	}
	return err
}

// Stop ends commenting at once and clears the instruction.
func (s *Steering) Stop(by string) {
	_ = s.do(func() error {
		s.remember(func() { s.stop(by) })
		return nil
	})
	s.log.Info().Str("by", by).Msg("commenting stopped")
}

func (s *Steering) stop(by string) {
	s.state.Instruction, s.state.InstructionBy = "", by
	s.pause()
}

// pause ends commenting and keeps the instruction.
func (s *Steering) pause() {
	s.state.Active = false
	for len(s.orders.waiting) > 0 {
		s.orders.drop(s.orders.waiting[0].By)
	}
	s.room.Stop(s.now())
}

// Check returns the error that Change would return.
func (s *Steering) Check(c Change) error {
	return s.locked(func() error {
		_, err := s.check(c)
		return err
	})
}

// Change applies all of a change or, when any part is out of bounds, nothing. It
// returns the settings in force; the error joins a RangeError for each bad part. A
// new instruction or profile acts at once: the wait ends, pending comments are
// dropped and, by setting, the current speech is cut. But an instruction waits for the hold time of another person's
// (settings.Config.InstructionHold).
func (s *Steering) Change(c Change, by string) (out settings.Settings, err error) {
	var profile prompt.Profile
	stop := c.Instruction != nil && strings.TrimSpace(*c.Instruction) == ""
	waits := false
	err = s.do(func() error {
		if profile, err = s.check(c); err != nil {
			return err
		}
		if c.Profile == nil && c.Instruction == nil {
			s.settle(func() { s.live.Change(c.Settings) }) // not an order
		} else {
			changed := s.remember(func() { waits = s.change(c, profile, by) })
			if changed && waits {
				s.past[len(s.past)-1].waits = strings.TrimSpace(*c.Instruction)
			}
		}
		out = s.settings()
		return nil
	})
	if err != nil {
		return settings.Settings{}, err
	}
	log := s.log.With().Str("by", by).Logger()
	if c.Profile != nil {
		log.Info().Str("profile", profile.Name).Msg("new profile")
	}
	if c.Settings != (settings.Settings{}) {
		log.Info().Msg("settings changed")
	}
	if stop {
		log.Info().Msg("commenting stopped")
	} else if c.Instruction != nil {
		log.Info().Bool("waits", waits).Msg("new instruction")
	}
	return out, nil
}

// change applies a checked change. It reports whether its instruction waits.
func (s *Steering) change(c Change, profile prompt.Profile, by string) (waits bool) {
	if c.Profile != nil {
		s.useProfile(profile)
	}
	s.settle(func() { s.live.Change(c.Settings) })
	switch {
	case c.Instruction != nil && strings.TrimSpace(*c.Instruction) == "":
		s.stop(by)
	case c.Instruction != nil:
		return s.order(strings.TrimSpace(*c.Instruction), by, time.Now())
	case c.Profile != nil && s.state.Active:
		s.room.ActNow(s.now())
	}
	return false
}

// settle applies change to the current settings, and lets the room act on the differences.
func (s *Steering) settle(change func()) {
	was := s.live.InForce
	change()
	if is := &s.live.Media; is.LongSide != was.Media.LongSide {
		if err := s.opts.SetLongSide(is.LongSide); err != nil { // checked before
			s.log.Error().Err(err).Msg("pictures keep their size")
			is.LongSide = was.Media.LongSide
		}
	}
	s.room.Settle(s.now(), was)
}

// Took records the engine's time for a cycle, and changes the preset if settings.Auto requires it.
func (s *Steering) Took(cycle time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, why, moved := s.live.Took(cycle, now)
	if !moved {
		return
	}
	if err := errors.Join(s.checkWindow(p.Settings), s.checkModel(s.engine, p.Settings)); err != nil {
		s.live.Stay()
		s.log.Info().Err(err).Str("preset", p.Name).Msg("preset not possible")
		return
	}
	s.settle(func() { s.live.Step(p, why) })
	s.log.Info().Str("preset", p.Name).Str("reason", why).Msg("preset changed by itself")
}

// Live returns the settings that people have changed, and the possible choices.
func (s *Steering) Live() Live {
	s.mu.Lock()
	defer s.mu.Unlock()
	over, behind := s.live.OverProfile()
	return Live{
		Settings: s.live.Made(), OverProfile: over, BehindProfile: behind, Active: s.state.Active,
		Instruction: s.state.Instruction, InstructionBy: s.state.InstructionBy, Profile: s.state.Profile.Name,
		Profiles: s.profiles.Own, Background: s.state.Background.Text,
	}
}

// View is the state as people see it.
type View struct {
	State

	Settings settings.Settings // every field set
	Profiles []prompt.Profile  // with the suggestion in the language of the comments alone, where they have it
	Waiting  []WaitingOrder
	Done     *Done // the last command
	// Preset is the preset that settings.Auto has chosen, PresetReason the reason.
	Preset, PresetReason string
}

// View returns the state as people see it.
func (s *Steering) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := View{State: s.now(), Settings: s.settings(), Profiles: s.profiles.All(), Waiting: slices.Clone(s.orders.waiting), Done: s.done}
	language := inference.Primary(s.engine.Capabilities().AnswersIn(s.live.Inference.Voice.Language))
	for i := range v.Profiles {
		p := &v.Profiles[i]
		p.Suggestion, p.Suggestions = cmp.Or(p.Suggestions[language], p.Suggestion), nil
	}
	v.Preset, v.PresetReason = s.live.Automatic()
	return v
}

// Hearing returns the hearing settings in force.
func (s *Steering) Hearing() settings.Hearing {
	out := s.State().Agent.Hearing
	out.WakeWords = slices.Clone(out.WakeWords)
	return out
}

// settings returns the settings in force.
func (s *Steering) settings() settings.Settings {
	sampling := s.live.Sampling
	can := s.engine.Capabilities()
	if can.Sampling != nil {
		sampling = sampling.Over(*can.Sampling)
	} else {
		sampling = inference.Sampling{} // set for another engine
	}
	out := s.live.Read()
	out.Temperature, out.TopK, out.TopP, out.RepetitionPenalty = sampling.Temperature, sampling.TopK, sampling.TopP, sampling.RepetitionPenalty
	if !can.Slices {
		out.MaxSlices = nil
	}
	return out
}

// check returns the errors of a change, joined, and its profile.
func (s *Steering) check(c Change) (prompt.Profile, error) {
	var errs []error
	var profile prompt.Profile
	if c.Instruction != nil {
		if n := utf8.RuneCountInString(strings.TrimSpace(*c.Instruction)); n > prompt.MaxInstruction {
			want := fmt.Sprintf("at most %d characters", prompt.MaxInstruction)
			errs = append(errs, &settings.RangeError{Name: "instruction", Want: want, Got: n})
		}
	}
	if c.Profile != nil {
		var err error
		if profile, err = s.findProfile(*c.Profile); err == nil {
			err = checkProfile(s.engine, profile)
		}
		errs = append(errs, err)
	}
	v, err := s.live.WithPreset(c.Settings)
	err = errors.Join(err, v.Check())
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, s.checkWindow(v), s.checkHearing(v))
	}
	return profile, errors.Join(append(errs, s.checkModel(s.engine, v))...)
}

func (s *Steering) findProfile(name string) (prompt.Profile, error) {
	p, names := s.profiles.Find(name)
	if p == nil {
		return prompt.Profile{}, &settings.RangeError{Name: "profile", Want: fmt.Sprintf("one of %q", names), Got: fmt.Sprintf("%q", name)}
	}
	return *p, nil
}
