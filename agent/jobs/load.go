package jobs

import (
	"sync"
	"time"

	"touchline/agent/worker"
)

// engineUse adds up the time that cycles of all rooms spent in the engines.
type engineUse struct {
	mu    sync.Mutex
	now   float64 // shares of an engine in use; powers of two, so that sums are exact
	since time.Time
	spent time.Duration // of a whole engine
	meter worker.Meter
}

// change adds the share of an engine that a cycle uses; a negative share ends the use.
func (u *engineUse) change(now time.Time, by float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.countLocked(now)
	u.now += by
}

func (u *engineUse) countLocked(now time.Time) {
	if !u.since.IsZero() {
		u.spent += time.Duration(min(u.now, 1) * float64(now.Sub(u.since)))
	}
	u.since = now
}

// load returns the share of the engines that was in use over the last seconds.
func (u *engineUse) load(now time.Time) float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.countLocked(now)
	return u.meter.Rate(now, u.spent)
}
