package source

import "time"

// KeyFrameLimit is how far apart key frames may be: a new viewer waits that
// long for a picture at worst.
const KeyFrameLimit = 2 * time.Second

const (
	// askSpacing joins requests that come together.
	askSpacing = 400 * time.Millisecond
	// answerTime is in which a sender that heeds requests sends its key frame.
	answerTime = time.Second
	// goodInRow is how many short distances show that the camera was set right.
	goodInRow = 3
	// lossySpan is in which lossyGaps gaps make a way that loses packets. One costs the picture up to the next
	// key frame, and may be chance.
	lossySpan = 30 * time.Second
	lossyGaps = 3
)

// keyWatch finds sources whose key frames stay more than KeyFrameLimit apart
// although two were asked for. Senders that answer requests may leave as much
// time between them as they like. Where packets are missing there may have been
// a key frame, so a gap counts as one that came. It reads no clock.
type keyWatch struct {
	total         int       // requests since the source was opened
	asked         int       // since the newest key frame
	first, newest time.Time // of those
	gap           time.Time // the newest since the newest key frame, zero for none
	good          int
	slow          bool
}

// open begins a new stream; what was found of the one before holds until it is disproved.
func (k *keyWatch) open() {
	*k = keyWatch{slow: k.slow}
}

// ask notes a request for a key frame.
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

// missing notes that packets are missing.
func (k *keyWatch) missing(now time.Time) {
	k.gap, k.asked = now, 0
}

// key notes a key frame. every is its distance from the one before in media time, 0 when unknown. With a gap
// between them it is the most that it can have been.
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

// check notes that time went by without a key frame.
func (k *keyWatch) check(now time.Time) {
	if k.asked >= 2 && now.Sub(k.first) > KeyFrameLimit {
		k.slow, k.good = true, 0
	}
}

// lossWatch finds ways that lose packets again and again. It reads no clock.
type lossWatch struct {
	gaps  []time.Time // the newest ones
	lossy bool
}

// missing notes a gap.
func (l *lossWatch) missing(now time.Time) {
	if len(l.gaps) == lossyGaps {
		l.gaps = l.gaps[:copy(l.gaps, l.gaps[1:])]
	}
	l.gaps = append(l.gaps, now)
	l.check(now)
}

// check notes that time went by.
func (l *lossWatch) check(now time.Time) {
	switch n := len(l.gaps); {
	case n == lossyGaps && now.Sub(l.gaps[0]) <= lossySpan:
		l.lossy = true
	case n == 0 || now.Sub(l.gaps[n-1]) > lossySpan:
		l.lossy = false
	}
}
