package engine

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"

	"touchline/inference"
	"touchline/inference/voice"
)

// Admission decides whether the prompts of a room may begin, and counts them.
type Admission interface {
	// Admit returns why a prompt or a text must not begin, else written, which is called once its text is complete and again at its end.
	// recorded says that the room gets a record of it, share is the part of the engine that it takes.
	Admit(recorded bool, share float64) (written func(), err error)
	// Closed returns why no more prompts begin; nil while they do.
	Closed() error
}

// Session is one room's conversation with an engine: each prompt passes the admission, waits for the model and a place, and gets
// its voice. It outlives loads of the model. It is also the room's view of the engine, as an inference.Model, and speaks texts.
type Session struct {
	*ModelManager

	admission Admission   // nil admits all
	voice     *voice.Room // nil without programs

	mu         sync.Mutex    // taken before the manager's, never after
	inner      *conversation // with the loaded model; nil before the first use
	watched    func(inference.Sight)
	generation uint64
	closed     bool
}

var (
	_ inference.Speaker = (*Session)(nil)
	_ inference.Seer    = (*Session)(nil)
	_ inference.Judge   = (*Session)(nil)
)

// conversation is a session of a loaded model with its optional interfaces; mute replaces the ones that the model lacks.
type conversation struct {
	inference.Session
	inference.Speaker
	inference.VoiceCanceller
	inference.Seer

	judge inference.Judge
}

func converse(m inference.Model) (*conversation, error) {
	s, err := m.NewSession()
	if err != nil {
		return nil, fmt.Errorf("open a session with the model: %w", err)
	}
	c := &conversation{s, mute{}, mute{}, mute{}, mute{}}
	if speaker, ok := s.(inference.Speaker); ok {
		c.Speaker = speaker
	}
	if canceller, ok := s.(inference.VoiceCanceller); ok {
		c.VoiceCanceller = canceller
	}
	if seer, ok := s.(inference.Seer); ok {
		c.Seer = seer
	}
	if judge, ok := s.(inference.Judge); ok {
		c.judge = judge
	}
	return c, nil
}

// mute is the voice of a model without one, and sees nothing.
type mute struct{}

func (mute) Speak(context.Context, string, string, string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{}, inference.ErrNoVoice) }
}

func (mute) Forget() {}

func (mute) CancelVoice() {}

func (mute) Sight() (inference.Sight, bool) { return inference.Sight{}, false }

func (mute) Watch(func(inference.Sight)) {}

func (mute) Judge([]string, []inference.Region) (inference.Judgement, bool) {
	return inference.Judgement{}, false
}

// NewSession opens a session without an admission.
func (k *ModelManager) NewSession() (inference.Session, error) { return k.Open(nil) }

// Open opens the session of a room. The admission may be nil. Open sessions keep the model loaded.
func (k *ModelManager) Open(a Admission) (*Session, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.stopped {
		return nil, ErrClosed
	}
	s := &Session{ModelManager: k, admission: a}
	if k.voice != nil {
		s.voice = k.voice.Room(voice.Model{Speak: s.speak, CancelVoice: s.cancelVoice})
	}
	k.sessions[s] = struct{}{}
	k.wake.Set()
	return s, nil
}

// NewSession opens another session of the same room.
func (s *Session) NewSession() (inference.Session, error) { return s.Open(s.admission) }

// Status returns the engine's status with the voice problem of this room. The model counts as loading where no prompt is admitted.
func (s *Session) Status() inference.Status {
	st := s.ModelManager.Status()
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
	return s.admitted(!p.Structured(), 1/float64(s.opts.Parallel), func() iter.Seq2[inference.Chunk, error] {
		if s.voice == nil {
			return s.answer(ctx, p)
		}
		return s.voice.Answer(ctx, p, s.answer)
	})
}

// Speak implements inference.Speaker.
func (s *Session) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return s.admitted(true, 0, func() iter.Seq2[inference.Chunk, error] {
		if s.voice == nil {
			return s.speak(ctx, text, voice, language)
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

// answer yields the answer of the model to a prompt.
func (s *Session) answer(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return s.ask(ctx, p.Urgent, func(ctx context.Context, c *conversation) iter.Seq2[inference.Chunk, error] {
		return c.Generate(ctx, p)
	})
}

// speak yields a text in the voice of the model, if it has one; it goes ahead of the prompts that wait, unless it goes behind live rooms.
func (s *Session) speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return s.ask(ctx, !inference.IsBehind(ctx), func(ctx context.Context, c *conversation) iter.Seq2[inference.Chunk, error] {
		return c.Speak(ctx, text, voice, language)
	})
}

// ask waits for the model and a place, then yields what f asks the session of the loaded model for.
func (s *Session) ask(ctx context.Context, urgent bool,
	f func(ctx context.Context, c *conversation) iter.Seq2[inference.Chunk, error],
) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		asked := ctx
		ctx, mine, err := s.enter(asked, urgent)
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		defer s.leave(mine) // deferred in case the model or the caller panics
		inner, err := s.conversation()
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		for c, err := range f(ctx, inner) {
			if err != nil && asked.Err() == nil && ctx.Err() != nil {
				err = context.Cause(ctx) // ended by the manager, not the caller
			}
			if c.TextEnds {
				s.pass(mine)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// cancelVoice ends the sound of the model's last answer.
func (s *Session) cancelVoice() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner != nil {
		s.inner.CancelVoice()
	}
}

// Forget implements inference.Seer.
func (s *Session) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner != nil {
		s.inner.Forget()
	}
}

// Observe passes a frame to the model if it is loaded, else drops it.
func (s *Session) Observe(f inference.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openLocked() == nil {
		s.inner.Observe(f)
	}
}

// Sight implements inference.Seer.
func (s *Session) Sight() (inference.Sight, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openLocked() != nil {
		return inference.Sight{}, false
	}
	return s.inner.Sight()
}

// Watch implements inference.Seer.
func (s *Session) Watch(f func(inference.Sight)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = f
	if s.inner != nil {
		s.inner.Watch(f)
	}
}

// Judge implements inference.Judge.
func (s *Session) Judge(rules []string, regions []inference.Region) (inference.Judgement, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openLocked() != nil {
		return inference.Judgement{}, false
	}
	return s.inner.judge.Judge(rules, regions)
}

// Close ends the conversation. Closing the last session starts the time to the idle unload.
func (s *Session) Close() error {
	defer s.left(s) // after a panic, too
	s.mu.Lock()
	defer s.mu.Unlock()
	inner := s.inner
	s.closed, s.inner = true, nil
	if inner == nil {
		return nil
	}
	return inner.Close()
}

// closeInner closes the session of a model that is about to be closed.
func (s *Session) closeInner() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner == nil {
		return
	}
	if err := s.inner.Close(); err != nil {
		s.log.Warn().Err(err).Msg("closing a session of the model")
	}
	s.inner = nil
}

// conversation returns the session of the loaded model.
func (s *Session) conversation() (*conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.openLocked()
	return s.inner, err
}

func (s *Session) openLocked() error {
	if s.closed {
		return ErrClosed
	}
	k := s.ModelManager
	k.mu.Lock()
	model, generation, broken := k.model, k.generation, k.broken
	k.mu.Unlock()
	if model == nil || broken {
		return inference.ErrNotReady
	}
	if s.inner != nil && s.generation == generation {
		return nil
	}
	inner, err := converse(model)
	if err != nil {
		return err
	}
	if s.watched != nil {
		inner.Watch(s.watched)
	}
	s.inner, s.generation = inner, generation
	return nil
}
