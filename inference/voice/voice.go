// Package voice is text to speech. For each sentence it runs flite (English) or espeak-ng (about a hundred languages), or sends a
// request to a speech server with OpenAI's API. It mixes this speech with a model's own voice: a program speaks if the model has no
// voice, if another one is chosen, or if the model's fails or is behind real time.
//
// It owns the speech programs, their input, the times of the spoken words, and the choice of the voice. It does not play sound and
// does not change the text. Without a working voice, comments have text only.
package voice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
)

const (
	// maxText bounds one text of Speak, in bytes.
	maxText = 2000
	// maxTime bounds one run of a program.
	maxTime = 10 * time.Second
)

// ErrNothingToSay is returned by Speak for a text without a word.
var ErrNothingToSay = errors.New("nothing to say: the text has no word")

// errFailover is wrapped by the error of a speech server if a local program has spoken instead.
var errFailover = errors.New("a program of this machine speaks instead")

// Speech is a piece of text as sound.
type Speech struct {
	// Audio is mono 16-bit at Rate (Hz).
	Audio []int16
	Rate  int
	// Words are the times of all words of the text, separated at spaces. A word without sound, such as an emoji, has no length.
	Words []inference.WordTime
}

// Synthesizer speaks. Safe for concurrent use.
type Synthesizer struct {
	cfg    inference.VoiceConfig
	log    zerolog.Logger
	server *server // nil without an address
	strict bool    // no fallback from a speech server
	counts *counts
}

// New checks the settings, not the programs; see Check.
func New(cfg inference.VoiceConfig, log zerolog.Logger) (*Synthesizer, error) {
	cfg.Program = cmp.Or(cfg.Program, inference.VoiceAuto)
	if choices := inference.VoiceChoices(); !slices.Contains(choices, cfg.Program) {
		return nil, fmt.Errorf(`inference.voice.program: must be "%s", is %q`,
			strings.ReplaceAll(strings.ReplaceAll(inference.List(choices), ", ", `", "`), " or ", `" or "`), cfg.Program)
	}
	if cfg.Program == remote && cfg.URL == "" {
		return nil, errors.New("inference.voice.program remote needs inference.voice.url, such as http://127.0.0.1:8880/v1")
	}
	for _, s := range []struct{ name, value string }{{"name", cfg.Name}, {"language", cfg.Language}} {
		if !plain(s.value) && (cfg.Program != remote || s.name != "name" || !serverVoice(s.value)) {
			return nil, fmt.Errorf("inference.voice.%s: must be a plain name, is %q", s.name, s.value)
		}
	}
	s := &Synthesizer{cfg: cfg, log: log.With().Str("component", "voice").Logger(), counts: newCounts()}
	if cfg.URL != "" {
		s.server = newServer(cfg)
	}
	return s, nil
}

// plain reports whether a name is neither an option nor a path.
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

// Check checks that the programs for some languages (BCP 47; none means the configured one) are installed; a speech server needs
// none. The error names each missing program and how to install it.
func (s *Synthesizer) Check(langs ...string) error {
	if len(langs) == 0 {
		langs = []string{s.cfg.Language}
	}
	if s.cfg.Program == remote {
		return nil
	}
	var missing []error
	for _, p := range programs() {
		if slices.ContainsFunc(langs, func(lang string) bool { return s.programFor(lang).name == p.name }) {
			_, err := lookUp(p.name)
			missing = append(missing, err)
		}
	}
	return errors.Join(missing...)
}

// sentence converts one sentence of at most 2000 bytes to sound, and passes each piece to emit, which returns false to end it. lang
// is BCP 47; "" means the configured language. pronunciations are by the word in lower case. The error is ErrNothingToSay,
// inference.ErrNoVoice, ctx's error, or the program's message. It wraps errFailover if the sentence was spoken, but not by the
// speech server.
func (s *Synthesizer) sentence(ctx context.Context, text, lang string, pronunciations map[string]string, emit func(inference.Chunk) bool,
) error {
	tokens, lang, err := s.prepare(text, lang, pronunciations)
	if err != nil {
		return err
	}
	if s.cfg.Program != remote {
		return s.emitLocal(ctx, tokens, lang, text, emit)
	}
	rest, err := s.server.speak(ctx, s.cfg.Name, tokens, pauseAfter(text), emit)
	switch {
	case err == nil:
		s.counts.spoken[remote].Add(1)
		return nil
	case ctx.Err() != nil || s.strict:
		return err
	}
	s.counts.failovers.Add(1)
	if slices.ContainsFunc(rest, token.sounds) {
		local := s.as(inference.VoiceAuto)
		if lerr := local.emitLocal(ctx, rest, lang, text, emit); lerr != nil {
			return errors.Join(err, lerr)
		}
	}
	return fmt.Errorf("%w; %w", err, errFailover)
}

// emitLocal emits the words of a sentence, spoken by a local program.
func (s *Synthesizer) emitLocal(ctx context.Context, tokens []token, lang, text string, emit func(inference.Chunk) bool) error {
	sp, err := s.local(ctx, tokens, lang)
	if err != nil {
		return err
	}
	s.counts.spoken[s.programFor(lang).name].Add(1)
	emit(tighten(sp, text))
	return nil
}

// prepare returns the words of a sentence and its language.
func (s *Synthesizer) prepare(text, lang string, pronunciations map[string]string) ([]token, string, error) {
	if s.cfg.Program == inference.VoiceModel {
		return nil, "", inference.ErrNoVoice
	}
	if len(text) > maxText {
		return nil, "", fmt.Errorf("speak: a sentence of %d bytes is longer than %d", len(text), maxText)
	}
	tokens := tokenize(strings.ToValidUTF8(text, ""))
	pronounce(tokens, pronunciations)
	if !slices.ContainsFunc(tokens, token.sounds) {
		return nil, "", ErrNothingToSay
	}
	lang = cmp.Or(lang, s.cfg.Language)
	if !plain(lang) {
		return nil, "", fmt.Errorf("speak: language %q: must be a BCP 47 tag such as en or pt-BR", lang)
	}
	return tokens, lang, nil
}

// local speaks words with a local program.
func (s *Synthesizer) local(ctx context.Context, tokens []token, lang string) (Speech, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("the speech program did not finish within %v", maxTime))
	defer cancel()
	sp, err := s.programFor(lang).speak(s, ctx, tokens, lang)
	if err != nil {
		return Speech{}, fmt.Errorf("speak: %w", cmp.Or(context.Cause(ctx), err))
	}
	return sp, nil
}
