package room

import (
	"cmp"
	"math/rand/v2"
	"time"
)

const (
	// The settings' defaults.
	firstDelay = 100 * time.Millisecond
	slowCap    = 15 * time.Second
	// quickCap is the longest wait in the first minutes of an outage, which quickFor counts: a server that is
	// started again is back within seconds.
	quickCap = 2 * time.Second
	quickFor = 3 * time.Minute
	// goodAfter is how long a connection must have stood for the next outage to start from nothing.
	goodAfter = 10 * time.Second
)

// backoff spaces the attempts of one outage.
type backoff struct {
	first, most time.Duration // the first wait and the longest; firstDelay and slowCap when 0
	began       time.Time
	attempt     int
}

// next returns how long to wait before the next attempt: doubled each time up
// to a cap, between half and all of it at random, so that many bots do not
// come back in step.
func (b *backoff) next(now time.Time) time.Duration {
	if b.began.IsZero() {
		b.began = now
	}
	first, limit := cmp.Or(b.first, firstDelay), cmp.Or(b.most, slowCap)
	if now.Sub(b.began) <= quickFor {
		// Somebody who sets a longer first wait means it.
		limit = min(limit, max(first, quickCap))
	}
	d := first
	for range b.attempt {
		if d >= limit {
			break
		}
		d *= 2
	}
	d = min(d, limit)
	b.attempt++
	return d/2 + rand.N(d/2+1)
}

// reset ends the outage.
func (b *backoff) reset() { b.began, b.attempt = time.Time{}, 0 }
