package source

import (
	"slices"
	"time"
)

// KeyFrameLimit is the longest good interval of key frames: a new viewer waits up to
// that long for a picture.
const KeyFrameLimit = 2 * time.Second

const (
	// askSpacing is the time within which requests count as one.
	askSpacing = 400 * time.Millisecond
	// answerTime is the time in which a sender that answers requests sends its key frame.
	answerTime = time.Second
	// goodInRow is the number of short intervals after which the source is no longer slow.
	goodInRow = 3
	// lossyGaps gaps within lossySpan make a lossy source.
	lossySpan = 30 * time.Second
	lossyGaps = 3
)

// keyWatch finds sources whose key frames are more than KeyFrameLimit apart after two
// requests. Senders that answer requests may have longer intervals. A gap counts as a
// key frame, as the lost packets may have been one. It reads no clock.
type keyWatch struct {
	total         int       // requests since the source was opened
	asked         int       // requests since the newest key frame
	first, newest time.Time // of these requests
	gap           time.Time // the newest since the newest key frame, zero for none
	good          int
	slow          bool
}

// open begins a new stream, with the result for the previous one.
func (k *keyWatch) open() {
	*k = keyWatch{slow: k.slow}
}

// ask records a request for a key frame.
func (k *keyWatch) ask(now time.Time) {
	if k.asked > 0 && now.Sub(k.newest) < askSpacing {
		return
	}
	if k.asked == 0 {
		k.first = now
	}
	k.newest = now
	k.asked++
	k.total++
}

// missing records a gap.
func (k *keyWatch) missing(now time.Time) {
	k.gap, k.asked = now, 0
}

// key records a key frame. every is the interval from the previous one in media time, 0 when unknown; with a gap it
// is an upper bound.
func (k *keyWatch) key(now time.Time, every time.Duration) {
	switch {
	case every <= 0:
	case every <= KeyFrameLimit:
		if k.good++; k.good >= goodInRow {
			k.slow = false
		}
	default:
		k.good = 0
		known := k.gap.IsZero() || now.Sub(k.gap) > KeyFrameLimit
		if known && k.total >= 2 && k.asked > 0 && now.Sub(k.first) > answerTime {
			k.slow = true
		}
	}
	k.asked, k.gap = 0, time.Time{}
}

// check detects a missing key frame.
func (k *keyWatch) check(now time.Time) {
	if k.asked >= 2 && now.Sub(k.first) > KeyFrameLimit {
		k.slow, k.good = true, 0
	}
}

// lossWatch finds sources with repeated packet loss. It reads no clock.
type lossWatch struct {
	gaps  []time.Time // the newest ones
	lossy bool
}

// missing records a gap.
func (l *lossWatch) missing(now time.Time) {
	if len(l.gaps) == lossyGaps {
		l.gaps = slices.Delete(l.gaps, 0, 1)
	}
	l.gaps = append(l.gaps, now)
	l.check(now)
}

// check updates lossy.
func (l *lossWatch) check(now time.Time) {
	switch n := len(l.gaps); {
	case n == lossyGaps && now.Sub(l.gaps[0]) <= lossySpan:
		l.lossy = true
	case n == 0 || now.Sub(l.gaps[n-1]) > lossySpan:
		l.lossy = false
	}
}
