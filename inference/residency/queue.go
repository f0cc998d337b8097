package residency

import (
	"context"
	"slices"

	"touchline/inference"
)

// queue lets a number of prompts run and holds the rest in order, those that
// somebody waits for before batch work. It is a plain value under the Keeper's
// lock: whoever is let in, refused or cancelled, the next in line is looked at
// in the same step, so that no prompt can hold up those behind it.
type queue struct {
	open    bool // the model is there
	free    int  // places
	room    int  // for waiting
	running map[*prompt]struct{}
	// Interactive first, batch second; oldest first in each.
	lines [2][]*prompt
}

// prompt is one question in the queue or under way.
type prompt struct {
	batch  bool
	cancel context.CancelCauseFunc
	// settled is closed once the prompt may run, or err says why not.
	settled chan struct{}
	err     error
}

func (p *prompt) line() int {
	if p.batch {
		return 1
	}
	return 0
}

func (q *queue) waiting() int { return len(q.lines[0]) + len(q.lines[1]) }

// add puts a prompt in line, or lets it run at once. When the room is full,
// somebody's prompt takes the place of the newest batch one; else the prompt itself is refused.
// refused tells that one was.
func (q *queue) add(p *prompt) (refused bool) {
	q.lines[p.line()] = append(q.lines[p.line()], p)
	q.admit()
	if q.waiting() <= q.room {
		return false
	}
	victim := p
	if batch := q.lines[1]; len(batch) > 0 {
		victim = batch[len(batch)-1]
	}
	q.remove(victim)
	victim.settle(inference.ErrOverloaded)
	return true
}

// admit lets prompts run while there are places.
func (q *queue) admit() {
	for q.open && q.free > 0 && q.waiting() > 0 {
		line := 0
		if len(q.lines[0]) == 0 {
			line = 1
		}
		p := q.lines[line][0]
		q.lines[line] = slices.Delete(q.lines[line], 0, 1)
		q.free--
		if q.running == nil {
			q.running = map[*prompt]struct{}{}
		}
		q.running[p] = struct{}{}
		p.settle(nil)
	}
}

// leave takes a prompt out, wherever it is. Calling it again does nothing.
func (q *queue) leave(p *prompt) {
	if _, ok := q.running[p]; ok {
		delete(q.running, p)
		q.free++
		q.admit()
		return
	}
	q.remove(p)
}

func (q *queue) remove(p *prompt) {
	if i := slices.Index(q.lines[p.line()], p); i >= 0 {
		q.lines[p.line()] = slices.Delete(q.lines[p.line()], i, i+1)
	}
}

// fail refuses all that wait.
func (q *queue) fail(err error) {
	for i, line := range q.lines {
		for _, p := range line {
			p.settle(err)
		}
		q.lines[i] = nil
	}
}

func (p *prompt) settle(err error) {
	p.err = err
	close(p.settled)
}
