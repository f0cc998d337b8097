package worker

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// maxSkew is the largest skew that is ignored: the Date header has whole seconds, and the answer takes time.
	maxSkew = 2 * time.Second
	// refusedSkew is the skew from which the server may refuse tokens.
	refusedSkew = 30 * time.Second
)

// serverClock measures the skew of the server's clock by the Date header of each answer.
type serverClock struct {
	next http.RoundTripper
	last atomic.Pointer[measuredSkew] // nil before the first
}

// measuredSkew is by how much the server's clock was ahead at a time. The clock here may be set since.
type measuredSkew struct {
	skew time.Duration
	at   time.Time
}

// RoundTrip implements http.RoundTripper.
func (c *serverClock) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.next.RoundTrip(r)
	if err == nil {
		c.measure(res.Header, time.Now())
	}
	return res, err //nolint:wrapcheck // a RoundTripper passes errors on
}

func (c *serverClock) measure(h http.Header, now time.Time) {
	if skew, ok := skewOf(h, now); ok {
		c.last.Store(&measuredSkew{skew, now})
	}
}

// now returns local by the server's clock.
func (c *serverClock) now(local time.Time) time.Time {
	m := c.last.Load()
	if m == nil {
		return local
	}
	return m.at.Add(local.Sub(m.at) + m.skew)
}

// skewOf returns by how much the clock of a Date header is ahead of now; 0 up to maxSkew.
func skewOf(h http.Header, now time.Time) (skew time.Duration, ok bool) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0, false
	}
	if skew = date.Sub(now); skew.Abs() <= maxSkew {
		skew = 0
	}
	return skew, true
}

// clockHint describes the skew of a server that refused a token; "" for a small one.
func clockHint(h http.Header, now time.Time) string {
	skew, ok := skewOf(h, now)
	if !ok || skew.Abs() < refusedSkew {
		return ""
	}
	side := "behind"
	if skew < 0 {
		side = "ahead of"
	}
	return fmt.Sprintf("; this machine's clock is %v %s the server's", skew.Abs().Round(time.Second), side)
}
