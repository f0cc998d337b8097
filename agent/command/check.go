package command

import (
	"cmp"
	"errors"
	"fmt"

	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/inference"
)

// checkWindow returns the error of settings that reach back further than the window.
func (s *Steering) checkWindow(v settings.Settings) error {
	next := s.live.Agent
	next.Frames, next.Stride = *cmp.Or(v.Frames, &next.Frames), *cmp.Or(v.Stride, &next.Stride)
	if n := next.Reach(); (v.Frames != nil || v.Stride != nil) && n > s.live.Media.WindowSize {
		want := fmt.Sprintf("a cycle that reaches back at most %d pictures (window_size)", s.live.Media.WindowSize)
		return &settings.RangeError{Name: "frames_per_look and frame_stride", Want: want, Got: n}
	}
	return nil
}

// checkModel returns the errors of settings that an engine does not
// support: each cycle would fail or ignore them.
func (s *Steering) checkModel(m inference.Model, v settings.Settings) error {
	var errs []error
	can := m.Capabilities()
	if v.Language != nil && !can.Speaks(*v.Language) {
		want := fmt.Sprintf("one of %q, as the %s engine speaks nothing else", can.Languages, m.Name())
		errs = append(errs, &settings.RangeError{Name: "language", Want: want, Got: fmt.Sprintf("%q", *v.Language)})
	}
	if v.Voice != nil && can.CheckVoice(*v.Voice) != nil {
		errs = append(errs, &settings.RangeError{Name: "voice", Want: "another one, as " + wantOwn(m), Got: fmt.Sprintf("%q", *v.Voice)})
	}
	if v.MaxSlices != nil && !can.Slices {
		want := fmt.Sprintf("no value, as the %s engine cuts no pictures into tiles", m.Name())
		errs = append(errs, &settings.RangeError{Name: "max_slices", Want: want, Got: *v.MaxSlices})
	}
	for name, set := range map[string]bool{
		"temperature": v.Temperature != nil, "top_k": v.TopK != nil, "top_p": v.TopP != nil, "repetition_penalty": v.RepetitionPenalty != nil,
	} {
		if set && can.Sampling == nil {
			want := fmt.Sprintf("no value, as the %s engine draws nothing at random", m.Name())
			errs = append(errs, &settings.RangeError{Name: name, Want: want, Got: "one"})
		}
	}
	if can.MaxFrames != nil && (v.Frames != nil || v.LongSide != nil || v.MaxSlices != nil) {
		frames, slices := *cmp.Or(v.Frames, &s.live.Agent.Frames), *cmp.Or(v.MaxSlices, &s.live.Inference.MaxSlices)
		width, height := s.opts.PictureSize(*cmp.Or(v.LongSide, &s.live.Media.LongSide), v.LongSide != nil)
		if most := can.MaxFrames(width, height, slices); frames > most {
			want := fmt.Sprintf("at most %d, as the %s engine has no room for more pictures of %dx%d in up to %d tiles in a prompt",
				most, m.Name(), width, height, slices)
			errs = append(errs, &settings.RangeError{Name: "frames_per_look", Want: want, Got: frames})
		}
	}
	return errors.Join(errs...)
}

// errDeaf is returned when the room has no recognizer.
var errDeaf = errors.New("nobody is heard without a recognizer: set inference.recognizer.program")

// checkHearing returns the errors of a change of the hearing settings.
func (s *Steering) checkHearing(v settings.Settings) error {
	next := s.live.Agent.Hearing
	next.Mode, next.WakeWords = *cmp.Or(v.Hearing, &next.Mode), *cmp.Or(v.WakeWords, &next.WakeWords)
	if next.Mode == settings.HearingOff || v.Hearing == nil && v.WakeWords == nil {
		return nil
	}
	err := errDeaf
	if s.opts.Ears != nil {
		err = s.opts.Ears.CheckHearing(next)
	}
	if err == nil {
		return nil
	}
	return &settings.RangeError{Name: "hearing", Want: fmt.Sprintf("another mode, as %v", err), Got: fmt.Sprintf("%q", next.Mode)}
}

// checkProfile returns the error of a profile whose language the engine does not speak, or whose voice it lacks.
func checkProfile(m inference.Model, p prompt.Profile) error {
	can := m.Capabilities()
	if can.CheckVoice(p.Voice) != nil {
		want := "one with another voice, as " + wantOwn(m)
		return &settings.RangeError{Name: "profile", Want: want, Got: fmt.Sprintf("%q with %q", p.Name, p.Voice)}
	}
	if p.Language == "" || can.Speaks(p.Language) {
		return nil
	}
	want := fmt.Sprintf("one whose language is one of %q, as the %s engine speaks nothing else", can.Languages, m.Name())
	return &settings.RangeError{Name: "profile", Want: want, Got: fmt.Sprintf("%q with %q", p.Name, p.Language)}
}

// wantOwn lists the voices that a model has of its own, for an error.
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

// Fits returns the errors of settings in force that a model cannot meet.
func (s *Steering) Fits(m inference.Model) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkModel(m, settings.Settings{
		Language: &s.live.Inference.Voice.Language, Frames: &s.live.Agent.Frames, Voice: new(s.live.VoiceID()),
	})
}
