package worker

import (
	"math/rand/v2"
	"time"
)

const (
	// firstWait and mostWait bound the wait between two attempts to reach the server.
	firstWait = 100 * time.Millisecond
	mostWait  = 10 * time.Second
	// quickMost is the longest wait in the first minutes of an outage: a server that is started again is back soon.
	quickMost = 2 * time.Second
	quickFor  = 3 * time.Minute
)

// backoff spaces attempts: doubled each time up to a cap, and between half and
// all of that at random, so that many workers do not come back in step.
type backoff struct {
	began   time.Time
	attempt int
}

func (b *backoff) next(now time.Time) time.Duration {
	if b.began.IsZero() {
		b.began = now
	}
	most := mostWait
	if now.Sub(b.began) < quickFor {
		most = quickMost
	}
	d := min(firstWait<<min(b.attempt, 16), most)
	b.attempt++
	return jitter(d)
}

// jitter is between half and all of d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
