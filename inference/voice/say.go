package voice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"touchline/inference"
)

var _ inference.Speaker = (*Synthesizer)(nil)

// Speak implements inference.Speaker: it yields the text, then the sound of each sentence as soon as it is made. It ends with the error
// of the first sentence that cannot be spoken. The sample rate may change when a speech server fails.
func (s *Synthesizer) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		if !yield(inference.Chunk{Text: text}, nil) {
			return
		}
		synth := s.as(voice)
		var cutter splitter
		for _, piece := range append(cutter.push(text), cutter.end()...) {
			goOn := true
			err := synth.sentence(ctx, piece, language, nil, func(c inference.Chunk) bool {
				goOn = goOn && yield(c, nil)
				return goOn
			})
			switch {
			case !goOn:
				return
			case errors.Is(err, errFailover):
				s.log.Warn().Err(err).Msg("speech failed")
			case err != nil && !errors.Is(err, ErrNothingToSay):
				yield(inference.Chunk{}, err)
				return
			}
		}
	}
}

// Say converts a text of any length to sound, sentence by sentence with pauses, as in a room. lang is BCP 47; "" means the configured
// language. Say does not fall back from a speech server that fails, and refuses a voice that the program does not have.
func (s *Synthesizer) Say(ctx context.Context, text, lang string) (Speech, error) {
	if err := s.checkVoice(ctx, cmp.Or(lang, s.cfg.Language)); err != nil {
		return Speech{}, err
	}
	var out Speech
	one := *s
	one.strict = true // one voice for the whole sound
	for c, err := range one.Speak(ctx, text, "", lang) {
		if err != nil {
			return Speech{}, err
		}
		if len(c.Audio) > 0 {
			out = out.then(c)
		}
	}
	if len(out.Audio) == 0 {
		return Speech{}, ErrNothingToSay
	}
	return out, nil
}

// then returns the speech with a piece appended. All pieces have the rate of one voice.
func (sp Speech) then(c inference.Chunk) Speech {
	at := duration(len(sp.Audio), c.AudioRate)
	for _, w := range c.Words {
		w.Start, w.End = w.Start+at, w.End+at
		sp.Words = append(sp.Words, w)
	}
	sp.Audio, sp.Rate = append(sp.Audio, c.Audio...), c.AudioRate
	return sp
}

// checkVoice returns an error for a voice that flite does not have. flite itself would use another one.
func (s *Synthesizer) checkVoice(ctx context.Context, lang string) error {
	if s.cfg.Name == "" || s.cfg.Program == remote || s.programFor(lang).name != flite {
		return nil
	}
	list, err := run(ctx, flite, "", "-lv")
	if err != nil {
		return fmt.Errorf("list flite's voices: %w", err)
	}
	_, names, _ := strings.Cut(string(list), ":")
	if voices := strings.Fields(names); !slices.Contains(voices, s.cfg.Name) {
		return fmt.Errorf("flite has no voice %q: choose one of %s", s.cfg.Name, strings.Join(voices, ", "))
	}
	return nil
}
