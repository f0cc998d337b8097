package agent

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"touchline/agent/prompt"
	"touchline/inference"
)

// ErrRunning is returned by Start when commenting is on.
var ErrRunning = errors.New("commenting is already on; stop it first")

// Start begins commenting.
func (s *Session) Start(by string) error {
	var err error
	s.locked(func() {
		if s.active {
			err = ErrRunning
			return
		}
		s.rememberLocked(func() { s.active = true })
		s.actNowLocked(errReplaced)
	})
	if err != nil {
		return err
	}
	s.log.Info().Str("by", by).Msg("commenting started")
	s.nudge()
	return nil
}

// Stop ends commenting at once and clears the instruction.
func (s *Session) Stop(by string) {
	s.locked(func() { s.rememberLocked(func() { s.stopLocked(by) }) })
	s.log.Info().Str("by", by).Msg("commenting stopped")
	s.nudge()
}

func (s *Session) stopLocked(by string) {
	s.instruction, s.instructionBy, s.active = "", by, false
	s.dropAllWaitingLocked()
	s.endTalkLocked(errStopped, true)
}

// Check returns the error that Change would return.
func (s *Session) Check(c Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.checkLocked(c)
	return err
}

// Change applies all of a change or, when any part is out of bounds, nothing. It
// returns the settings in force; the error joins a RangeError for each bad part. A
// new instruction or profile acts at once: the wait ends, pending comments are
// dropped and, by setting, the current speech is cut. But an instruction waits while
// another person's holds (Config.OrderHold). The Session ignores c.Source.
func (s *Session) Change(c Change, by string) (out Settings, err error) {
	var profile prompt.Profile
	stop := c.Instruction != nil && strings.TrimSpace(*c.Instruction) == ""
	waits := false
	s.locked(func() {
		if profile, err = s.checkLocked(c); err != nil {
			return
		}
		if c.Profile == nil && c.Instruction == nil {
			s.configureLocked(c.Settings) // not an order
		} else {
			changed := s.rememberLocked(func() { waits = s.changeLocked(c, profile, by) })
			if changed && waits {
				s.past[len(s.past)-1].waits = strings.TrimSpace(*c.Instruction)
			}
		}
		out = s.settingsLocked()
	})
	if err != nil {
		return Settings{}, err
	}
	log := s.log.With().Str("by", by).Logger()
	if c.Profile != nil {
		log.Info().Str("profile", profile.Name).Msg("new profile")
	}
	if c.Settings != (Settings{}) {
		log.Info().Msg("settings changed")
	}
	if stop {
		log.Info().Msg("commenting stopped")
	} else if c.Instruction != nil {
		log.Info().Bool("waits", waits).Msg("new instruction")
	}
	s.nudge()
	return out, nil
}

// changeLocked applies a checked change. It reports whether its instruction waits.
func (s *Session) changeLocked(c Change, profile prompt.Profile, by string) (waits bool) {
	if c.Profile != nil {
		s.useProfileLocked(profile)
	}
	s.configureLocked(c.Settings)
	switch {
	case c.Instruction != nil && strings.TrimSpace(*c.Instruction) == "":
		s.stopLocked(by)
	case c.Instruction != nil:
		return s.orderLocked(strings.TrimSpace(*c.Instruction), by, time.Now())
	case c.Profile != nil && s.active:
		s.actNowLocked(errReplaced)
	}
	return false
}

// locked runs f with the lock held and releases it even when f, which calls the
// voice, panics.
func (s *Session) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// checkLocked returns the errors of a change, joined, and its profile.
func (s *Session) checkLocked(c Change) (prompt.Profile, error) {
	var errs []error
	var profile prompt.Profile
	if c.Instruction != nil {
		if n := utf8.RuneCountInString(strings.TrimSpace(*c.Instruction)); n > prompt.MaxInstruction {
			errs = append(errs, &RangeError{Name: "instruction", Want: fmt.Sprintf("at most %d characters", prompt.MaxInstruction), Got: n})
		}
	}
	if c.Profile != nil {
		var err error
		if profile, err = s.findProfile(*c.Profile); err != nil {
			errs = append(errs, err)
		} else if err := s.checkProfileLocked(profile); err != nil {
			errs = append(errs, err)
		}
	}
	v, err := s.live.WithPreset(c.Settings)
	err = errors.Join(err, v.Check())
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, s.checkWindowLocked(v), s.checkHearingLocked(v))
	}
	return profile, errors.Join(append(errs, s.checkEngineLocked(v))...)
}

// checkWindowLocked returns the error of settings that reach back further than the window.
func (s *Session) checkWindowLocked(v Settings) error {
	next := s.live.Agent
	next.Frames, next.Stride = *cmp.Or(v.Frames, &next.Frames), *cmp.Or(v.Stride, &next.Stride)
	if n := windowNeeds(next); (v.Frames != nil || v.Stride != nil) && n > s.live.Media.WindowSize {
		want := fmt.Sprintf("a cycle that reaches back at most %d pictures (window_size)", s.live.Media.WindowSize)
		return &RangeError{Name: "frames_per_look and frame_stride", Want: want, Got: n}
	}
	return nil
}

// checkEngineLocked returns the errors of settings that the engine does not
// support: each cycle would fail or ignore them.
func (s *Session) checkEngineLocked(v Settings) error {
	return s.checkModelLocked(s.engine.current(), v)
}

func (s *Session) checkModelLocked(m inference.Model, v Settings) error {
	var errs []error
	can := m.Capabilities()
	if v.Language != nil && !can.Speaks(*v.Language) {
		want := fmt.Sprintf("one of %q, as the %s engine speaks nothing else", can.Languages, m.Name())
		errs = append(errs, &RangeError{Name: "language", Want: want, Got: fmt.Sprintf("%q", *v.Language)})
	}
	if v.Voice != nil && can.CheckVoice(*v.Voice) != nil {
		errs = append(errs, &RangeError{Name: "voice", Want: "another one, as " + wantOwn(m), Got: fmt.Sprintf("%q", *v.Voice)})
	}
	if v.MaxSlices != nil && !can.Slices {
		want := fmt.Sprintf("no value, as the %s engine cuts no pictures into tiles", m.Name())
		errs = append(errs, &RangeError{Name: "max_slices", Want: want, Got: *v.MaxSlices})
	}
	for name, set := range map[string]bool{
		"temperature": v.Temperature != nil, "top_k": v.TopK != nil, "top_p": v.TopP != nil, "repetition_penalty": v.RepetitionPenalty != nil,
	} {
		if set && can.Sampling == nil {
			want := fmt.Sprintf("no value, as the %s engine draws nothing at random", m.Name())
			errs = append(errs, &RangeError{Name: name, Want: want, Got: "one"})
		}
	}
	if can.MaxFrames != nil && (v.Frames != nil || v.LongSide != nil || v.MaxSlices != nil) {
		frames, slices := *cmp.Or(v.Frames, &s.live.Agent.Frames), *cmp.Or(v.MaxSlices, &s.live.Inference.MaxSlices)
		width, height := s.pictureSizeLocked(v.LongSide)
		if most := can.MaxFrames(width, height, slices); frames > most {
			want := fmt.Sprintf("at most %d, as the %s engine has no room for more pictures of %dx%d in up to %d tiles in a prompt",
				most, m.Name(), width, height, slices)
			errs = append(errs, &RangeError{Name: "frames_per_look", Want: want, Got: frames})
		}
	}
	return errors.Join(errs...)
}

// pictureSizeLocked returns the size of the engine's pictures, those of another long side if it is not nil.
func (s *Session) pictureSizeLocked(longSide *int) (width, height int) {
	if f, ok := s.picture.newest(); ok && longSide == nil {
		return f.Width, f.Height
	}
	side := *cmp.Or(longSide, &s.live.Media.LongSide)
	source := s.picture.source()
	width, height = source.width, source.height
	if width < 1 || height < 1 {
		return side, side * 9 / 16
	}
	if long := max(width, height); long > side {
		width, height = max(1, width*side/long), max(1, height*side/long)
	}
	return width, height
}

// configureLocked applies checked settings.
func (s *Session) configureLocked(v Settings) { s.settleLocked(func() { s.live.Change(v) }) }

// settleLocked lets change change the settings in force, and acts on what it changed.
func (s *Session) settleLocked(change func()) {
	was, preset := s.live.InForce, s.live.State().Preset
	change()
	is := &s.live.InForce
	if p := s.live.State().Preset; p != preset || p == PresetAuto && s.ladder == nil {
		s.startLadder()
	}
	s.picture.configure(is.Media.CaptureFPS, windowNeeds(is.Agent))
	if is.Media.LongSide != was.Media.LongSide {
		if err := s.dec.SetLongSide(is.Media.LongSide); err != nil { // checked before
			s.log.Error().Err(err).Msg("pictures keep their size")
			is.Media.LongSide = was.Media.LongSide
		}
	}
	s.behaveLocked()
	speech := is.Inference.Voice.Enabled != was.Inference.Voice.Enabled
	if speech {
		s.speechChangedLocked()
	}
	s.speech.Pace(s.paceLocked().PauseAfter, is.Pacing, !speech || is.Pacing.FixedDelay > 0)
}

// speechChangedLocked acts on speech that was turned on or off.
func (s *Session) speechChangedLocked() {
	// The observed times are of either first words or first audio.
	s.speech.Forget(false)
	if !s.live.Inference.Voice.Enabled {
		s.silenceLocked()
	}
}

// wantOwn says which voices of its own a model has.
func wantOwn(m inference.Model) string {
	can := m.Capabilities()
	switch {
	case !can.OwnVoice:
		return fmt.Sprintf("the %s engine has no voice of its own", m.Name())
	case len(can.OwnVoices) == 0:
		return fmt.Sprintf(`the %s engine has the voice "model" only`, m.Name())
	}
	return fmt.Sprintf(`the %s engine has "model" and %q`, m.Name(), can.OwnVoices)
}

func (s *Session) settingsLocked() Settings {
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

// actNowLocked makes the next cycle urgent and clears the context of the last.
func (s *Session) actNowLocked(cause error) {
	s.said, s.lastSign = nil, nil
	s.failures, s.retryAt = 0, time.Time{}
	if s.alerts.cancel != nil {
		s.alerts.cancel(cause)
	}
	s.endTalkLocked(cause, s.live.Agent.CutOnInstruction)
	s.gate.Interrupt()
}

// endTalkLocked cancels the cycle in flight, unless its comment is spoken to the
// end, and drops comments that wait. With cut set it silences the current speech.
func (s *Session) endTalkLocked(cause error, cut bool) {
	s.speech.Clear(cause, cut)
	switch c := s.inFlight; {
	case c == nil:
	case !cut && s.speech.Began(c.said):
		c.superseded = true // its generation continues
	default:
		c.replaced = cause // closeLook reports it
		c.cancel(cause)
	}
}

// silenceLocked turns current and waiting speech into text.
func (s *Session) silenceLocked() {
	if s.inFlight != nil {
		s.inFlight.spoken = false
	}
	s.speech.Mute()
}

// nudge publishes orders and the status, and wakes the loop of looks after a change.
func (s *Session) nudge() {
	s.mu.Lock()
	orders := s.orders
	s.orders = nil
	s.mu.Unlock()
	s.publishOrders(orders)
	s.wake.Set()
	s.publishStatus()
	if s.opts.OnChange != nil {
		s.opts.OnChange()
	}
}

// Live returns what people have changed, and what they may have.
func (s *Session) Live() Live {
	s.mu.Lock()
	defer s.mu.Unlock()
	over, behind := s.live.OverProfile()
	return Live{
		Settings: s.live.Made(), OverProfile: over, BehindProfile: behind, Active: s.active,
		Instruction: s.instruction, InstructionBy: s.instructionBy, Profile: s.profile.Name,
		Profiles: s.own, Background: s.background.Text,
	}
}

func (s *Session) findProfile(name string) (prompt.Profile, error) {
	var known []string
	for _, p := range s.profilesLocked() {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return prompt.Profile{}, &RangeError{Name: "profile", Want: fmt.Sprintf("one of %q", known), Got: fmt.Sprintf("%q", name)}
}

// SetRoom sets why the room is away; "" when it is connected.
func (s *Session) SetRoom(why string) {
	s.mu.Lock()
	s.room = why
	s.mu.Unlock()
	s.publishStatus()
}
