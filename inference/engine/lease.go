package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"touchline/inference"
)

// lease is the use of the model by a session, and outlives loads: it opens a session of the loaded model on first use.
type lease struct {
	manager *ModelManager // nil for a model that is always loaded

	mu         sync.Mutex // taken before the manager's, never after
	inner      *conversation
	generation uint64
	closed     bool
}

// conversation is a session of a loaded model, with what is optional: mute takes the place of what the model lacks.
type conversation struct {
	inference.Session
	inference.Speaker
	inference.VoiceCanceller
}

func converse(m inference.Model) (*conversation, error) {
	s, err := m.NewSession()
	if err != nil {
		return nil, fmt.Errorf("open a session with the model: %w", err)
	}
	c := &conversation{s, mute{}, mute{}}
	if speaker, ok := s.(inference.Speaker); ok {
		c.Speaker = speaker
	}
	if canceller, ok := s.(inference.VoiceCanceller); ok {
		c.VoiceCanceller = canceller
	}
	return c, nil
}

// mute is the voice of a model without one.
type mute struct{}

func (mute) Speak(context.Context, string, string, string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{}, inference.ErrNoVoice) }
}

func (mute) CancelVoice() {}

// begin starts the use of a model.
func (l *lease) begin(m inference.Model) (err error) {
	if l.manager != nil {
		return l.manager.use(l)
	}
	l.inner, err = converse(m)
	return err
}

// CancelVoice implements inference.VoiceCanceller for a loaded model.
func (l *lease) CancelVoice() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner != nil {
		l.inner.CancelVoice()
	}
}

// answer yields the answer of the model to a prompt.
func (l *lease) answer(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return l.ask(ctx, p.Urgent, func(ctx context.Context, c *conversation) iter.Seq2[inference.Chunk, error] {
		return c.Generate(ctx, p)
	})
}

// Speak implements inference.Speaker with the voice of the model, if it has one; it goes ahead of the prompts that wait, unless
// it goes behind live rooms.
func (l *lease) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return l.ask(ctx, !inference.IsBehind(ctx), func(ctx context.Context, c *conversation) iter.Seq2[inference.Chunk, error] {
		return c.Speak(ctx, text, voice, language)
	})
}

// ask waits for the model and a place, then yields what f asks the session of the loaded model for.
func (l *lease) ask(ctx context.Context, urgent bool,
	f func(ctx context.Context, c *conversation) iter.Seq2[inference.Chunk, error],
) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		pass := func() {}
		asked := ctx
		if k := l.manager; k != nil {
			var cancel context.CancelCauseFunc
			ctx, cancel = context.WithCancelCause(asked)
			defer cancel(nil)
			mine := &prompt{cancel: cancel, urgent: urgent, settled: make(chan struct{})}
			if err := k.enter(ctx, mine); err != nil {
				yield(inference.Chunk{}, err)
				return
			}
			defer k.leave(mine) // deferred in case the model or the caller panics
			pass = func() { k.pass(mine) }
		}
		inner, err := l.open()
		if err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		for c, err := range f(ctx, inner) {
			if err != nil && asked.Err() == nil && ctx.Err() != nil {
				err = context.Cause(ctx) // ended by the manager, not the caller
			}
			if c.TextEnds {
				pass()
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// observe passes a frame to the model if it is loaded, else drops it.
func (l *lease) observe(f inference.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.openLocked() != nil {
		return
	}
	l.inner.Observe(f)
}

// close ends the use. The end of the last one starts the time to the idle unload.
func (l *lease) close() error {
	if l.manager != nil {
		defer l.manager.left(l) // after a panic, too
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	inner := l.inner
	l.closed, l.inner = true, nil
	if inner == nil {
		return nil
	}
	return inner.Close()
}

// closeInner closes the session of a model that is about to be closed.
func (l *lease) closeInner() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner == nil {
		return
	}
	if err := l.inner.Close(); err != nil {
		l.manager.log.Warn().Err(err).Msg("closing a session of the model")
	}
	l.inner = nil
}

// open returns the session of the loaded model.
func (l *lease) open() (*conversation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.openLocked(); err != nil {
		return nil, err
	}
	return l.inner, nil
}

func (l *lease) openLocked() error {
	if l.closed {
		return ErrClosed
	}
	if l.manager == nil {
		return nil
	}
	l.manager.mu.Lock()
	model, generation, broken := l.manager.model, l.manager.generation, l.manager.broken
	l.manager.mu.Unlock()
	if model == nil || broken {
		return inference.ErrNotReady
	}
	if l.inner != nil && l.generation == generation {
		return nil
	}
	inner, err := converse(model)
	if err != nil {
		return err
	}
	l.inner, l.generation = inner, generation
	return nil
}

// enter waits for the model and a place.
func (k *ModelManager) enter(ctx context.Context, p *prompt) error {
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
func (k *ModelManager) pass(p *prompt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.pass(p)
}

// leave ends a waiting or running prompt.
func (k *ModelManager) leave(p *prompt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.end(p)
	if k.model != nil && k.model.Status().Phase == inference.PhaseFailed {
		k.breakLocked(k.model)
	}
	k.wake.Set()
}

// left removes a closed lease.
func (k *ModelManager) left(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.sessions[l]; !ok {
		return
	}
	delete(k.sessions, l)
	if len(k.sessions) == 0 {
		k.idleSince = time.Now()
	}
	k.wake.Set()
}
