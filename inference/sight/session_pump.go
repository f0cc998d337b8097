package sight

import (
	"context"
	"sync"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
)

// effort is how much a look does. A room whose looks fall behind lowers it step by step.
type effort uint8

const (
	full      effort = iota
	wholeOnly        // without the parts of the picture
	halfRate         // at half the rate
	noText           // without text
)

const (
	// lateLooks in a row lower the effort, steadyLooks in a row raise it.
	lateLooks   = 2
	steadyLooks = 60
	// slack is the share of the interval by which a picture may come early.
	slack = 0.25
)

// pump passes one room's pictures to look, one at a time, in a goroutine of its own. The newest picture that is due replaces one that
// waits. A look holds one of the slots, which all rooms share.
type pump struct {
	look  func(f inference.Frame, e effort) error
	every time.Duration // interval of the looks, in media time
	slots chan struct{}
	wake  wake.Signal
	stop  chan struct{}
	done  chan struct{}

	mu       sync.Mutex
	began    bool
	last     inference.Frame  // the last picture that was due, without its pixels
	waiting  *inference.Frame // nil without one
	replaced bool             // waiting took the place of another picture
	busy     chan struct{}    // closed when no picture waits or is looked at; nil then
	effort   effort
	late     int
	steady   int
	err      error // of the last look
}

func newPump(slots chan struct{}, every time.Duration, look func(inference.Frame, effort) error) *pump {
	p := &pump{
		look: look, every: every, slots: slots, wake: wake.New(), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go p.run()
	return p
}

// offer takes a picture if it is due, or with force if it is new. It does not wait.
func (p *pump) offer(f inference.Frame, force bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dueLocked(f) && (!force || f.PTS <= p.last.PTS) {
		return
	}
	p.began, p.last = true, inference.Frame{PTS: f.PTS, Epoch: f.Epoch}
	p.replaced = p.waiting != nil && p.waiting.Epoch == f.Epoch
	p.waiting = &f
	if p.busy == nil {
		p.busy = make(chan struct{})
	}
	p.wake.Set()
}

func (p *pump) dueLocked(f inference.Frame) bool {
	every := p.every
	if p.effort >= halfRate {
		every *= 2
	}
	gap := f.PTS - p.last.PTS
	return !p.began || f.Epoch != p.last.Epoch || float64(gap) >= (1-slack)*float64(every)
}

// settle waits until all pictures that were offered are looked at, and returns the error of the last look.
func (p *pump) settle(ctx context.Context) error {
	p.mu.Lock()
	busy := p.busy
	p.mu.Unlock()
	if busy != nil {
		select {
		case <-busy:
		case <-p.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return p.failure()
}

// failure returns the error of the last look.
func (p *pump) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// close ends the goroutine and waits for it.
func (p *pump) close() {
	close(p.stop)
	p.mu.Lock()
	p.waiting = nil
	p.mu.Unlock()
	<-p.done
}

func (p *pump) run() {
	defer close(p.done)
	for {
		select {
		case <-p.stop:
			return
		case <-p.wake:
		}
		select {
		case <-p.stop:
			return
		case p.slots <- struct{}{}:
		}
		if f, e, ok := p.take(); ok {
			p.finish(rescue.Call(func() error { return p.look(f, e) }))
		}
		<-p.slots
	}
}

// take returns the picture that waits, and the effort of its look; false after close.
func (p *pump) take() (inference.Frame, effort, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		return inference.Frame{}, 0, false
	}
	f := *p.waiting
	p.waiting = nil
	if p.replaced {
		p.late, p.steady = p.late+1, 0
	} else {
		p.late, p.steady = 0, p.steady+1
	}
	switch {
	case p.late >= lateLooks && p.effort < noText:
		p.effort, p.late = p.effort+1, 0
	case p.steady >= steadyLooks && p.effort > full:
		p.effort, p.steady = p.effort-1, 0
	}
	p.replaced = false
	return f, p.effort, true
}

// finish ends a look. The next picture may wait already.
func (p *pump) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if p.waiting == nil {
		close(p.busy)
		p.busy = nil
	}
}
