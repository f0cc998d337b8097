package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// RangeError is the error for a setting or an instruction that is out of bounds.
type RangeError struct {
	Name, Want string
	Got        any
}

// Error returns the setting, the values it accepts and the value it got.
func (e *RangeError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %v", e.Name, e.Want, e.Got)
}

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
		s.active = true
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
	s.locked(func() { s.stopLocked(by) })
	s.log.Info().Str("by", by).Msg("commenting stopped")
	s.nudge()
}

func (s *Session) stopLocked(by string) {
	s.instruction, s.instructionBy, s.active = "", by, false
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
// dropped and, by setting, the current speech is cut. The Session ignores c.Source.
func (s *Session) Change(c Change, by string) (out Settings, err error) {
	var profile Profile
	stop := c.Instruction != nil && strings.TrimSpace(*c.Instruction) == ""
	s.locked(func() {
		if profile, err = s.checkLocked(c); err != nil {
			return
		}
		s.configureLocked(c.Settings)
		if c.Profile != nil {
			s.profile = profile
		}
		switch {
		case stop:
			s.stopLocked(by)
		case c.Instruction != nil:
			s.instruction, s.instructionBy, s.active = strings.TrimSpace(*c.Instruction), by, true
			s.actNowLocked(errReplaced)
		case c.Profile != nil && s.active:
			s.actNowLocked(errReplaced)
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
		log.Info().Msg("new instruction")
	}
	s.nudge()
	return out, nil
}

// locked runs f with the lock held and releases it even when f, which calls the
// voice, panics.
func (s *Session) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// checkLocked returns the errors of a change, joined, and its profile.
func (s *Session) checkLocked(c Change) (Profile, error) {
	var errs []error
	var profile Profile
	if c.Instruction != nil {
		if n := utf8.RuneCountInString(strings.TrimSpace(*c.Instruction)); n > MaxInstruction {
			errs = append(errs, &RangeError{"instruction", fmt.Sprintf("at most %d characters", MaxInstruction), n})
		}
	}
	if c.Profile != nil {
		var err error
		if profile, err = s.findProfile(*c.Profile); err != nil {
			errs = append(errs, err)
		}
	}
	v := c.Settings
	err := v.check()
	errs = append(errs, err)
	next := s.agent
	set(&next.Frames, v.Frames)
	set(&next.Stride, v.Stride)
	if n := windowNeeds(next); err == nil && (v.Frames != nil || v.Stride != nil) && n > s.media.WindowSize {
		errs = append(errs, &RangeError{
			"frames_per_look and frame_stride",
			fmt.Sprintf("a cycle that reaches back at most %d pictures (window_size)", s.media.WindowSize), n,
		})
	}
	return profile, errors.Join(append(errs, s.checkEngineLocked(v))...)
}

// checkEngineLocked returns the errors of settings that the engine does not
// support: each cycle would fail or ignore them.
func (s *Session) checkEngineLocked(v Settings) error {
	var errs []error
	can := s.model.Capabilities()
	if v.Language != nil && !can.Speaks(*v.Language) {
		want := fmt.Sprintf("one of %q, as the %s engine speaks nothing else", can.Languages, s.model.Name())
		errs = append(errs, &RangeError{"language", want, fmt.Sprintf("%q", *v.Language)})
	}
	if v.Frames != nil && can.MaxFrames != nil {
		width, height := s.media.LongSide, s.media.LongSide*9/16
		if f, ok := s.window.Newest(); ok {
			width, height = f.Width, f.Height
		}
		if most := can.MaxFrames(width, height); *v.Frames > most {
			want := fmt.Sprintf("at most %d, as the %s engine has no room for more pictures of %dx%d in a prompt",
				most, s.model.Name(), width, height)
			errs = append(errs, &RangeError{"frames_per_look", want, *v.Frames})
		}
	}
	return errors.Join(errs...)
}

// configureLocked applies checked settings.
func (s *Session) configureLocked(v Settings) {
	if v == (Settings{}) {
		return
	}
	set(&s.infer.Voice.Enabled, v.Speech)
	set(&s.media.CaptureFPS, v.CaptureFPS)
	set(&s.agent.Frames, v.Frames)
	set(&s.agent.Stride, v.Stride)
	s.window.Limit(windowNeeds(s.agent))
	set(&s.agent.ChangeThreshold, v.ChangeThreshold)
	setSeconds(&s.pace.MinInterval, v.MinInterval)
	setSeconds(&s.pace.PauseAfter, v.PauseAfter)
	setSeconds(&s.pace.FixedDelay, v.FixedDelay)
	set(&s.infer.MaxTokens, v.MaxTokens)
	set(&s.infer.Voice.MaxTokens, v.SpeechMaxTokens)
	set(&s.agent.CutOnInstruction, v.CutOnInstruction)
	set(&s.infer.Voice.Language, v.Language)
	if v.Speech != nil {
		// The observed times are of either first words or first audio.
		s.delays.Forget()
		if !*v.Speech {
			s.silenceLocked()
		}
	}
	s.delays.Configure(s.pace)
	if v.Speech == nil || s.pace.FixedDelay > 0 {
		s.line.SetTarget(s.delays.Target())
	}
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

func setSeconds(dst *time.Duration, v *float64) {
	if v != nil {
		*dst = time.Duration(*v * float64(time.Second))
	}
}

// check returns the errors of all settings out of bounds, joined.
func (v Settings) check() error {
	var errs []error
	num := func(name string, p *float64, lo, hi float64) {
		if p != nil && !(*p >= lo && *p <= hi) {
			errs = append(errs, &RangeError{name, fmt.Sprintf("a number from %g to %g", lo, hi), *p})
		}
	}
	whole := func(name string, p *int, most int) {
		if p != nil && (*p < 1 || *p > most) {
			errs = append(errs, &RangeError{name, fmt.Sprintf("a whole number from 1 to %d", most), *p})
		}
	}
	num("capture_fps", v.CaptureFPS, 0.1, 30)
	whole("frames_per_look", v.Frames, 64)
	whole("frame_stride", v.Stride, 64)
	num("change_threshold", v.ChangeThreshold, 0, 255)
	num("min_interval", v.MinInterval, 0, 60)
	num("pause_after", v.PauseAfter, 0, 60)
	num("fixed_delay", v.FixedDelay, 0, 30)
	whole("max_tokens", v.MaxTokens, 8192)
	whole("speech_max_tokens", v.SpeechMaxTokens, 8192)
	if v.Language != nil && !isLanguage(*v.Language) {
		errs = append(errs, &RangeError{"language", "a BCP 47 tag such as en or pt-BR", fmt.Sprintf("%q", *v.Language)})
	}
	return errors.Join(errs...)
}

// isLanguage reports whether s has the form of a BCP 47 tag: letters and digits in
// parts of at most eight, 35 characters in all (RFC 5646, section 4.4.1).
func isLanguage(s string) bool {
	if s == "" || len(s) > 35 {
		return false
	}
	for part := range strings.SplitSeq(s, "-") {
		bad := strings.ContainsFunc(part, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
		})
		if part == "" || len(part) > 8 || bad {
			return false
		}
	}
	return true
}

func (s *Session) settingsLocked() Settings {
	seconds := func(d time.Duration) *float64 { return new(d.Seconds()) }
	return Settings{
		Speech:           new(s.infer.Voice.Enabled),
		CaptureFPS:       new(s.media.CaptureFPS),
		Frames:           new(s.agent.Frames),
		Stride:           new(s.agent.Stride),
		ChangeThreshold:  new(s.agent.ChangeThreshold),
		MinInterval:      seconds(s.pace.MinInterval),
		PauseAfter:       seconds(s.pace.PauseAfter),
		FixedDelay:       seconds(s.pace.FixedDelay),
		MaxTokens:        new(s.infer.MaxTokens),
		SpeechMaxTokens:  new(s.infer.Voice.MaxTokens),
		CutOnInstruction: new(s.agent.CutOnInstruction),
		Language:         new(s.infer.Voice.Language),
	}
}

// actNowLocked makes the next cycle urgent and clears the context of the last.
func (s *Session) actNowLocked(cause error) {
	s.lastComment, s.lastSign = "", nil
	s.failures, s.retryAt = 0, time.Time{}
	s.endTalkLocked(cause, s.agent.CutOnInstruction)
	s.gate.Interrupt()
}

// endTalkLocked cancels the cycle in flight, unless its comment is spoken to the
// end, and drops queued comments, whose records nudge publishes. With cut set it
// silences the current speech.
func (s *Session) endTalkLocked(cause error, cut bool) {
	if u := s.inFlight; u != nil && u.released && !cut {
		u.superseded = true // its generation continues
	} else if u != nil {
		u.replaced = cause // endCycle reports it
		if u.cancel != nil {
			u.cancel(cause)
		}
	}
	for _, u := range s.queue {
		u.drop(cause)
		if u == s.inFlight {
			u.announced = false
			continue
		}
		s.releaseLocked(u)
		u.rec.Outcome, u.rec.Reason, u.rec.Text = OutcomeDropped, cause.Error(), strings.TrimSpace(u.text)
		s.counters.dropped++
		s.unsent = append(s.unsent, u.rec)
	}
	s.queue = nil
	if cut && s.speaking != nil {
		s.cutLocked(s.speaking, cause, time.Now())
	}
}

// silenceLocked turns current and queued speech into text.
func (s *Session) silenceLocked() {
	for _, u := range append(slices.Clone(s.queue), s.inFlight) {
		if u == nil || u.released {
			continue
		}
		u.spoken, u.held = false, nil
		if u.speech != nil {
			u.speech.Cut()
		}
	}
	if s.speaking != nil {
		s.cutLocked(s.speaking, nil, time.Now())
	}
}

// nudge publishes dropped records and the status, and wakes the loops after a change.
func (s *Session) nudge() {
	s.mu.Lock()
	unsent := s.unsent
	s.unsent = nil
	s.mu.Unlock()
	for _, r := range unsent {
		s.publishRecord(r)
	}
	s.wake.Set()
	s.deliver.Set()
	s.publishStatus()
}

func (s *Session) findProfile(name string) (Profile, error) {
	var known []string
	for _, p := range s.opts.Profiles {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Profile{}, &RangeError{"profile", fmt.Sprintf("one of %q", known), fmt.Sprintf("%q", name)}
}

// SetRoom sets why the room is away; "" when it is connected.
func (s *Session) SetRoom(why string) {
	s.mu.Lock()
	s.room = why
	s.mu.Unlock()
	s.publishStatus()
}
