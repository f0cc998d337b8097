package control

import (
	"sync"
	"time"
)

const (
	// stoodStill is the time without a check from which the process stood still, as by SIGSTOP or in a frozen container.
	stoodStill = 30 * time.Second
	// drainTime is how long requests are refused after that: the system had kept some from before.
	drainTime = 2 * time.Second
)

// standstill finds requests that may be as old as a time in which the process stood still. The zero value knows none.
type standstill struct {
	mu             sync.Mutex
	checked, until time.Time
}

// reset begins anew, for a connection that has no requests yet.
func (s *standstill) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked, s.until = time.Time{}, time.Time{}
}

// check is called all the time while requests may come.
func (s *standstill) check(now time.Time) {
	s.stale(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = now
}

// stale reports whether a request that is read now may be old.
func (s *standstill) stale(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checked.IsZero() && now.Sub(s.checked) > stoodStill {
		s.until = now.Add(drainTime)
	}
	return now.Before(s.until)
}
