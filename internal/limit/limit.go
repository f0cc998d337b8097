// Package limit bounds what clients do and hold: a rate limiter with a token bucket for each key, and places for what is open at once. It
// also finds what clients sent before a standstill of the process.
//
// It owns the buckets and the places. It reads no clock, and only Detention waits.
package limit

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxKeys is the largest number of buckets of a Limiter. Each further one replaces an old bucket.
	maxKeys = 4096
	// sample is the number of buckets compared to find an old one.
	sample = 16
)

// Limiter is a token bucket for each key. It is safe for concurrent use. A nil
// Limiter allows everything.
type Limiter[K comparable] struct {
	perSecond rate.Limit
	burst     int

	mu      sync.Mutex
	buckets map[K]bucket
}

type bucket struct {
	*rate.Limiter

	at time.Time
}

// New returns a limiter that adds perSecond tokens a second to each bucket, up to
// burst, its initial level. A negative value returns nil.
func New[K comparable](perSecond float64, burst int) *Limiter[K] {
	if perSecond < 0 || burst < 0 {
		return nil
	}
	return &Limiter[K]{perSecond: rate.Limit(perSecond), burst: burst, buckets: map[K]bucket{}}
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
		b.Limiter = rate.NewLimiter(l.perSecond, l.burst)
	}
	if now.Before(b.at) { // of requests at the same time: the bucket would be filled for that time again
		now = b.at
	}
	b.at = now
	l.buckets[key] = b
	r := b.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return min(wait, time.Hour), wait == 0
}

// makeRoom drops the least recently used of a few random buckets. A full scan for
// each new key would let clients cause load.
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

// Network returns the key of a peer's address: an IPv4 address unchanged, an IPv6
// address as its /64 network, the usual size of one subscriber.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
