package worker

import "time"

// meterSpan is the least time a Meter looks back over, once it knows as much;
// it looks back over twice that at most.
const meterSpan = 2500 * time.Millisecond

// Meter turns a counter of time spent into a rate that a short burst does not
// move much. The zero value is ready. It is not safe for concurrent use.
type Meter struct {
	older, newer reading
}

type reading struct {
	at   time.Time
	used time.Duration
}

// Rate takes the counter's value now and says by how much it grew, in seconds
// a second, over the last seconds; 0 at first.
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
	return (used - m.older.used).Seconds() / elapsed.Seconds()
}
