package prompt

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"touchline/inference"
	"touchline/internal/check"
)

// Profile is a prompt with its label and a suggested instruction.
type Profile struct {
	Name       string `json:"name" yaml:"name"`
	Label      string `json:"label" yaml:"label"`
	Prompt     string `json:"prompt" yaml:"prompt"`
	Suggestion string `json:"suggestion" yaml:"suggestion"`
	// Language of the comments while the profile is in force (BCP 47); "" leaves the setting as it is.
	Language string `json:"language,omitempty" yaml:"language,omitempty"`
	// Voice of the comments meanwhile, as Settings.Voice; "" leaves the setting as it is.
	Voice string `json:"voice,omitempty" yaml:"voice,omitempty"`
	// Speech and VoiceGain meanwhile, as in Settings; nil leaves the setting as it is.
	Speech    *bool    `json:"speech,omitempty" yaml:"speech,omitempty"`
	VoiceGain *float64 `json:"voice_gain,omitempty" yaml:"voice_gain,omitempty"`
	// Suggestions in other languages than Suggestion's, by BCP 47 primary language.
	Suggestions map[string]string `json:"suggestions,omitempty" yaml:"suggestions,omitempty"`
	// Kind is ProfileBuiltIn, ProfileChanged or ProfileOwn.
	Kind string `json:"kind,omitempty" yaml:"-"`
}

// MaxInstruction is the longest instruction, in characters.
const MaxInstruction = inference.MaxInstruction

// Kinds of profiles.
const (
	ProfileBuiltIn = "built-in" // of the program or its settings
	ProfileChanged = "changed"  // an own one in place of a built-in one
	ProfileOwn     = "own"
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
	s.That(p.Language == "" || inference.IsLanguageTag(p.Language), "language", "a BCP 47 tag such as en or pt-BR",
		fmt.Sprintf("%.40q", p.Language))
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
