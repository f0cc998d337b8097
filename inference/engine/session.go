package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
)

// session is a conversation that outlives loads of the model. It opens a session
// of the loaded model on first use.
type session struct {
	k *Keeper

	mu         sync.Mutex // taken before the Keeper's, never after
	inner      inference.Session
	generation uint64
	closed     bool
}

// Generate waits for the model and a place, then answers. It fails with
// inference.ErrNotReady and the reason if the model cannot be loaded, with
// inference.ErrOverloaded if the queue is full, with ErrClosed after Close.
func (s *session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return s.answer(ctx, p.Urgent, func(ctx context.Context, inner inference.Session) iter.Seq2[inference.Chunk, error] {
		return inner.Generate(ctx, p)
	})
}

var (
	_ inference.Speaker        = (*session)(nil)
	_ inference.VoiceCanceller = (*session)(nil)
)

// CancelVoice implements inference.VoiceCanceller for a loaded model whose sessions are one.
func (s *session) CancelVoice() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.inner.(inference.VoiceCanceller); ok {
		h.CancelVoice()
	}
}

// Speak implements inference.Speaker with the voice of a loaded model, if it has one; it goes ahead of the prompts that wait, unless
// it goes behind live rooms.
func (s *session) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return s.answer(ctx, !inference.IsBehind(ctx), func(ctx context.Context, inner inference.Session) iter.Seq2[inference.Chunk, error] {
		speaker, ok := inner.(inference.Speaker)
		if !ok {
			return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{}, inference.ErrNoVoice) }
		}
		return speaker.Speak(ctx, text, voice, language)
	})
}

// answer waits for the model and a place, then yields what f asks the session of the loaded model for.
func (s *session) answer(ctx context.Context, urgent bool,
	f func(ctx context.Context, inner inference.Session) iter.Seq2[inference.Chunk, error],
) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		k := s.k
		asked := ctx
		ctx, cancel := context.WithCancelCause(asked)
		defer cancel(nil)
		mine := &prompt{cancel: cancel, urgent: urgent, settled: make(chan struct{})}
		if err := k.enter(ctx, mine); err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		defer k.leave(mine) // deferred in case the model or the caller panics

		inner, err := s.open()
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		for c, err := range f(ctx, inner) {
			if err != nil && asked.Err() == nil && ctx.Err() != nil {
				err = context.Cause(ctx) // ended by the Keeper, not the caller
			}
			if c.TextEnds {
				k.pass(mine)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// Observe passes a frame to the model if it is loaded, else drops it.
func (s *session) Observe(f inference.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openLocked() != nil {
		return
	}
	s.inner.Observe(f)
}

// Close ends the conversation. Closing the last session starts the time to the idle unload.
func (s *session) Close() error {
	first, err := s.closeOnce()
	if first {
		s.k.left(s)
	}
	return err
}

func (s *session) closeOnce() (first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, nil
	}
	s.closed = true
	inner := s.inner
	s.inner = nil
	if inner == nil {
		return true, nil
	}
	return true, rescue.Call(inner.Close) // after a panic, too, the Keeper removes the session
}

// closeInner closes the session of a model that is about to be closed.
func (s *session) closeInner() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner == nil {
		return
	}
	if err := s.inner.Close(); err != nil {
		s.k.log.Warn().Err(err).Msg("closing a session of the model")
	}
	s.inner = nil
}

// open returns the session of the loaded model.
func (s *session) open() (inference.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openLocked(); err != nil {
		return nil, err
	}
	return s.inner, nil
}

func (s *session) openLocked() error {
	if s.closed {
		return ErrClosed
	}
	s.k.mu.Lock()
	model, generation, broken := s.k.model, s.k.generation, s.k.broken
	s.k.mu.Unlock()
	if model == nil || broken {
		return inference.ErrNotReady
	}
	if s.inner != nil && s.generation == generation {
		return nil
	}
	inner, err := model.NewSession()
	if err != nil {
		return fmt.Errorf("open a session with the model: %w", err)
	}
	s.inner, s.generation = inner, generation
	return nil
}

// enter waits for the model and a place.
func (k *Keeper) enter(ctx context.Context, p *prompt) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k.mu.Lock()
	switch {
	case k.closed || k.stopped:
		k.mu.Unlock()
		return ErrClosed
	case k.phase == inference.PhaseFailed && time.Now().Before(k.retryAt):
		err := k.failure
		k.mu.Unlock()
		return fmt.Errorf("%w: %w", inference.ErrNotReady, err)
	}
	if k.queue.add(p) {
		k.stats.Overloaded++
	}
	k.wake.Set()
	k.mu.Unlock()

	select {
	case <-p.settled:
		return p.err
	case <-ctx.Done():
		k.leave(p) // If it was just admitted, its place becomes free.
		if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) {
			return cause
		}
		return ctx.Err()
	}
}

// pass lets the next prompt run beside the sound of one.
func (k *Keeper) pass(p *prompt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.pass(p)
}

// leave ends a waiting or running prompt.
func (k *Keeper) leave(p *prompt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.end(p)
	if k.model != nil && k.model.Status().Phase == inference.PhaseFailed {
		k.breakLocked(k.model)
	}
	k.wake.Set()
}

// left removes a closed session.
func (k *Keeper) left(s *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sessions, s)
	if len(k.sessions) == 0 {
		k.idleSince = time.Now()
	}
	k.wake.Set()
}
