package settings

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"touchline/inference"
	"touchline/media"
	"touchline/pacing"
)

// InForce is the configuration that the settings of a running commentator change.
type InForce struct {
	Agent     Config
	Pacing    pacing.Config
	Media     media.Config
	Inference inference.Config
	// Sampling that people have set; the rest is the engine's own.
	Sampling inference.Sampling
	// Voice is as Settings.Voice; "" is the voice of Inference.Voice.
	Voice string
}

// The kinds of settings.
const (
	Number = "number"
	Whole  = "whole"
	Switch = "switch"
	Text   = "text"
	List   = "list"
	Choice = "choice"
)

// Setting is a row of the table. All settings change with the right "settings" (package access).
type Setting struct {
	// Name in the API and in the state file; Path in the settings file, "" where that has none.
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
	Kind string `json:"kind"`
	Unit string `json:"unit,omitempty"`
	// Min and Max bound a number; nil for none.
	Min *float64 `json:"min,omitempty"`
	Max *float64 `json:"max,omitempty"`
	// Options are the values of a choice.
	Options []string `json:"options,omitempty"`
	// About says what it sets, for the documentation.
	About string `json:"about"`

	// Profile is set where a profile has a value of its own, which is in force until people choose another.
	Profile bool `json:"-"`

	isSet func(v *Settings) bool
	same  func(a, b *Settings) bool
	copy  func(to, from *Settings)
	check func(v *Settings) error
	read  func(v *Settings, from *InForce)
	apply func(to *InForce, v *Settings)
}

// kind holds the functions of a Setting of a type.
type kind[T any] struct {
	field func(*Settings) **T
	get   func(*InForce) *T // a copy; nil where it is not known
	set   func(*InForce, T)
	same  func(a, b T) bool
	check func(T) (want string, got any) // "" if it is in bounds
}

func row[T any](s Setting, k kind[T]) Setting {
	s.isSet = func(v *Settings) bool { return *k.field(v) != nil }
	s.same = func(a, b *Settings) bool {
		x, y := *k.field(a), *k.field(b)
		return x == y || x != nil && y != nil && k.same(*x, *y)
	}
	s.copy = func(to, from *Settings) { *k.field(to) = *k.field(from) }
	s.check = func(v *Settings) error {
		if p := *k.field(v); p != nil && k.check != nil {
			if want, got := k.check(*p); want != "" {
				return &RangeError{Name: s.Name, Want: want, Got: got}
			}
		}
		return nil
	}
	s.read = func(v *Settings, from *InForce) { *k.field(v) = k.get(from) }
	s.apply = func(to *InForce, v *Settings) {
		if p := *k.field(v); p != nil {
			k.set(to, *p)
		}
	}
	return s
}

func equal[T comparable](a, b T) bool { return a == b }

// at is a kind whose value in force is a variable.
func at[T comparable](field func(*Settings) **T, in func(*InForce) *T) kind[T] {
	return kind[T]{
		field: field, same: equal[T],
		get: func(f *InForce) *T { return new(*in(f)) },
		set: func(f *InForce, v T) { *in(f) = v },
	}
}

// drawn is a kind whose value in force is the engine's own until people set one.
func drawn[T comparable](field func(*Settings) **T, in func(*inference.Sampling) **T) kind[T] {
	return kind[T]{
		field: field, same: equal[T],
		get: func(f *InForce) *T { return *in(&f.Sampling) },
		set: func(f *InForce, v T) { *in(&f.Sampling) = &v },
	}
}

// seconds is a kind of durations, which are numbers of seconds in the API.
func seconds(field func(*Settings) **float64, in func(*InForce) *time.Duration) kind[float64] {
	return kind[float64]{
		field: field, same: equal[float64],
		get: func(f *InForce) *float64 { return new(in(f).Seconds()) },
		set: func(f *InForce, v float64) { *in(f) = time.Duration(v * float64(time.Second)) },
	}
}

func number(name, path, unit string, least, most float64, k kind[float64], about string) Setting {
	k.check = func(v float64) (string, any) {
		if v >= least && v <= most { // not for NaN
			return "", nil
		}
		return fmt.Sprintf("a number from %g to %g", least, most), v
	}
	return row(Setting{Name: name, Path: path, Kind: Number, Unit: unit, Min: &least, Max: &most, About: about}, k)
}

func whole(name, path, unit string, least, most int, k kind[int], about string) Setting {
	k.check = func(v int) (string, any) {
		if v >= least && v <= most {
			return "", nil
		}
		return fmt.Sprintf("a whole number from %d to %d", least, most), v
	}
	return row(Setting{Name: name, Path: path, Kind: Whole, Unit: unit, Min: new(float64(least)), Max: new(float64(most)), About: about}, k)
}

func flag(name, path string, k kind[bool], about string) Setting {
	return row(Setting{Name: name, Path: path, Kind: Switch, About: about}, k)
}

// choice is a setting with fixed options. Its error has the rule, and the wrong value in the format got.
func choice(name, path string, options []string, rule, got string, k kind[string], about string) Setting {
	k.check = func(v string) (string, any) {
		if slices.Contains(options, v) {
			return "", nil
		}
		return rule, fmt.Sprintf(got, v)
	}
	return row(Setting{Name: name, Path: path, Kind: Choice, Options: options, About: about}, k)
}

// ofProfile marks a setting that a profile can have.
func ofProfile(s Setting) Setting {
	s.Profile = true
	return s
}

// Table returns all settings, in the order in which they are checked.
func Table() []Setting { return slices.Clone(rows) }

var rows = table() //nolint:gochecknoglobals // read only; it is made once

// table makes the table. A new setting is a field of Settings, a variable of InForce, and a row here.
func table() []Setting { //nolint:funlen // a table
	type (
		v = Settings
		f = InForce
	)
	return []Setting{
		number("capture_fps", "media.capture_fps", "per s", 0.1, 30,
			at(func(s *v) **float64 { return &s.CaptureFPS }, func(c *f) *float64 { return &c.Media.CaptureFPS }), "pictures that are kept"),
		whole("frames_per_look", "agent.frames_per_look", "pictures", 1, 64,
			at(func(s *v) **int { return &s.Frames }, func(c *f) *int { return &c.Agent.Frames }), "pictures of a cycle"),
		whole("frame_stride", "agent.frame_stride", "", 1, 64,
			at(func(s *v) **int { return &s.Stride }, func(c *f) *int { return &c.Agent.Stride }), "a cycle takes every n-th picture"),
		number("change_threshold", "agent.change_threshold", "", 0, 255,
			at(func(s *v) **float64 { return &s.ChangeThreshold }, func(c *f) *float64 { return &c.Agent.ChangeThreshold }),
			"a cycle is skipped if the picture changed less (mean difference); 0 never skips"),
		choice("look_when", "agent.look_when", lookWhenOptions(), lookWhenRule, "%.40q",
			at(func(s *v) **string { return &s.LookWhen }, func(c *f) *string { return &c.Agent.LookWhen }),
			"large models look all the time, or when the detector finds something new"),
		number("look_max_wait", "agent.look_max_wait", "s", 1, 60,
			seconds(func(s *v) **float64 { return &s.LookMaxWait }, func(c *f) *time.Duration { return &c.Agent.LookMaxWait }),
			"longest time between the starts of two cycles, with look_when facts"),
		number("min_interval", "pacing.min_interval", "s", 0, 60,
			seconds(func(s *v) **float64 { return &s.MinInterval }, func(c *f) *time.Duration { return &c.Pacing.MinInterval }),
			"shortest time between the starts of two cycles"),
		number("pause_after", "pacing.pause_after", "s", 0, 60,
			seconds(func(s *v) **float64 { return &s.PauseAfter }, func(c *f) *time.Duration { return &c.Pacing.PauseAfter }), "pause after speech"),
		number("fixed_delay", "pacing.fixed_delay", "s", 0, 30,
			seconds(func(s *v) **float64 { return &s.FixedDelay }, func(c *f) *time.Duration { return &c.Pacing.FixedDelay }),
			"delay of the picture; 0 follows what is measured"),
		number("quantile", "pacing.quantile", "", 0.5, 0.999,
			at(func(s *v) **float64 { return &s.Quantile }, func(c *f) *float64 { return &c.Pacing.Quantile }),
			"share of the comments that the delay waits for"),
		number("margin", "pacing.margin", "s", 0, 10,
			seconds(func(s *v) **float64 { return &s.Margin }, func(c *f) *time.Duration { return &c.Pacing.Margin }), "added to that delay"),
		number("temperature", "", "", 0, 10,
			drawn(func(s *v) **float64 { return &s.Temperature }, func(c *inference.Sampling) **float64 { return &c.Temperature }),
			"randomness of answers; 0 always takes the likeliest token"),
		number("top_p", "", "", 0.01, 1,
			drawn(func(s *v) **float64 { return &s.TopP }, func(c *inference.Sampling) **float64 { return &c.TopP }),
			"total probability of the tokens to draw from"),
		number("repetition_penalty", "", "", 0.1, 10,
			drawn(func(s *v) **float64 { return &s.RepetitionPenalty }, func(c *inference.Sampling) **float64 { return &c.RepetitionPenalty }),
			"penalty for tokens that are in the answer already; 1 is off"),
		whole("top_k", "", "tokens", 0, 1048576,
			drawn(func(s *v) **int { return &s.TopK }, func(c *inference.Sampling) **int { return &c.TopK }),
			"likeliest tokens to draw from; 0 is all"),
		whole("max_slices", "inference.max_slices", "tiles", 1, 9,
			at(func(s *v) **int { return &s.MaxSlices }, func(c *f) *int { return &c.Inference.MaxSlices }), "most tiles of a picture"),
		whole("long_side", "media.long_side", "px", 64, 4096,
			at(func(s *v) **int { return &s.LongSide }, func(c *f) *int { return &c.Media.LongSide }), "longer edge of a picture"),
		whole("max_tokens", "inference.max_tokens", "tokens", 1, 8192,
			at(func(s *v) **int { return &s.MaxTokens }, func(c *f) *int { return &c.Inference.MaxTokens }), "longest answer that is not spoken"),
		whole("speech_max_tokens", "inference.voice.max_tokens", "tokens", 1, 8192,
			at(func(s *v) **int { return &s.SpeechMaxTokens }, func(c *f) *int { return &c.Inference.Voice.MaxTokens }), "longest spoken answer"),
		whole("talkativeness", "agent.talkativeness", "", 1, 5,
			at(func(s *v) **int { return &s.Verbosity }, func(c *f) *int { return &c.Agent.Verbosity }),
			"pace, length and the change worth a comment together; 3 leaves them as they are"),
		ofProfile(number("voice_gain", "inference.voice.gain", "dB", inference.MinGain, inference.MaxGain,
			at(func(s *v) **float64 { return &s.VoiceGain }, func(c *f) *float64 { return &c.Inference.Voice.Gain }), "level of the voice")),
		ofProfile(row(Setting{
			Name: "language", Path: "inference.voice.language", Kind: Text, About: "language of comments and voice, a BCP 47 tag",
		}, languages())),
		number("max_wait", "agent.hearing.max_wait", "s", 0, 60,
			seconds(func(s *v) **float64 { return &s.MaxWait }, func(c *f) *time.Duration { return &c.Agent.Hearing.MaxWait }),
			"longest wait of a comment for people, with manners wait"),
		choice("hearing", "agent.hearing.mode", hearingModes(), hearingRule, "%.40q",
			at(func(s *v) **string { return &s.Hearing }, func(c *f) *string { return &c.Agent.Hearing.Mode }), "who is heard, and for what"),
		choice("manners", "agent.hearing.manners", bargeInValues(), bargeInRule, "%.40q",
			at(func(s *v) **string { return &s.BargeIn }, func(c *f) *string { return &c.Agent.Hearing.BargeIn }),
			"what the voice does while a person speaks who may instruct"),
		row(Setting{Name: "wake_words", Path: "agent.hearing.wake_words", Kind: List, About: wakeWordsRule}, wakeWords()),
		choice("repeats", "agent.repeats", repeatsOptions(), repeatsRule, "%q",
			at(func(s *v) **string { return &s.Repeats }, func(c *f) *string { return &c.Agent.Repeats }),
			"what becomes of a comment that repeats one of the last"),
		ofProfile(row(Setting{Name: "voice", Path: "inference.voice.program", Kind: Text, About: "who speaks"}, voices())),
		ofProfile(flag("speech", "inference.voice.enabled",
			at(func(s *v) **bool { return &s.Speech }, func(c *f) *bool { return &c.Inference.Voice.Enabled }), "comments are spoken")),
		flag("cut_on_instruction", "agent.cut_on_instruction",
			at(func(s *v) **bool { return &s.CutOnInstruction }, func(c *f) *bool { return &c.Agent.CutOnInstruction }),
			"a new instruction cuts the present speech"),
		flag("remarks", "agent.hearing.remarks",
			at(func(s *v) **bool { return &s.Remarks }, func(c *f) *bool { return &c.Agent.Hearing.Remarks }),
			"comments may answer what people say"),
		flag("hear_camera", "agent.hearing.camera",
			at(func(s *v) **bool { return &s.HearCamera }, func(c *f) *bool { return &c.Agent.Hearing.Camera }),
			"the sound of the watched camera gets captions"),
		flag("confirm_orders", "agent.hearing.confirm",
			at(func(s *v) **bool { return &s.ConfirmOrders }, func(c *f) *bool { return &c.Agent.Hearing.Confirm }), "spoken orders are confirmed"),
		flag("mask_delayed", "media.mask_delayed",
			at(func(s *v) **bool { return &s.MaskDelayed }, func(c *f) *bool { return &c.Media.MaskDelayed }),
			"privacy masks cover the delayed picture too, which is then decoded and encoded again"),
		row(Setting{Name: "preset", Path: "preset", Kind: Choice, About: "sets several of these at once; \"\" is none"}, kind[string]{
			field: func(s *v) **string { return &s.Preset }, same: equal[string],
			get: func(*f) *string { return nil }, set: func(*f, string) {}, // see Set
		}),
	}
}

// Check returns the errors of all settings out of bounds, joined.
func (v Settings) Check() error {
	var errs []error
	for _, s := range rows {
		errs = append(errs, s.check(&v))
	}
	return errors.Join(errs...)
}

// Over returns v where it is set, and others where it is not.
func (v Settings) Over(others Settings) Settings {
	for _, s := range rows {
		if s.isSet(&v) {
			s.copy(&others, &v)
		}
	}
	return others
}

// Without returns v without the settings that are set in others.
func (v Settings) Without(others Settings) Settings {
	for _, s := range rows {
		if s.isSet(&others) {
			s.copy(&v, &Settings{})
		}
	}
	return v
}

// Only returns the settings of v that keep names.
func (v Settings) Only(keep func(s Setting) bool) (out Settings) {
	for _, s := range rows {
		if keep(s) {
			s.copy(&out, &v)
		}
	}
	return out
}

// Same reports whether the same settings are set to the same values.
func (v Settings) Same(w Settings) bool {
	return !slices.ContainsFunc(rows, func(s Setting) bool { return !s.same(&v, &w) })
}

// Names lists the settings that are set.
func (v Settings) Names() (out []string) {
	for _, s := range rows {
		if s.isSet(&v) {
			out = append(out, s.Name)
		}
	}
	return out
}

// Read returns the current settings, without the settings that only the engine knows.
func (f InForce) Read() (v Settings) {
	for _, s := range rows {
		s.read(&v, &f)
	}
	return v
}
