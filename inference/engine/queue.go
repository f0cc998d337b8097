package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"touchline/inference"
)

// queue runs a number of prompts at once and holds the others in order. The
// ModelManager's lock protects it. Each change admits waiting prompts in the same step.
type queue struct {
	open    bool // the model is loaded
	free    int  // places
	room    int  // the largest number of waiting prompts
	running map[*prompt]struct{}
	sounds  map[*prompt]struct{} // those that have given up their place: only sound is left of their answers
	line    []*prompt            // urgent ones, then the others, oldest first
}

// prompt is a waiting or running prompt.
type prompt struct {
	cancel context.CancelCauseFunc
	urgent bool
	// settled is closed when the prompt is admitted, or refused with err.
	settled chan struct{}
	err     error
}

func (q *queue) waiting() int { return len(q.line) }

// add queues a prompt and admits it if there is a place. If the line is too long, it
// refuses the last prompt in it.
func (q *queue) add(p *prompt) (refused bool) {
	at := len(q.line)
	if p.urgent {
		if i := slices.IndexFunc(q.line, func(o *prompt) bool { return !o.urgent }); i >= 0 {
			at = i
		}
	}
	q.line = slices.Insert(q.line, at, p)
	q.admit()
	if q.waiting() <= q.room {
		return false
	}
	last := q.line[len(q.line)-1]
	q.leave(last)
	last.settle(inference.ErrOverloaded)
	return true
}

// admit starts prompts while there are places.
func (q *queue) admit() {
	for q.open && q.free > 0 && q.waiting() > 0 {
		p := q.line[0]
		q.line = slices.Delete(q.line, 0, 1)
		q.free--
		if q.running == nil {
			q.running = map[*prompt]struct{}{}
		}
		q.running[p] = struct{}{}
		p.settle(nil)
	}
}

// idle reports whether no prompt needs the model.
func (q *queue) idle() bool { return len(q.running) == 0 && len(q.sounds) == 0 }

// pass gives the place of a running prompt to the next one.
func (q *queue) pass(p *prompt) {
	if _, ok := q.running[p]; !ok {
		return
	}
	if q.sounds == nil {
		q.sounds = map[*prompt]struct{}{}
	}
	q.sounds[p] = struct{}{}
	q.leave(p)
}

// end removes a prompt. Further calls do nothing.
func (q *queue) end(p *prompt) {
	delete(q.sounds, p)
	q.leave(p)
}

// leave removes a waiting or running prompt. Further calls do nothing.
func (q *queue) leave(p *prompt) {
	if _, ok := q.running[p]; ok {
		delete(q.running, p)
		q.free++
		q.admit()
		return
	}
	if i := slices.Index(q.line, p); i >= 0 {
		q.line = slices.Delete(q.line, i, i+1)
	}
}

// fail refuses all waiting prompts.
func (q *queue) fail(err error) {
	for _, p := range q.line {
		p.settle(err)
	}
	q.line = nil
}

func (p *prompt) settle(err error) {
	p.err = err
	close(p.settled)
}

// enter waits for the model and a place, which leave gives back. The returned context ends with the place, and with the manager.
func (k *ModelManager) enter(ctx context.Context, urgent bool) (context.Context, *prompt, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p := &prompt{cancel: cancel, urgent: urgent, settled: make(chan struct{})}
	if err := k.await(ctx, p); err != nil {
		k.leave(p) // if it was just admitted, its place becomes free
		return nil, nil, err
	}
	return ctx, p, nil
}

func (k *ModelManager) await(ctx context.Context, p *prompt) error {
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
		if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) {
			return cause
		}
		return ctx.Err()
	}
}

// pass admits the next prompt while the sound of the last one is still made.
func (k *ModelManager) pass(p *prompt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.pass(p)
}

// leave ends a waiting or running prompt.
func (k *ModelManager) leave(p *prompt) {
	p.cancel(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.end(p)
	if k.model != nil && k.model.Status().Phase == inference.PhaseFailed {
		k.breakLocked(k.model)
	}
	k.wake.Set()
}

// left removes a closed session.
func (k *ModelManager) left(s *Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.sessions[s]; !ok {
		return
	}
	delete(k.sessions, s)
	if len(k.sessions) == 0 {
		k.idleSince = time.Now()
	}
	k.wake.Set()
}
