package source

import "time"

// KeyFrameLimit is how far apart key frames may be: whoever joins waits that
// long for a picture at worst.
const KeyFrameLimit = 2 * time.Second

const (
	// askSpacing joins requests that come together.
	askSpacing = 400 * time.Millisecond
	// answerTime is in which a sender that heeds requests sends its key frame.
	answerTime = time.Second
	// goodInRow is how many short distances show that the camera was set right.
	goodInRow = 3
)

// keyWatch finds sources whose key frames stay more than KeyFrameLimit apart
// although two were asked for. Senders that answer requests may leave as much
// time between them as they like. It reads no clock.
type keyWatch struct {
	total         int       // requests since the source was opened
	asked         int       // since the newest key frame
	first, newest time.Time // of those
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

// key notes a key frame. every is its distance from the one before in media time, 0 when unknown.
func (k *keyWatch) key(now time.Time, every time.Duration) {
	switch {
	case every <= 0:
	case every <= KeyFrameLimit:
		if k.good++; k.good >= goodInRow {
			k.slow = false
		}
	default:
		k.good = 0
		if k.total >= 2 && k.asked > 0 && now.Sub(k.first) > answerTime {
			k.slow = true
		}
	}
	k.asked = 0
}

// check notes that time went by without a key frame.
func (k *keyWatch) check(now time.Time) {
	if k.asked >= 2 && now.Sub(k.first) > KeyFrameLimit {
		k.slow, k.good = true, 0
	}
}
