package window

import (
	"time"

	"touchline/media"
)

// maxSlack bounds the shift of a sample to a key frame.
const maxSlack = 500 * time.Millisecond

// Grid selects the access units whose pictures are sampled: one every 1/fps of media
// time. Where key frames are rarer than samples, a sample is shifted by up to a
// quarter of that, half a second at most, to a key frame, which saves decoding the
// access units between the previous sample and that key frame. The zero Grid begins
// with the next access unit.
type Grid struct {
	started bool
	next    time.Duration // when the next sample is due
	key     time.Duration // the last key frame
	keyGap  time.Duration // between the last two, 0 while unknown
	keys    bool          // there was a key frame
}

// Take reports whether f is sampled at fps pictures a second. It is called for all
// access units of one epoch, in order.
func (g *Grid) Take(f media.EncodedFrame, fps float64) bool {
	if f.KeyFrame {
		if g.keys {
			g.keyGap = f.PTS - g.key
		}
		g.key, g.keys = f.PTS, true
	}
	if fps <= 0 {
		return false
	}
	step := time.Duration(float64(time.Second) / fps)
	slack := min(step/4, maxSlack)
	if g.keyGap < step*3/2 {
		slack = 0 // a key frame is always near; the rate must not follow theirs
	}
	switch {
	case !g.started || f.PTS-g.next > 2*step: // restart after a gap
		g.started, g.next = true, f.PTS+step
		return true
	case f.KeyFrame && slack > 0 && f.PTS >= g.next-slack:
		g.next = f.PTS + step
		return true
	case f.PTS < g.next:
		return false
	case f.PTS < g.next+slack && (g.key+g.keyGap-g.next).Abs() <= slack:
		return false // a key frame is about to come
	}
	g.next += step
	return true
}
