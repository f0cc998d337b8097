package room

import (
	"math/rand/v2"
	"time"
)

const (
	firstDelay = 100 * time.Millisecond
	quickCap   = 2 * time.Second  // longest wait in the first minutes of an outage
	slowCap    = 15 * time.Second // and after them
	quickFor   = 3 * time.Minute
	// goodAfter is how long a connection must have stood for the next outage to start from nothing.
	goodAfter = 10 * time.Second
)

// backoff spaces the attempts of one outage. The zero value is ready.
type backoff struct {
	began   time.Time
	attempt int
}

// next returns how long to wait before the next attempt: doubled each time up
// to a cap, between half and all of it at random, so that many bots do not
// come back in step.
func (b *backoff) next(now time.Time) time.Duration {
	if b.began.IsZero() {
		b.began = now
	}
	limit := quickCap
	if now.Sub(b.began) > quickFor {
		limit = slowCap
	}
	d := min(firstDelay<<min(b.attempt, 10), limit)
	b.attempt++
	return d/2 + rand.N(d/2+1)
}

// reset ends the outage.
func (b *backoff) reset() { *b = backoff{} }
