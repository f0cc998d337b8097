package remote

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// holds is the largest ratio of the time to a first word to the shortest one at which the limit may grow.
	holds = 2
	// forget raises the shortest time with each answer, so that the limit adapts to a server that became slower.
	forget = 1.01
	// careful divides the growth near the limit at the last cut.
	careful = 20
	// cutRest is the least time between two cuts, since concurrent requests fail together.
	cutRest = time.Second
)

// limit bounds the concurrent requests. It is halved when the server is overloaded or too slow, and grows by one with each round of
// answers while their latency holds (additive increase, multiplicative decrease, as RFC 5681, section 3.1), in 5 % steps close to the
// limit at the last cut. Further requests wait in order.
type limit struct {
	most int // at least 1

	mu      sync.Mutex
	now     float64 // from 1 to most
	running int
	line    []*turn       // waiting: urgent ones, then the others, oldest first
	best    time.Duration // shortest time to a first word; 0 before the first
	cutAt   time.Time
	edge    float64 // the limit at the last cut; 0 before the first
}

// turn is a waiting request.
type turn struct {
	urgent   bool
	admitted chan struct{} // closed on admission
}

func newLimit(most int) *limit { return &limit{most: most, now: float64(most)} }

// acquire waits for a place, an urgent request before the others. It returns the context's error if that ends first.
func (l *limit) acquire(ctx context.Context, urgent bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if len(l.line) == 0 && l.running < int(l.now) {
		l.running++
		l.mu.Unlock()
		return nil
	}
	mine := &turn{urgent: urgent, admitted: make(chan struct{})}
	at := len(l.line)
	if i := slices.IndexFunc(l.line, func(o *turn) bool { return !o.urgent }); urgent && i >= 0 {
		at = i
	}
	l.line = slices.Insert(l.line, at, mine)
	l.mu.Unlock()
	select {
	case <-mine.admitted:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.line, mine); i >= 0 {
		l.line = slices.Delete(l.line, i, i+1)
	} else { // admitted at the same moment
		l.running--
		l.admitLocked()
	}
	return ctx.Err()
}

// release gives a place back. first is the time to the first word, 0 if there was no good answer.
func (l *limit) release(first time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.running >= int(l.now) // otherwise the latency does not show whether more requests are possible
	l.running--
	if first > 0 {
		if l.best = time.Duration(float64(l.best) * forget); l.best == 0 || first < l.best {
			l.best = first
		}
		if full && first <= holds*l.best {
			step := 1 / l.now
			if l.edge > 0 && l.now > l.edge-2 {
				step /= careful
			}
			l.now = min(l.now+step, float64(l.most))
		}
	}
	l.admitLocked()
}

// cut halves the limit, once for the failures of one moment. It returns the new limit, and false if nothing changed.
func (l *limit) cut(at time.Time) (now int, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := int(l.now)
	if !l.cutAt.IsZero() && at.Sub(l.cutAt) < cutRest {
		return was, false
	}
	l.cutAt, l.edge, l.now = at, l.now, max(1, l.now/2)
	return int(l.now), int(l.now) != was
}

func (l *limit) admitLocked() {
	for len(l.line) > 0 && l.running < int(l.now) {
		l.running++
		close(l.line[0].admitted)
		l.line = slices.Delete(l.line, 0, 1)
	}
}

// state returns the limit, and the numbers of running and waiting requests.
func (l *limit) state() (now, running, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.now), l.running, len(l.line)
}
