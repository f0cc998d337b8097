package engine

import (
	"cmp"
	"context"
	"iter"

	"touchline/inference"
	"touchline/inference/voice"
)

// Engine is a model with its voice, shared by all rooms. Its sessions, of type *Session, end with Close.
type Engine struct {
	inference.Model

	manager *ModelManager // nil for a model that is always loaded
	voice   *voice.Mix    // nil for the model's own alone
}

// Of returns the engine of a ModelManager, or of another model, which is always loaded. Programs speak beside the model's voice; nil for
// no program.
func Of(m inference.Model, programs *voice.Synthesizer) *Engine {
	e := &Engine{Model: m}
	e.manager, _ = m.(*ModelManager)
	if programs != nil {
		e.voice = voice.NewMix(m.Capabilities, programs)
	}
	return e
}

// Run loads and unloads the model until ctx ends; see ModelManager.Run.
func (e *Engine) Run(ctx context.Context) error {
	if e.manager != nil {
		return e.manager.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

// Loaded returns the model in memory; nil without one.
func (e *Engine) Loaded() inference.Model {
	if e.manager != nil {
		return e.manager.Loaded()
	}
	return e.Model
}

// Failure returns why the last load failed; nil after one that did not.
func (e *Engine) Failure() error {
	if e.manager != nil {
		return e.manager.Failure()
	}
	return nil
}

// share is the part of the engine that one answer takes.
func (e *Engine) share() float64 {
	if e.manager != nil {
		return 1 / float64(e.manager.opts.Parallel)
	}
	return 1
}

// Capabilities returns those of the model; with programs it always has speech.
func (e *Engine) Capabilities() inference.Capabilities {
	can := e.Model.Capabilities()
	if e.voice != nil {
		can.Speech, can.OwnVoice = true, can.Speech
	}
	return can
}

// Status returns the status of the model with the problem of its voice.
func (e *Engine) Status() inference.Status {
	st := e.Model.Status()
	if e.voice != nil {
		st.VoiceProblem = cmp.Or(e.voice.Problem(), st.VoiceProblem)
	}
	return st
}

// VoiceStats counts the sentences of the speech programs.
func (e *Engine) VoiceStats() (st voice.Stats) {
	if e.voice != nil {
		st = e.voice.Stats()
	}
	return st
}

// Admission decides whether the prompts of a room may begin, and counts them.
type Admission interface {
	// Admit returns why a prompt or a text must not begin, else written, which is called once when its text is complete. recorded says
	// that the room gets a record of it, share is the part of the engine that it takes.
	Admit(recorded bool, share float64) (written func(), err error)
	// Closed returns why no more prompts begin; nil while they do.
	Closed() error
}

// Session is one room's conversation with an Engine: what it asks for passes the admission, waits for the model and a place, and gets
// its voice. It is also what the room knows of the engine, as an inference.Model, and speaks texts.
type Session struct {
	*Engine

	admission Admission // nil admits all
	lease     *lease
	voice     *voice.Room // nil without programs
}

var _ inference.Speaker = (*Session)(nil)

// Open opens the session of a room. The admission may be nil. Open sessions keep the model loaded.
func (e *Engine) Open(a Admission) (*Session, error) {
	s := &Session{Engine: e, admission: a, lease: &lease{manager: e.manager}}
	if err := s.lease.begin(e.Model); err != nil {
		return nil, err
	}
	if e.voice != nil {
		s.voice = e.voice.Room(s.lease)
	}
	return s, nil
}

// NewSession opens a session without an admission.
func (e *Engine) NewSession() (inference.Session, error) { return e.Open(nil) }

// NewSession opens another session of the same room.
func (s *Session) NewSession() (inference.Session, error) { return s.Open(s.admission) }

// Status returns that of the engine with the voice problem of this room. The model counts as loading where no prompt is admitted.
func (s *Session) Status() inference.Status {
	st := s.Engine.Status()
	if s.voice != nil {
		st.VoiceProblem = cmp.Or(st.VoiceProblem, s.voice.Problem())
	}
	if s.admission != nil {
		if err := s.admission.Closed(); err != nil {
			st.Phase, st.Detail = inference.PhaseLoading, err.Error()
		}
	}
	return st
}

// Generate answers one prompt. It fails with inference.ErrNotReady and the reason if the model cannot be loaded, with
// inference.ErrOverloaded if the queue is full, with ErrClosed after Close, and with the error of the admission.
func (s *Session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return s.admitted(!p.Structured(), s.share(), func() iter.Seq2[inference.Chunk, error] {
		if s.voice == nil {
			return s.lease.answer(ctx, p)
		}
		return s.voice.Answer(ctx, p, s.lease.answer)
	})
}

// Speak implements inference.Speaker.
func (s *Session) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return s.admitted(true, 0, func() iter.Seq2[inference.Chunk, error] {
		if s.voice == nil {
			return s.lease.Speak(ctx, text, voice, language)
		}
		return s.voice.Speak(ctx, text, voice, language)
	})
}

// admitted yields what f returns, once it is admitted.
func (s *Session) admitted(recorded bool, share float64, f func() iter.Seq2[inference.Chunk, error]) iter.Seq2[inference.Chunk, error] {
	if s.admission == nil {
		return f()
	}
	return func(yield func(inference.Chunk, error) bool) {
		written, err := s.admission.Admit(recorded, share)
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		defer written()
		for c, err := range f() {
			if c.TextEnds {
				written()
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// Observe passes a frame to the model if it is loaded, else drops it.
func (s *Session) Observe(f inference.Frame) { s.lease.observe(f) }

// Close ends the conversation. Closing the last session starts the time to the idle unload.
func (s *Session) Close() error { return s.lease.close() }
