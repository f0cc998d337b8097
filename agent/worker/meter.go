package worker

import "time"

// meterSpan is the shortest time over which a Meter averages. The longest is twice as long.
const meterSpan = 2500 * time.Millisecond

// Meter turns a counter of busy time into an average rate. The zero value is ready. It
// is not safe for concurrent use.
type Meter struct {
	older, newer reading
}

type reading struct {
	at   time.Time
	used time.Duration
}

// Rate records the counter's value and returns its growth over the last seconds, in seconds per second. It begins at 0.
func (m *Meter) Rate(now time.Time, used time.Duration) float64 {
	switch {
	case m.newer.at.IsZero():
		m.older, m.newer = reading{now, used}, reading{now, used}
	case now.Sub(m.newer.at) >= meterSpan:
		defer func() { m.older, m.newer = m.newer, reading{now, used} }()
	}
	elapsed := now.Sub(m.older.at)
	if elapsed <= 0 || used < m.older.used {
		return 0
	}
	return (used - m.older.used).Seconds() / max(elapsed, meterSpan).Seconds()
}
