package watch

import (
	"sync/atomic"
	"time"
)

// moment is a time that goroutines share. It keeps the monotonic clock reading, so a step of the wall clock does not change
// intervals. The zero value is the zero time.
type moment struct{ at atomic.Pointer[time.Time] }

func (m *moment) set(at time.Time) { m.at.Store(&at) }

func (m *moment) get() time.Time {
	if at := m.at.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
