package residency

import (
	"context"
	"slices"

	"touchline/inference"
)

// queue lets a number of prompts run and holds the rest in order. It is a plain
// value under the Keeper's lock. Each change admits the next in line in the
// same step, so that no prompt holds up those behind it.
type queue struct {
	open    bool // the model is there
	free    int  // places
	room    int  // for waiting
	running map[*prompt]struct{}
	line    []*prompt // oldest first
}

// prompt is one question in the queue or under way.
type prompt struct {
	cancel context.CancelCauseFunc
	// settled is closed once the prompt may run, or err is why it may not.
	settled chan struct{}
	err     error
}

func (q *queue) waiting() int { return len(q.line) }

// add puts a prompt in line, or lets it run at once. It refuses the prompt, and
// reports so, when too many wait.
func (q *queue) add(p *prompt) (refused bool) {
	q.line = append(q.line, p)
	q.admit()
	if q.waiting() <= q.room {
		return false
	}
	q.leave(p)
	p.settle(inference.ErrOverloaded)
	return true
}

// admit lets prompts run while there are places.
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

// leave takes a prompt out, waiting or running. Calling it again does nothing.
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

// fail refuses all that wait.
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
