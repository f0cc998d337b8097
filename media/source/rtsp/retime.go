package rtsp

import (
	"time"

	"github.com/pion/rtp"

	"touchline/media"
)

const (
	// retimeSpan is the length of one comparison of the clocks. A camera may send some seconds at once at its start, and
	// a network may hold them back, so retimeSpans in a row count.
	retimeSpan  = 2 * time.Second
	retimeSpans = 3
	// stillTime is the time after which a timestamp stands still, with stillMarkers ends of pictures.
	stillTime    = time.Second
	stillMarkers = 3
	retimeStep   = media.VideoClockRate / 1000
)

// retimer replaces timestamps of a camera whose clock is wrong, at less than two thirds or more than three halves of its
// rate, by the arrival. It reads no clock.
type retimer struct {
	wrong bool // timestamps are replaced
	still bool // a marker is all that ends a picture

	began   bool
	in      uint32    // newest timestamp
	since   time.Time // its first packet
	marked  bool      // the previous packet had a marker
	markers int       // with this timestamp

	from  time.Time // of the comparison
	ticks int64     // in it
	bad   int

	out, anchor uint32
	anchored    time.Time
}

// packet replaces the timestamp of the next packet if the clock is wrong.
func (r *retimer) packet(p *rtp.Packet, now time.Time) {
	fresh := !r.began || p.Timestamp != r.in || r.still && r.marked
	if !r.began {
		r.began, r.in, r.from, r.since = true, p.Timestamp, now, now
	}
	if p.Timestamp != r.in {
		r.ticks += int64(int32(p.Timestamp - r.in)) //nolint:gosec // modulo 2^32
		r.in, r.since, r.markers, r.still = p.Timestamp, now, 0, false
	}
	if !r.wrong {
		r.compare(now)
	}
	if r.marked = p.Marker; p.Marker {
		r.markers++
	}
	if !r.wrong {
		r.out = p.Timestamp
		return
	}
	if fresh {
		passed := now.Sub(r.anchored) * media.VideoClockRate / time.Second
		if to := r.anchor + uint32(passed); int32(to-r.out) > retimeStep { //nolint:gosec // modulo 2^32
			r.out = to
		} else {
			r.out += retimeStep
		}
	}
	p.Timestamp = r.out
}

// compare compares the clocks.
func (r *retimer) compare(now time.Time) {
	if now.Sub(r.since) >= stillTime && r.markers >= stillMarkers {
		r.wrong, r.still = true, true
	}
	if passed := now.Sub(r.from); passed >= retimeSpan {
		told := media.TicksToDuration(r.ticks, media.VideoClockRate)
		if 3*told < 2*passed || 2*told > 3*passed {
			r.bad++
		} else {
			r.bad = 0
		}
		r.wrong = r.wrong || r.bad >= retimeSpans
		r.from, r.ticks = now, 0
	}
	if r.wrong {
		r.anchor, r.anchored = r.out, now
	}
}
