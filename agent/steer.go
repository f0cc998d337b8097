package agent

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"touchline/agent/prompt"
	"touchline/inference"
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
			errs = append(errs, &RangeError{"instruction", fmt.Sprintf("at most %d characters", prompt.MaxInstruction), n})
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
	v, err := s.withPreset(c.Settings)
	err = errors.Join(err, v.check())
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, s.checkWindowLocked(v), s.checkHearingLocked(v))
	}
	return profile, errors.Join(append(errs, s.checkEngineLocked(v))...)
}

// checkWindowLocked returns the error of settings that reach back further than the window.
func (s *Session) checkWindowLocked(v Settings) error {
	next := s.agent
	set(&next.Frames, v.Frames)
	set(&next.Stride, v.Stride)
	if n := windowNeeds(next); (v.Frames != nil || v.Stride != nil) && n > s.media.WindowSize {
		return &RangeError{
			"frames_per_look and frame_stride",
			fmt.Sprintf("a cycle that reaches back at most %d pictures (window_size)", s.media.WindowSize), n,
		}
	}
	return nil
}

// checkEngineLocked returns the errors of settings that the engine does not
// support: each cycle would fail or ignore them.
func (s *Session) checkEngineLocked(v Settings) error { return s.checkModelLocked(s.engine, v) }

func (s *Session) checkModelLocked(m inference.Model, v Settings) error {
	var errs []error
	can := m.Capabilities()
	if v.Language != nil && !can.Speaks(*v.Language) {
		want := fmt.Sprintf("one of %q, as the %s engine speaks nothing else", can.Languages, m.Name())
		errs = append(errs, &RangeError{"language", want, fmt.Sprintf("%q", *v.Language)})
	}
	if v.Voice != nil && can.CheckVoice(*v.Voice) != nil {
		errs = append(errs, &RangeError{"voice", "another one, as " + wantOwn(m), fmt.Sprintf("%q", *v.Voice)})
	}
	if v.MaxSlices != nil && !can.Slices {
		want := fmt.Sprintf("no value, as the %s engine cuts no pictures into tiles", m.Name())
		errs = append(errs, &RangeError{"max_slices", want, *v.MaxSlices})
	}
	for name, set := range map[string]bool{
		"temperature": v.Temperature != nil, "top_k": v.TopK != nil, "top_p": v.TopP != nil, "repetition_penalty": v.RepetitionPenalty != nil,
	} {
		if set && can.Sampling == nil {
			errs = append(errs, &RangeError{name, fmt.Sprintf("no value, as the %s engine draws nothing at random", m.Name()), "one"})
		}
	}
	if can.MaxFrames != nil && (v.Frames != nil || v.LongSide != nil || v.MaxSlices != nil) {
		frames, slices := s.agent.Frames, s.infer.MaxSlices
		set(&frames, v.Frames)
		set(&slices, v.MaxSlices)
		width, height := s.pictureSizeLocked(v.LongSide)
		if most := can.MaxFrames(width, height, slices); frames > most {
			want := fmt.Sprintf("at most %d, as the %s engine has no room for more pictures of %dx%d in up to %d tiles in a prompt",
				most, m.Name(), width, height, slices)
			errs = append(errs, &RangeError{"frames_per_look", want, frames})
		}
	}
	return errors.Join(errs...)
}

// pictureSizeLocked returns the size of the engine's pictures, those of another long side if it is not nil.
func (s *Session) pictureSizeLocked(longSide *int) (width, height int) {
	if f, ok := s.picture.newest(); ok && longSide == nil {
		return f.Width, f.Height
	}
	side := s.media.LongSide
	set(&side, longSide)
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
func (s *Session) configureLocked(v Settings) {
	if v == (Settings{}) {
		return
	}
	s.choosePresetLocked(v)
	s.set.merge(v)
	if v, err := s.withPreset(v); err == nil { // checked before
		s.applyLocked(v)
	}
}

// applyLocked applies settings without their preset.
func (s *Session) applyLocked(v Settings) {
	set(&s.infer.Voice.Enabled, v.Speech)
	set(&s.media.CaptureFPS, v.CaptureFPS)
	set(&s.agent.Frames, v.Frames)
	set(&s.agent.Stride, v.Stride)
	s.picture.configure(s.media.CaptureFPS, windowNeeds(s.agent))
	set(&s.agent.ChangeThreshold, v.ChangeThreshold)
	setSeconds(&s.pace.MinInterval, v.MinInterval)
	setSeconds(&s.pace.PauseAfter, v.PauseAfter)
	setSeconds(&s.pace.FixedDelay, v.FixedDelay)
	set(&s.infer.MaxTokens, v.MaxTokens)
	set(&s.infer.Voice.MaxTokens, v.SpeechMaxTokens)
	set(&s.agent.CutOnInstruction, v.CutOnInstruction)
	set(&s.agent.Repeats, v.Repeats)
	if v.Language != nil {
		s.language, s.infer.Voice.Language = *v.Language, *v.Language
	}
	set(&s.agent.Talkativeness, v.Talkativeness)
	if v.Voice != nil {
		s.chosenVoice, s.voice = *v.Voice, *v.Voice
	}
	if v.VoiceGain != nil {
		s.gain = *v.VoiceGain
	}
	s.agent.Hearing.change(v)
	s.behaveLocked()
	set(&s.pace.Quantile, v.Quantile)
	setSeconds(&s.pace.Margin, v.Margin)
	set(&s.infer.MaxSlices, v.MaxSlices)
	s.sampling = inference.Sampling{
		Temperature: v.Temperature, TopK: v.TopK, TopP: v.TopP, RepetitionPenalty: v.RepetitionPenalty,
	}.Over(s.sampling)
	if v.LongSide != nil && *v.LongSide != s.media.LongSide {
		if err := s.dec.SetLongSide(*v.LongSide); err != nil { // checked before
			s.log.Error().Err(err).Msg("pictures keep their size")
		} else {
			s.media.LongSide = *v.LongSide
		}
	}
	if v.Speech != nil {
		s.speechChangedLocked()
	}
	s.speech.Pace(s.paceLocked().PauseAfter, s.pace, v.Speech == nil || s.pace.FixedDelay > 0)
}

// speechChangedLocked acts on speech that was turned on or off.
func (s *Session) speechChangedLocked() {
	// The observed times are of either first words or first audio.
	s.speech.Forget(false)
	if !s.infer.Voice.Enabled {
		s.silenceLocked()
	}
}

// merge sets the settings that are set in v.
func (v *Settings) merge(from Settings) {
	to := reflect.ValueOf(v).Elem()
	for field, value := range reflect.ValueOf(from).Fields() {
		if !value.IsNil() {
			to.FieldByIndex(field.Index).Set(value)
		}
	}
}

// clear unsets the settings that are set in others.
func (v *Settings) clear(others Settings) {
	to := reflect.ValueOf(v).Elem()
	for field, value := range reflect.ValueOf(others).Fields() {
		if !value.IsNil() {
			to.FieldByIndex(field.Index).SetZero()
		}
	}
}

// revert returns settings with those put back that a change replaced, and that are still as it left them.
func (v Settings) revert(before, after Settings) Settings {
	was, is, out := reflect.ValueOf(before), reflect.ValueOf(after), reflect.ValueOf(&v).Elem()
	for i := range out.NumField() {
		changed := !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface())
		if changed && reflect.DeepEqual(out.Field(i).Interface(), is.Field(i).Interface()) {
			out.Field(i).Set(was.Field(i))
		}
	}
	return v
}

// takeBack returns settings after the undo of a change from was to after: what people have set since stays as it is now, what
// else the change replaced is as it was, and the rest is as it is in v.
func (v Settings) takeBack(was, after, now, madeThen, madeNow Settings) Settings {
	field := func(s Settings, i int) any { return reflect.ValueOf(s).Field(i).Interface() }
	out := reflect.ValueOf(&v).Elem()
	for i := range out.NumField() {
		switch {
		case !reflect.DeepEqual(field(madeThen, i), field(madeNow, i)):
			out.Field(i).Set(reflect.ValueOf(now).Field(i))
		case !reflect.DeepEqual(field(was, i), field(after, i)):
			out.Field(i).Set(reflect.ValueOf(was).Field(i))
		}
	}
	return v
}

// differing returns the settings that are not the same in others.
func (v Settings) differing(others Settings) Settings {
	to, out := reflect.ValueOf(others), reflect.ValueOf(&v).Elem()
	for i := range out.NumField() {
		if reflect.DeepEqual(out.Field(i).Interface(), to.Field(i).Interface()) {
			out.Field(i).SetZero()
		}
	}
	return v
}

// overlaps reports whether a setting is set in both.
func (v Settings) overlaps(w Settings) bool {
	other := reflect.ValueOf(w)
	for field, value := range reflect.ValueOf(v).Fields() {
		if !value.IsNil() && !other.FieldByIndex(field.Index).IsNil() {
			return true
		}
	}
	return false
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
	whole := func(name string, p *int, least, most int) {
		if p != nil && (*p < least || *p > most) {
			errs = append(errs, &RangeError{name, fmt.Sprintf("a whole number from %d to %d", least, most), *p})
		}
	}
	num("capture_fps", v.CaptureFPS, 0.1, 30)
	whole("frames_per_look", v.Frames, 1, 64)
	whole("frame_stride", v.Stride, 1, 64)
	num("change_threshold", v.ChangeThreshold, 0, 255)
	num("min_interval", v.MinInterval, 0, 60)
	num("pause_after", v.PauseAfter, 0, 60)
	num("fixed_delay", v.FixedDelay, 0, 30)
	num("quantile", v.Quantile, 0.5, 0.999)
	num("margin", v.Margin, 0, 10)
	num("temperature", v.Temperature, 0, 10)
	num("top_p", v.TopP, 0.01, 1)
	num("repetition_penalty", v.RepetitionPenalty, 0.1, 10)
	whole("top_k", v.TopK, 0, 1048576)
	whole("max_slices", v.MaxSlices, 1, 9)
	whole("long_side", v.LongSide, 64, 4096)
	whole("max_tokens", v.MaxTokens, 1, 8192)
	whole("speech_max_tokens", v.SpeechMaxTokens, 1, 8192)
	whole("talkativeness", v.Talkativeness, 1, 5)
	num("voice_gain", v.VoiceGain, inference.MinGain, inference.MaxGain)
	if v.Language != nil && !inference.IsLanguageTag(*v.Language) {
		errs = append(errs, &RangeError{"language", "a BCP 47 tag such as en or pt-BR", fmt.Sprintf("%q", *v.Language)})
	}
	num("max_wait", v.MaxWait, 0, 60)
	if v.Hearing != nil && !slices.Contains(hearingModes(), *v.Hearing) {
		errs = append(errs, &RangeError{"hearing", hearingRule, fmt.Sprintf("%.40q", *v.Hearing)})
	}
	if v.Manners != nil && !slices.Contains(hearingManners(), *v.Manners) {
		errs = append(errs, &RangeError{"manners", mannersRule, fmt.Sprintf("%.40q", *v.Manners)})
	}
	if v.WakeWords != nil && !areWakeWords(*v.WakeWords) {
		errs = append(errs, &RangeError{"wake_words", wakeWordsRule, fmt.Sprintf("%.80q", *v.WakeWords)})
	}
	if v.Repeats != nil && !isRepeats(*v.Repeats) {
		errs = append(errs, &RangeError{"repeats", repeatsRule, fmt.Sprintf("%q", *v.Repeats)})
	}
	if v.Voice != nil && !inference.IsVoice(*v.Voice) {
		errs = append(errs, &RangeError{"voice", inference.VoiceRule, fmt.Sprintf("%.80q", *v.Voice)})
	}
	return errors.Join(errs...)
}

// voiceLocked returns the voice in force, as in Settings.
func (s *Session) voiceLocked() string {
	configured := s.infer.Voice
	switch {
	case s.voice != "":
		return s.voice
	case configured.Name == "":
		return cmp.Or(configured.Program, inference.VoiceAuto)
	}
	return configured.Program + ":" + configured.Name
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

// repeatsRule names the values of the setting.
const repeatsRule = RepeatsSilence + ", " + RepeatsRetry + " or " + RepeatsAllow

func isRepeats(s string) bool { return s == RepeatsSilence || s == RepeatsRetry || s == RepeatsAllow }

func (s *Session) settingsLocked() Settings {
	seconds := func(d time.Duration) *float64 { return new(d.Seconds()) }
	sampling := s.sampling
	can := s.engine.Capabilities()
	if can.Sampling != nil {
		sampling = sampling.Over(*can.Sampling)
	} else {
		sampling = inference.Sampling{} // set for another engine
	}
	out := Settings{
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
		Repeats:          new(s.agent.Repeats),
		Language:         new(s.infer.Voice.Language),
		Quantile:         new(s.pace.Quantile),
		Margin:           seconds(s.pace.Margin),
		LongSide:         new(s.media.LongSide),
		Talkativeness:    new(s.agent.Talkativeness),
		VoiceGain:        new(s.gain),
		Voice:            new(s.voiceLocked()),
		Hearing:          new(s.agent.Hearing.Mode),
		WakeWords:        new(slices.Clone(s.agent.Hearing.WakeWords)),
		Remarks:          new(s.agent.Hearing.Remarks),
		HearCamera:       new(s.agent.Hearing.Camera),
		ConfirmOrders:    new(s.agent.Hearing.Confirm),
		Manners:          new(s.agent.Hearing.Manners),
		MaxWait:          seconds(s.agent.Hearing.MaxWait),
		Temperature:      sampling.Temperature, TopK: sampling.TopK, TopP: sampling.TopP, RepetitionPenalty: sampling.RepetitionPenalty,
	}
	if len(s.opts.Presets) > 0 {
		out.Preset = new(s.preset)
	}
	if can.Slices {
		out.MaxSlices = new(s.infer.MaxSlices)
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
	s.endTalkLocked(cause, s.agent.CutOnInstruction)
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
	return Live{
		Settings: s.set, Active: s.active, Instruction: s.instruction, InstructionBy: s.instructionBy, Profile: s.profile.Name,
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
	return prompt.Profile{}, &RangeError{"profile", fmt.Sprintf("one of %q", known), fmt.Sprintf("%q", name)}
}

// SetRoom sets why the room is away; "" when it is connected.
func (s *Session) SetRoom(why string) {
	s.mu.Lock()
	s.room = why
	s.mu.Unlock()
	s.publishStatus()
}
