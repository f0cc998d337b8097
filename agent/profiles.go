package agent

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"touchline/inference"
	"touchline/internal/check"
)

// MaxProfiles bounds the own profiles of a room.
const MaxProfiles = 32

// Kinds of profiles.
const (
	ProfileBuiltIn = "built-in" // of the program or its settings
	ProfileChanged = "changed"  // an own one in place of a built-in one
	ProfileOwn     = "own"
)

// Errors of PutProfile and DeleteProfile.
var (
	ErrNoProfile       = errors.New("no such profile")
	ErrProfileTaken    = errors.New("the name is taken: choose another one, or change the profile that has it")
	ErrProfileBuiltIn  = errors.New("a built-in profile cannot be deleted")
	ErrProfileInUse    = errors.New("the profile is in use: choose another one first")
	ErrTooManyProfiles = fmt.Errorf("there are %d own profiles already: delete one first", MaxProfiles)
)

var profileName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// Trimmed returns the profile without white space around its texts, and all that is wrong with it, joined.
func (p Profile) Trimmed() (Profile, error) {
	p.Prompt, p.Suggestion, p.Label = strings.TrimSpace(p.Prompt), strings.TrimSpace(p.Suggestion), strings.TrimSpace(p.Label)
	p.Language, p.Voice, p.Kind = strings.TrimSpace(p.Language), strings.TrimSpace(p.Voice), ""
	var s check.Settings
	s.That(profileName.MatchString(p.Name), "name", "up to 40 lower-case letters, digits, - and _", fmt.Sprintf("%.60q", p.Name))
	chars := utf8.RuneCountInString
	s.That(p.Label != "" && chars(p.Label) <= 40, "label", "1 to 40 characters", chars(p.Label))
	s.That(p.Prompt != "" && chars(p.Prompt) <= 8000, "prompt", "1 to 8000 characters", chars(p.Prompt))
	s.That(chars(p.Suggestion) <= MaxInstruction, "suggestion", fmt.Sprintf("at most %d characters", MaxInstruction), chars(p.Suggestion))
	s.That(p.Language == "" || inference.IsLanguageTag(p.Language), "language", "a BCP 47 tag such as en or pt-BR", fmt.Sprintf("%.40q", p.Language))
	s.That(p.Voice == "" || inference.IsVoice(p.Voice), "voice", inference.VoiceRule, fmt.Sprintf("%.80q", p.Voice))
	if g := p.VoiceGain; g != nil {
		s.That(*g >= inference.MinGain && *g <= inference.MaxGain, "voice_gain",
			fmt.Sprintf("between %d and %d dB", inference.MinGain, inference.MaxGain), *g)
	}
	for language, text := range p.Suggestions {
		s.That(inference.IsLanguageTag(language), "suggestions", "by BCP 47 language", fmt.Sprintf("%.40q", language))
		s.That(chars(text) <= MaxInstruction, "suggestions."+language, fmt.Sprintf("at most %d characters", MaxInstruction), chars(text))
	}
	return p, s.Err()
}

// ReadProfile reads a profile in YAML; of an untrusted one, at most MaxForm bytes. name is the name of one without. The
// error joins all that is wrong.
func ReadProfile(name string, text []byte) (Profile, error) {
	root, err := readForm(text)
	if err != nil {
		return Profile{}, err
	}
	var b binder
	p := Profile{Name: name}
	for field, v := range b.fields("", root, "name", "label", "prompt", "suggestion", "language", "voice", "speech", "voice_gain",
		"suggestions") {
		switch field {
		case "suggestions":
			p.Suggestions = b.texts(field, v)
			continue
		case "speech":
			p.Speech = parsed(&b, field, v, "true or false", strconv.ParseBool)
			continue
		case "voice_gain":
			p.VoiceGain = parsed(&b, field, v, "a number of dB", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
			continue
		}
		value, ok := v.(string)
		if !ok {
			b.bad.That(false, field, "text", kindOf(v))
			continue
		}
		*map[string]*string{
			"name": &p.Name, "label": &p.Label, "prompt": &p.Prompt, "suggestion": &p.Suggestion, "language": &p.Language,
			"voice": &p.Voice,
		}[field] = value
	}
	if err := b.bad.Err(); err != nil {
		return Profile{}, err
	}
	return p.Trimmed()
}

// parsed returns a value that is optional; nil without it.
func parsed[T any](b *binder, path string, v any, want string, parse func(string) (T, error)) *T {
	text, ok := v.(string)
	if ok && strings.TrimSpace(text) == "" {
		return nil
	}
	value, err := parse(strings.TrimSpace(text))
	if b.bad.That(ok && err == nil, path, want, kindOf(v)); !ok || err != nil {
		return nil
	}
	return &value
}

// YAML returns the profile as ReadProfile reads it.
func (p Profile) YAML() ([]byte, error) {
	text, err := yaml.MarshalWithOptions(p, yaml.UseLiteralStyleIfMultiline(true))
	if err != nil {
		return nil, fmt.Errorf("write profile %s: %w", p.Name, err)
	}
	return text, nil
}

// Profiles returns the built-in and own profiles of the room.
func (s *Session) Profiles() []Profile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profilesLocked()
}

func (s *Session) profilesLocked() []Profile {
	out := slices.Clone(s.opts.Profiles)
	for i := range out {
		out[i].Kind = ProfileBuiltIn
	}
	for _, p := range s.own {
		p.Kind = ProfileOwn
		if i := slices.IndexFunc(out, named(p.Name)); i >= 0 {
			p.Kind = ProfileChanged
			out[i] = p
		} else {
			out = append(out, p)
		}
	}
	return out
}

// suggestedLocked returns the profiles with the suggestion in the language of the comments alone, where they have it.
func (s *Session) suggestedLocked() []Profile {
	out := s.profilesLocked()
	language := inference.Primary(s.engine.Capabilities().AnswersIn(s.infer.Voice.Language))
	for i := range out {
		out[i].Suggestion = cmp.Or(out[i].Suggestions[language], out[i].Suggestion)
		out[i].Suggestions = nil
	}
	return out
}

func named(name string) func(Profile) bool { return func(p Profile) bool { return p.Name == name } }

// PutProfile creates or changes a profile of the room; a changed built-in one can be reset by DeleteProfile. A change
// of the active profile acts at once, as choosing it does. With create set, the name must be free.
func (s *Session) PutProfile(p Profile, create bool, by string) (created bool, err error) {
	if p, err = p.Trimmed(); err != nil {
		return false, err
	}
	s.locked(func() {
		if p.Name == s.profile.Name {
			if err = s.checkProfileLocked(p); err != nil {
				return
			}
		}
		own := slices.IndexFunc(s.own, named(p.Name))
		created = own < 0 && !slices.ContainsFunc(s.opts.Profiles, named(p.Name))
		switch {
		case create && !created:
			err = fmt.Errorf("profile %s: %w", p.Name, ErrProfileTaken)
			return
		case own >= 0:
			s.own = slices.Clone(s.own)
			s.own[own] = p
		case len(s.own) >= MaxProfiles:
			err = ErrTooManyProfiles
			return
		default:
			s.own = append(slices.Clone(s.own), p)
		}
		s.actOnProfileLocked(p)
	})
	if err != nil {
		return false, err
	}
	s.log.Info().Str("profile", p.Name).Str("by", by).Msg("profile changed")
	s.nudge()
	return created, nil
}

// DeleteProfile deletes an own profile that is not in use, or resets a changed built-in one.
func (s *Session) DeleteProfile(name, by string) (err error) {
	s.locked(func() {
		own := slices.IndexFunc(s.own, named(name))
		builtIn := slices.IndexFunc(s.opts.Profiles, named(name))
		switch {
		case own < 0 && builtIn >= 0:
			err = fmt.Errorf("profile %s: %w", name, ErrProfileBuiltIn)
			return
		case own < 0:
			err = fmt.Errorf("profile %.60q: %w", name, ErrNoProfile)
			return
		case builtIn < 0 && s.profile.Name == name:
			err = fmt.Errorf("profile %s: %w", name, ErrProfileInUse)
			return
		}
		s.own = slices.Delete(slices.Clone(s.own), own, own+1)
		if builtIn >= 0 {
			s.actOnProfileLocked(s.opts.Profiles[builtIn])
		}
	})
	if err != nil {
		return err
	}
	s.log.Info().Str("profile", name).Str("by", by).Msg("profile deleted")
	s.nudge()
	return nil
}

// useProfileLocked makes a profile the active one, with its language and its settings of the voice, or else those that were set.
func (s *Session) useProfileLocked(p Profile) {
	s.profile, s.infer.Voice.Language, s.voice = p, cmp.Or(p.Language, s.language), cmp.Or(p.Voice, s.chosenVoice)
	configured := s.opts.Inference.Voice
	if on := *cmp.Or(p.Speech, s.set.Speech, &configured.Enabled); on != s.infer.Voice.Enabled {
		s.infer.Voice.Enabled = on
		s.speechChangedLocked()
	}
	if gain := *cmp.Or(p.VoiceGain, s.set.VoiceGain, &configured.Gain); gain != s.gain {
		s.gain = gain
		s.levelLocked()
	}
}

// checkProfileLocked returns the error of a profile whose language the engine does not speak, or whose voice it lacks.
func (s *Session) checkProfileLocked(p Profile) error {
	can := s.engine.Capabilities()
	if can.CheckVoice(p.Voice) != nil {
		return &RangeError{"profile", "one with another voice, as " + wantOwn(s.engine), fmt.Sprintf("%q with %q", p.Name, p.Voice)}
	}
	if p.Language == "" || can.Speaks(p.Language) {
		return nil
	}
	want := fmt.Sprintf("one whose language is one of %q, as the %s engine speaks nothing else", can.Languages, s.engine.Name())
	return &RangeError{"profile", want, fmt.Sprintf("%q with %q", p.Name, p.Language)}
}

// actOnProfileLocked applies a changed profile if it is the active one.
func (s *Session) actOnProfileLocked(p Profile) {
	if s.profile.Name != p.Name {
		return
	}
	s.useProfileLocked(p)
	if s.active {
		s.actNowLocked(errReplaced)
	}
}
