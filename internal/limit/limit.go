// Package limit is a rate limiter: a token bucket for each key.
//
// It owns the buckets and their number; it reads no clock and waits for
// nothing. What a caller without a token gets is the caller's decision.
package limit

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// maxKeys bounds the buckets that a Limiter keeps. Beyond it, a bucket that was not used lately is dropped.
	maxKeys = 4096
	// sample is the number of buckets compared to choose it.
	sample = 16
)

// Limiter is a token bucket for each key. It is safe for concurrent use. A nil
// Limiter allows everything.
type Limiter[K comparable] struct {
	perSecond, burst float64

	mu      sync.Mutex
	buckets map[K]bucket
}

type bucket struct {
	level float64
	at    time.Time
}

// New returns a limiter that adds perSecond tokens a second to each bucket, up
// to burst, with which a bucket begins. A negative value returns nil.
func New[K comparable](perSecond, burst float64) *Limiter[K] {
	if perSecond < 0 || burst < 0 {
		return nil
	}
	return &Limiter[K]{perSecond: perSecond, burst: burst, buckets: map[K]bucket{}}
}

// Allow takes one token of the key's bucket, or returns false and the time until
// there is one.
func (l *Limiter[K]) Allow(key K, now time.Time) (wait time.Duration, ok bool) {
	if l == nil {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[key]
	if !known {
		l.makeRoom()
		b = bucket{level: l.burst, at: now}
	}
	b.level = min(l.burst, b.level+l.perSecond*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	switch {
	case b.level >= 1:
		b.level--
		ok = true
	case l.perSecond > 0:
		wait = time.Duration((1 - b.level) / l.perSecond * float64(time.Second))
	default:
		wait = time.Hour
	}
	l.buckets[key] = b
	return wait, ok
}

// makeRoom drops one bucket: of a few at random, the one that was used least
// recently. A whole pass at each new key would be work that strangers can ask for.
func (l *Limiter[K]) makeRoom() {
	if len(l.buckets) < maxKeys {
		return
	}
	var oldest K
	var at time.Time
	seen := 0
	for key, b := range l.buckets {
		if seen == 0 || b.at.Before(at) {
			oldest, at = key, b.at
		}
		if seen++; seen == sample {
			break
		}
	}
	delete(l.buckets, oldest)
}

// Network is the key of a peer's address: an IPv4 address as it is, an IPv6
// address as its /64 network, which is what one subscriber has.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
