package limit

import (
	"sync"
	"time"
)

const (
	// StoodStill is the time without a check from which the process stood still, as by SIGSTOP or in a frozen container.
	StoodStill = 30 * time.Second
	// DrainTime is how long clients are refused after that: the system had kept requests and packets from before.
	DrainTime = 2 * time.Second
)

// Standstill finds requests and sound that may be as old as a time in which the process stood still. The zero value knows none. It is safe
// for concurrent use.
type Standstill struct {
	mu      sync.Mutex
	checked time.Time
	fresh   time.Time // what came before is stale
}

// Reset begins anew, for a connection that has no requests yet.
func (s *Standstill) Reset(now time.Time) {
	s.Stale(now, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Time{}
	if s.fresh.After(now) {
		s.fresh = now
	}
}

// Check is called every second or more often, by the goroutine whose absence shows a standstill.
func (s *Standstill) Check(now time.Time) {
	s.Stale(now, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = now
}

// Stale reports whether what came at a time may be from before the last standstill. A request that is read now came now.
func (s *Standstill) Stale(came, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checked.IsZero() && now.Sub(s.checked) > StoodStill {
		s.fresh = now.Add(DrainTime)
	}
	return came.Before(s.fresh)
}
