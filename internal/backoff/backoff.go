// Package backoff computes the waits between retries: exponential, capped, with
// jitter, so that many clients do not retry in step.
//
// It reads no clock, draws no random number and does not wait.
package backoff

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// Backoff is the state of one outage. Set First and Max; the zero value of the
// rest is ready to use.
type Backoff struct {
	// First is the longest first wait. Each further wait is twice as long, up to Max.
	First, Max time.Duration
	// EarlyMax replaces Max during the first Early of an outage, because a restarted
	// server is back soon; 0 is Max from the start. It is at least First.
	EarlyMax, Early time.Duration

	began time.Time
	wait  time.Duration
}

// Next returns the wait before the next attempt with Jitter, by random in [0, 1).
// The first call begins the outage.
func (b *Backoff) Next(now time.Time, random float64) time.Duration {
	if b.began.IsZero() {
		b.began = now
	}
	limit := b.Max
	if b.EarlyMax > 0 && now.Sub(b.began) <= b.Early {
		limit = min(limit, max(b.First, b.EarlyMax))
	}
	b.wait = min(max(2*b.wait, b.First), limit)
	return Jitter(b.wait, random)
}

// Reset ends the outage.
func (b *Backoff) Reset() { b.began, b.wait = time.Time{}, 0 }

// steady is the age of a connection whose loss begins a new outage.
const steady = 10 * time.Second

// Server returns the Backoff of a connection to a LiveKit server: waits from first, up to 2 s in
// the first three minutes of an outage and up to most after them.
func Server(first, most time.Duration) Backoff {
	return Backoff{First: first, Max: most, EarlyMax: 2 * time.Second, Early: 3 * time.Minute}
}

// Lost is Next after the loss of a connection that stood for a time, 0 for a failed attempt. The
// loss of a steady connection begins a new outage.
func (b *Backoff) Lost(stood time.Duration, now time.Time, random float64) time.Duration {
	if stood > steady {
		b.Reset()
	}
	return b.Next(now, random)
}

// Jitter returns a duration between half of d and d, by random in [0, 1).
func Jitter(d time.Duration, random float64) time.Duration {
	return d/2 + time.Duration(random*float64(d-d/2))
}

// RetryAfter returns the wait that a refusal asks for: Retry-After in seconds or as a date (RFC 9110, section 10.2.3), or OpenAI's
// Retry-After-Ms; 0 without one. A date counts from the server's Date, as the clock here may be wrong. Some servers send parts of
// seconds. The caller bounds it.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	unit := time.Millisecond
	for _, value := range []string{h.Get("Retry-After-Ms"), h.Get("Retry-After")} {
		if n, err := strconv.ParseFloat(value, 64); err == nil && n >= 0 && n < math.MaxInt32 {
			return time.Duration(n * float64(unit))
		}
		unit = time.Second
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		return max(at.Sub(now), 0)
	}
	return 0
}
