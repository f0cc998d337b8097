package signaling

import (
	"cmp"
	"net/netip"
	"sync"
	"time"
)

// maxBuckets bounds how many addresses are remembered.
const maxBuckets = 4096

// Bounds are what one server lets strangers do. Zero values are those of its kind.
type Bounds struct {
	// MaxSessions bounds all sessions.
	MaxSessions int
	// PerMinute and Burst bound the POSTs of one address, and twenty times as many all other requests;
	// negative is no limit.
	PerMinute, Burst int
	// ConnectTime is how long a session may take to connect.
	ConnectTime time.Duration
}

// Or fills in what is not set.
func (b Bounds) Or(of Bounds) Bounds {
	return Bounds{
		MaxSessions: cmp.Or(b.MaxSessions, of.MaxSessions), PerMinute: cmp.Or(b.PerMinute, of.PerMinute),
		Burst: cmp.Or(b.Burst, of.Burst), ConnectTime: cmp.Or(b.ConnectTime, of.ConnectTime),
	}
}

// Limiter is a token bucket for each address, /64 networks of IPv6 being one.
type Limiter struct {
	perSecond float64
	burst     float64

	mu      sync.Mutex
	buckets map[netip.Addr]bucket
}

type bucket struct {
	level float64
	at    time.Time
}

// NewLimiter returns nil, which allows everything, for a negative rate.
func NewLimiter(perMinute, burst int) *Limiter {
	if perMinute < 0 || burst < 0 {
		return nil
	}
	return &Limiter{perSecond: float64(perMinute) / 60, burst: float64(burst), buckets: map[netip.Addr]bucket{}}
}

// Allow takes one token, or says how long to wait for it.
func (l *Limiter) Allow(who netip.Addr, now time.Time) (wait time.Duration, ok bool) {
	if l == nil {
		return 0, true
	}
	who = who.Unmap().WithZone("")
	if who.Is6() {
		if p, err := who.Prefix(64); err == nil {
			who = p.Addr()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[who]
	if !known {
		if len(l.buckets) >= maxBuckets {
			l.sweep(now)
		}
		if len(l.buckets) >= maxBuckets {
			return time.Minute, false // an avalanche
		}
		b = bucket{level: l.burst, at: now}
	}
	b.level = min(l.burst, b.level+l.perSecond*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	if ok = b.level >= 1; ok {
		b.level--
	} else if l.perSecond > 0 {
		wait = time.Duration((1 - b.level) / l.perSecond * float64(time.Second))
	} else {
		wait = time.Hour
	}
	l.buckets[who] = b
	return wait, ok
}

// sweep forgets addresses whose buckets are full again.
func (l *Limiter) sweep(now time.Time) {
	for who, b := range l.buckets {
		if b.level+l.perSecond*now.Sub(b.at).Seconds() >= l.burst {
			delete(l.buckets, who)
		}
	}
}
