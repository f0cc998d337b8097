package voice

import (
	"cmp"
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
)

// Mix is the voice of the sessions of a model. Each sentence is spoken as soon as it is written: by the model where it has a voice
// (Capabilities.Speech) and the voice is "model", or "auto" in a language of that voice, else by a program. Text passes unchanged and at
// once; sound follows in chunks of its own, with the times of its words. A silent answer has none, and what no voice can speak has text
// only.
//
// A voice changes between two sentences, and no word is lost or said twice. A program goes on where the model's voice fails, and where it
// is behind real time, until it keeps up. Where the room chooses another voice, that one goes on. Safe for concurrent use.
type Mix struct {
	can      func() inference.Capabilities // of the model alone
	synth    *Synthesizer
	log      zerolog.Logger
	overload overload

	mu       sync.Mutex
	problems [2]string // of the model's voice and of the speech program; "" without one
}

// NewMix returns the voice of a model with the capabilities can; synth holds the voice programs.
func NewMix(can func() inference.Capabilities, synth *Synthesizer) *Mix {
	return &Mix{can: can, synth: synth, log: synth.log}
}

// choice is a voice that a room has chosen.
type choice struct {
	voice string       // of the model, as in inference.Prompt
	synth *Synthesizer // the programs
	own   bool         // the model is to speak
}

// choose returns the choice of a voice, as in inference.Prompt, for a language: "auto" takes a program for a language that the
// model's voice does not speak, where there is one.
func (v *Mix) choose(voice, language string) choice {
	c := choice{voice: voice, synth: v.synth.as(voice)}
	cfg := c.synth.cfg
	if cfg.Program == inference.VoiceModel && cfg.Name != "" {
		c.voice = cfg.Program + ":" + cfg.Name
	}
	can := v.can()
	if !can.Speech || cfg.Program != inference.VoiceAuto && cfg.Program != inference.VoiceModel {
		return c
	}
	c.synth = c.synth.as(inference.VoiceAuto)
	language = cmp.Or(language, cfg.Language)
	c.own = cfg.Program == inference.VoiceModel || can.VoiceSpeaks(language) || c.synth.Check(language) != nil
	return c
}

// Stats counts the sentences of the speech programs.
func (v *Mix) Stats() Stats { return v.synth.Stats() }

// Problem returns why speech fails in all rooms; "" while it works.
func (v *Mix) Problem() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return cmp.Or(v.problems[ofProgram], v.problems[ofModel])
}

// The voices that can have a problem.
const (
	ofModel = iota
	ofProgram
)

// report sets the problem of a voice and logs each change.
func (v *Mix) report(whose int, err error) {
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

// found ends the problem of a model without a voice, which was loaded since.
func (v *Mix) found() {
	v.mu.Lock()
	missing := v.problems[ofProgram] == inference.ErrNoVoice.Error()
	v.mu.Unlock()
	if missing {
		v.report(ofProgram, nil)
	}
}

// Model is a session of the model, as its voice is used.
type Model struct {
	// Speak implements inference.Speaker. It returns inference.ErrNoVoice for a model that speaks only its own answers.
	Speak func(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error]
	// CancelVoice ends the sound of the last answer.
	CancelVoice func()
}

// Room is the voice of one session.
type Room struct {
	v     *Mix
	model Model
	last  atomic.Pointer[told] // of the last prompt
	wants atomic.Bool          // the model's voice
	rests atomic.Bool          // a program speaks in its place, as it is behind real time
}

// Room returns the voice of a session of the model.
func (v *Mix) Room(m Model) *Room { return &Room{v: v, model: m} }

// told holds a prompt's instructions to the voice, also for texts that are not answers.
type told struct {
	says map[string]string // pronunciations
	now  func() string     // Prompt.VoiceNow
}

// Problem returns why the room lacks the model's voice while others have it; "" while it has it.
func (s *Room) Problem() string {
	if s.rests.Load() && s.wants.Load() {
		return errBehind.Error()
	}
	return ""
}

// own reports whether the model speaks, if it is to speak.
func (s *Room) own(wanted bool) bool {
	s.wants.Store(wanted)
	if wanted && s.rests.Load() && s.v.overload.over(time.Now()) {
		s.rests.Store(false)
		s.v.log.Info().Msg("voice fallback ended")
	}
	return wanted && !s.rests.Load()
}

// spoke counts a sentence of the model. If its voice is behind real time, the room leaves it.
func (s *Room) spoke(behind bool, now time.Time) {
	if s.v.overload.sentence(behind, now) && !s.rests.Swap(true) {
		s.v.log.Warn().Err(errBehind).Msg("voice fell back")
	}
}

// Answer yields an answer of the model, which generate asks for, with its speech.
func (s *Room) Answer(ctx context.Context, p inference.Prompt,
	generate func(context.Context, inference.Prompt) iter.Seq2[inference.Chunk, error],
) iter.Seq2[inference.Chunk, error] {
	s.last.Store(&told{p.Pronunciations, p.VoiceNow})
	if !p.Speech {
		return generate(ctx, p)
	}
	m := s.mixer(p.Voice, p.Language)
	if !m.own && s.v.can().Speech {
		p.Speech = false // it would be made for nothing
	}
	p.Voice = m.voice
	return m.mix(ctx, func(ctx context.Context) iter.Seq2[inference.Chunk, error] { return generate(ctx, p) })
}

// Speak implements inference.Speaker: the text is read sentence by sentence. A model whose voice speaks its answers alone leaves it to the
// programs. What cannot be spoken has text only.
func (s *Room) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	m := s.mixer(voice, language)
	m.own = false // nothing is written: the text is read aloud
	m.pending = append(m.cutter.push(text), m.cutter.end()...)
	return func(yield func(inference.Chunk, error) bool) {
		if yield(inference.Chunk{Text: text}, nil) {
			m.mix(ctx, func(context.Context) iter.Seq2[inference.Chunk, error] {
				return func(func(inference.Chunk, error) bool) {}
			})(yield)
		}
	}
}
