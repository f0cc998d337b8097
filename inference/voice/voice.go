// Package voice gives speech to engines that have none, by running flite
// (English) or espeak-ng (about a hundred languages) once per sentence.
//
// It owns the speech programs, what is read to them and the times of the words
// in what they say. It never plays sound and never changes the text: when a
// program is missing or fails, the text goes on without a voice.
package voice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"touchline/inference"
)

const (
	// maxText bounds what is spoken at once, in bytes.
	maxText = 2000
	// maxTime bounds one run of a program.
	maxTime = 10 * time.Second

	flite  = "flite"
	espeak = "espeak-ng"
)

// ErrNothingToSay is returned by Speak when nothing of the text can be spoken.
var ErrNothingToSay = errors.New("nothing to say: the text has no word in it")

// MissingError is returned when the speech program is not installed.
type MissingError struct {
	Program string
	Package string // apt package that has it
}

// Error names the program and how to get it.
func (e *MissingError) Error() string {
	return fmt.Sprintf("expected the speech program %s, which is not installed: apt-get install %s", e.Program, e.Package)
}

// Speech is a piece of text as sound.
type Speech struct {
	// Audio is mono 16-bit at Rate (Hz).
	Audio []int16
	Rate  int
	// Words times every word of the text, in order: what stands between
	// spaces, as written. One that is not spoken (an emoji) lasts no time.
	Words []inference.WordTime
}

// Synthesizer speaks. Safe for concurrent use.
type Synthesizer struct {
	cfg inference.VoiceConfig
	log zerolog.Logger
}

// New checks the settings. The programs are looked for when they are needed:
// see Check.
func New(cfg inference.VoiceConfig, log zerolog.Logger) (*Synthesizer, error) {
	switch cfg.Program {
	case "":
		cfg.Program = "auto"
	case "auto", flite, espeak:
	default:
		return nil, fmt.Errorf(`expected inference.voice.program to be "auto", "flite" or "espeak-ng", got %q`, cfg.Program)
	}
	for _, s := range []struct{ name, value string }{{"name", cfg.Name}, {"language", cfg.Language}} {
		if !plain(s.value) {
			return nil, fmt.Errorf("expected inference.voice.%s to be a plain name, got %q", s.name, s.value)
		}
	}
	return &Synthesizer{cfg: cfg, log: log.With().Str("component", "voice").Logger()}, nil
}

// plain reports that a name cannot be taken for an option or a path.
func plain(name string) bool {
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case i > 0 && (r == '-' || r == '_' || r == '+'):
		default:
			return false
		}
	}
	return len(name) <= 64
}

// programFor chooses the program that speaks lang.
func (s *Synthesizer) programFor(lang string) string {
	if s.cfg.Program != "auto" {
		return s.cfg.Program
	}
	if isEnglish(lang) {
		return flite
	}
	return espeak
}

func isEnglish(lang string) bool {
	base, _, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(lang, "_", "-")), "-")
	return base == "" || base == "en"
}

// Check reports what is missing for the languages given (BCP 47; none means
// the configured one): nil, or *MissingError for each program, joined.
func (s *Synthesizer) Check(langs ...string) error {
	if len(langs) == 0 {
		langs = []string{s.cfg.Language}
	}
	var errs []error
	var seen []string
	for _, l := range langs {
		p := s.programFor(l)
		if slices.Contains(seen, p) {
			continue
		}
		seen = append(seen, p)
		if _, err := lookUp(p); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Speak turns one sentence (2000 bytes at most) into sound. lang is BCP 47;
// "" means the configured language. Errors: *MissingError, ErrNothingToSay,
// ctx's error, or what the program complained about.
func (s *Synthesizer) Speak(ctx context.Context, text, lang string) (Speech, error) {
	if len(text) > maxText {
		return Speech{}, fmt.Errorf("expected at most %d bytes to speak at once, got %d: cut it into sentences",
			maxText, len(text))
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "")
	}
	tokens := tokenize(text)
	if !slices.ContainsFunc(tokens, func(t token) bool { return t.spoken != "" }) {
		return Speech{}, ErrNothingToSay
	}
	if lang == "" {
		lang = s.cfg.Language
	}
	if !plain(lang) {
		return Speech{}, fmt.Errorf("expected a language like en or pt-BR, got %q", lang)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("expected the speech program to answer in %v", maxTime))
	defer cancel()

	var sp Speech
	var err error
	switch p := s.programFor(lang); p {
	case flite:
		sp, err = s.speakFlite(ctx, tokens)
	default:
		sp, err = s.speakEspeak(ctx, tokens, lang)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Speech{}, fmt.Errorf("speak: %w", err)
	}
	return sp, nil
}
