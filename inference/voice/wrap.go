package voice

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
)

// Wrap adds a voice to a model. Each sentence of a prompt with Speech, and of a text of Speak, is spoken as soon as it is written: by the
// model where it has a voice (Capabilities.Speech) and the voice is "model", or "auto" in a language of that voice, else by synth. Text
// passes unchanged and at once; sound follows in chunks of its own, with the times of its words. A silent answer has none, and what no
// voice can speak has text only.
//
// A voice changes between two sentences, and no word is lost or said twice. synth goes on where the model's voice fails, and where it is
// behind real time, until it keeps up. Where the room chooses another voice, that one goes on. Status has the problem of a voice;
// VoiceProblem of a session that of its room alone.
func Wrap(model inference.Model, synth *Synthesizer) inference.Model {
	return &voiced{Model: model, synth: synth, log: synth.log}
}

// voiced is a model with the voice of a Synthesizer.
type voiced struct {
	inference.Model
	synth    *Synthesizer
	log      zerolog.Logger
	overload overload

	mu       sync.Mutex
	problems [2]string // of the model's voice and of the speech program; "" without one
}

// NewSession opens a session of the inner model with the voice.
func (v *voiced) NewSession() (inference.Session, error) {
	inner, err := v.Model.NewSession()
	if err != nil {
		return nil, err
	}
	return &session{Session: inner, v: v}, nil
}

// Capabilities returns those of the inner model with speech.
func (v *voiced) Capabilities() inference.Capabilities {
	can := v.Model.Capabilities()
	can.Speech, can.OwnVoice = true, can.Speech
	return can
}

// choice is a voice that a room has chosen.
type choice struct {
	voice string       // of the model, as in inference.Prompt
	synth *Synthesizer // the programs
	own   bool         // the model is to speak
}

// choose returns the choice of a voice, as in inference.Prompt, for a language: "auto" takes a program for a language that the
// model's voice does not speak, where there is one.
func (v *voiced) choose(voice, language string) choice {
	c := choice{voice: voice, synth: v.synth.as(voice)}
	cfg := c.synth.cfg
	if cfg.Program == inference.VoiceModel && cfg.Name != "" {
		c.voice = cfg.Program + ":" + cfg.Name
	}
	can := v.Model.Capabilities()
	if !can.Speech || cfg.Program != inference.VoiceAuto && cfg.Program != inference.VoiceModel {
		return c
	}
	c.synth = c.synth.as(inference.VoiceAuto)
	language = cmp.Or(language, cfg.Language)
	c.own = cfg.Program == inference.VoiceModel || can.VoiceSpeaks(language) || c.synth.Check(language) != nil
	return c
}

// VoiceStats counts the sentences of its speech programs.
func (v *voiced) VoiceStats() Stats { return v.synth.Stats() }

// Status returns the inner model's status with the problem of the voice.
func (v *voiced) Status() inference.Status {
	st := v.Model.Status()
	v.mu.Lock()
	defer v.mu.Unlock()
	st.VoiceProblem = cmp.Or(v.problems[ofProgram], v.problems[ofModel], st.VoiceProblem)
	return st
}

// Whose problem it is.
const (
	ofModel = iota
	ofProgram
)

// report sets the problem of a voice and logs each change.
func (v *voiced) report(whose int, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	v.mu.Lock()
	changed := problem != v.problems[whose]
	v.problems[whose] = problem
	v.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		v.log.Warn().Err(err).Msg("speech failed")
	default:
		v.log.Info().Msg("speech works again")
	}
}

var (
	_ inference.Speaker       = (*session)(nil)
	_ inference.VoiceReporter = (*session)(nil)
)

type session struct {
	inference.Session
	v     *voiced
	last  atomic.Pointer[told] // of the last prompt
	wants atomic.Bool          // the model's voice
	rests atomic.Bool          // a program speaks in its place, as it is behind real time
}

// told is what a prompt tells the voice, also for texts that are not answers.
type told struct {
	says map[string]string // pronunciations
	now  func() string     // Prompt.VoiceNow
}

// VoiceProblem implements inference.VoiceReporter.
func (s *session) VoiceProblem() string {
	if s.rests.Load() && s.wants.Load() {
		return errBehind.Error()
	}
	return ""
}

// own reports whether the model speaks, if it is to speak.
func (s *session) own(wanted bool) bool {
	s.wants.Store(wanted)
	if wanted && s.rests.Load() && s.v.overload.over(time.Now()) {
		s.rests.Store(false)
		s.v.log.Info().Msg("voice fallback ended")
	}
	return wanted && !s.rests.Load()
}

// spoke counts a sentence of the model. If its voice is behind real time, the room leaves it.
func (s *session) spoke(behind bool, now time.Time) {
	if s.v.overload.sentence(behind, now) && !s.rests.Swap(true) {
		s.v.log.Warn().Err(errBehind).Msg("voice fell back")
	}
}

// Generate yields the inner engine's answer with speech.
func (s *session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	s.last.Store(&told{p.Pronunciations, p.VoiceNow})
	if !p.Speech {
		return s.Session.Generate(ctx, p)
	}
	m := s.mixer(p.Voice, p.Language, true)
	if !m.own && s.v.Model.Capabilities().Speech {
		p.Speech = false // it would be made for nothing
	}
	p.Voice = m.voice
	return m.mix(ctx, func(ctx context.Context) iter.Seq2[inference.Chunk, error] { return s.Session.Generate(ctx, p) })
}

// Speak implements inference.Speaker. A model with a voice that speaks nothing but its answers leaves it to the programs. What
// cannot be spoken has text only.
func (s *session) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	speaker, ok := s.Session.(inference.Speaker)
	m := s.mixer(voice, language, ok)
	m.given = text
	own, voice := m.own, m.voice
	return m.mix(ctx, func(ctx context.Context) iter.Seq2[inference.Chunk, error] {
		if own {
			return orText(text, speaker.Speak(ctx, text, voice, language))
		}
		return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: text}, nil) }
	})
}

// orText yields speech. If it fails before its first sound, a failure of the voice and the text take the place of the error.
func orText(text string, speech iter.Seq2[inference.Chunk, error]) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		said, sounds := 0, false
		for c, err := range speech {
			if err != nil && !sounds && said <= len(text) {
				failure := &inference.VoiceFailure{Err: err}
				if errors.Is(err, inference.ErrNoVoice) {
					failure.Err = nil // it speaks nothing but answers
				}
				c, err = inference.Chunk{Text: text[said:], VoiceFailed: failure}, nil
			}
			said += len(c.Text)
			sounds = sounds || len(c.Audio) > 0
			if !yield(c, err) || c.VoiceFailed != nil {
				return
			}
		}
	}
}
