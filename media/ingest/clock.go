package ingest

import (
	"math"
	"time"
)

// Parameters of the clock. The window is long enough to contain a few packets without
// queueing delay, and short enough that a drift of 200 ppm moves the minimum by only
// 2 ms.
const (
	clockBuckets    = 40
	clockBucketSpan = 250 * time.Millisecond // times clockBuckets: a window of 10 s
	clockRecent     = 8                      // buckets that distinguish a shift from a stall: 2 s
	clockSettling   = 2 * time.Second        // media time of fast changes
	clockStep       = time.Millisecond       // largest change by one frame after that
	clockShift      = 500 * time.Millisecond // a larger difference is a shift, not drift or jitter
	clockAttack     = time.Second            // time constant towards a smaller transit
	clockRelease    = 10 * time.Second       // time constant towards a larger one
	clockLead       = time.Second            // bounds the result of Map after the arrival
)

// Clock maps the media time of one epoch to the local clock: PTS plus the smallest
// transit of the last ten seconds, changed gradually. Network jitter is not in it, and
// drift between the two clocks is followed.
//
// It reads no clock and is not safe for concurrent use. The zero value is ready. Each
// epoch needs a new Clock.
type Clock struct {
	started bool
	ref     time.Time     // local time of transit 0
	first   time.Duration // PTS of the first frame
	newest  time.Duration // largest PTS seen
	transit time.Duration // the mapping: local time is ref + PTS + transit

	buckets [clockBuckets]clockBucket

	srKnown bool
	srPTS   time.Duration
	srNTP   time.Time
}

// clockBucket holds the smallest transit of one span of local time.
type clockBucket struct {
	index int64 // of the span
	used  bool
	min   time.Duration
}

// Map records a frame's media time and the arrival of its last packet, and returns the
// media time on the local clock, at most a second after at. Between frames with rising
// PTS the result rises by at least half of the PTS step, within that bound. A step of the
// wall clock changes its wall time only.
func (c *Clock) Map(pts time.Duration, at time.Time) time.Time {
	if !c.started {
		c.started = true
		c.ref = at
		c.first, c.newest = pts, pts
		c.transit = -pts
		c.note(0, c.transit)
		return at
	}
	since := at.Sub(c.ref)
	c.ref = at.Add(-since) // the same moment as the wall clock shows it now, which may have been set
	c.note(int64(since/clockBucketSpan), since-pts)
	if step := pts - c.newest; step > 0 {
		c.newest = pts
		c.follow(int64(since/clockBucketSpan), step)
	}
	// Timestamps that run ahead must not delay later frames.
	if lead := since - pts - c.transit; lead < -clockLead {
		c.transit += lead + clockLead
	}
	return c.At(pts)
}

// At maps a media time without recording it. Before the first Map it returns the zero
// time.
func (c *Clock) At(pts time.Duration) time.Time {
	if !c.started {
		return time.Time{}
	}
	return c.ref.Add(pts + c.transit)
}

// SenderReport records the clocks of an RTCP sender report (RFC 3550 section 6.4.1),
// with its RTP time converted to media time.
func (c *Clock) SenderReport(ntp time.Time, pts time.Duration) {
	c.srKnown, c.srNTP, c.srPTS = true, ntp, pts
}

// NTP returns the wall clock of the capture at a media time, by the newest sender
// report; the zero time without one.
func (c *Clock) NTP(pts time.Duration) time.Time {
	if !c.srKnown {
		return time.Time{}
	}
	return c.srNTP.Add(pts - c.srPTS)
}

// note records a transit.
func (c *Clock) note(index int64, transit time.Duration) {
	b := &c.buckets[((index%clockBuckets)+clockBuckets)%clockBuckets]
	if !b.used || b.index != index {
		*b = clockBucket{index: index, used: true, min: transit}
		return
	}
	b.min = min(b.min, transit)
}

// smallest returns the smallest transit of the last n buckets.
func (c *Clock) smallest(index, n int64) time.Duration {
	least := time.Duration(math.MaxInt64)
	for i := range c.buckets {
		b := &c.buckets[i]
		if b.used && b.index > index-n && b.index <= index {
			least = min(least, b.min)
		}
	}
	return least
}

// follow moves the mapping towards the smallest transit, by the media time since the
// last move.
func (c *Clock) follow(index int64, step time.Duration) {
	off := c.smallest(index, clockBuckets) - c.transit
	if recent := c.smallest(index, clockRecent) - c.transit; recent > clockShift && c.fullRecent(index) {
		// For two seconds all frames came late: the source's clock paused. Waiting
		// for the window would make every frame late.
		c.transit += recent
		c.forget(index - clockRecent)
		return
	}
	most := min(clockStep, step/2)
	tau := clockRelease
	if off < 0 {
		tau = clockAttack
		if off < -clockShift || c.newest-c.first < clockSettling {
			// The mapping is new or wrong: media time may run at double speed.
			most, tau = step/2, 0
		}
	}
	move := off
	if tau > 0 {
		move = time.Duration(float64(off) * -math.Expm1(-float64(step)/float64(tau)))
	}
	c.transit += max(-most, min(most, move))
}

// fullRecent reports whether frames cover the recent span, as a single late frame
// after a pause is no evidence of a shift.
func (c *Clock) fullRecent(index int64) bool {
	n := 0
	for i := range c.buckets {
		b := &c.buckets[i]
		if b.used && b.index > index-clockRecent && b.index <= index {
			n++
		}
	}
	return n >= clockRecent/2
}

// forget empties every bucket up to and including index.
func (c *Clock) forget(index int64) {
	for i := range c.buckets {
		if c.buckets[i].index <= index {
			c.buckets[i].used = false
		}
	}
}
