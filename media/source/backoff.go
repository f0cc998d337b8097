package source

import "time"

// How long a source that is not there is waited for between two attempts.
const (
	backoffFirst = 100 * time.Millisecond
	backoffSoon  = time.Second     // the most, while the outage is young
	backoffYoung = 5 * time.Minute // how long it is young
	backoffLate  = 15 * time.Second
	// settled is how long a source must have been live for its next outage to be a new one.
	settled = 5 * time.Second
)

// Backoff is the wait before each attempt: doubled from 100 ms up to 1 s in
// the first five minutes of an outage, 15 s afterwards, less a jitter of up to
// a quarter. The zero value is ready. It reads no clock.
type Backoff struct {
	step  time.Duration
	since time.Time // of the outage
}

// Next returns the wait before the next attempt; random is in [0, 1).
func (b *Backoff) Next(now time.Time, random float64) time.Duration {
	most := backoffSoon
	switch {
	case b.since.IsZero():
		b.since = now
	case now.Sub(b.since) >= backoffYoung:
		most = backoffLate
	}
	b.step = min(max(2*b.step, backoffFirst), most)
	if most == backoffLate {
		b.step = most
	}
	return b.step - time.Duration(float64(b.step)*0.25*random)
}

// Reset says that the outage is over.
func (b *Backoff) Reset() { *b = Backoff{} }
