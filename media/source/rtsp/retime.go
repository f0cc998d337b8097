package rtsp

import (
	"time"

	"github.com/pion/rtp"

	"touchline/internal/ticks"
	"touchline/media"
)

const (
	// retimeSpan is the length of one comparison of the clocks. A camera may send some seconds at once at its start, and
	// a network may hold them back, so retimeSpans with the same result count.
	retimeSpan  = 2 * time.Second
	retimeSpans = 3
	// A timestamp stands still if it has stillMarkers ends of pictures, at least markerSpacing apart, over stillTime.
	// Slices of one picture may have markers too, but come together.
	stillTime     = 500 * time.Millisecond
	stillMarkers  = 6
	markerSpacing = 20 * time.Millisecond
	retimeStep    = media.VideoClockRate / 1000
)

// retimer replaces timestamps of a camera whose clock is wrong, by a quarter of its rate or more, by the arrival. It reads
// no clock.
type retimer struct {
	wrong bool // timestamps are replaced
	still bool // markers end pictures, not timestamps

	began    bool
	in       uint32    // newest timestamp
	since    time.Time // its first packet
	marked   bool      // the previous packet had a marker
	markers  int       // with this timestamp
	markedAt time.Time // the newest of these

	from  time.Time // of the comparison
	ticks int64     // in it
	bad   int       // results in a row: fast ones are positive

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
		r.in, r.since, r.markers = p.Timestamp, now, 0
	}
	if !r.wrong {
		r.compare(now)
	}
	if r.marked = p.Marker; p.Marker && (r.markers == 0 || now.Sub(r.markedAt) >= markerSpacing) {
		r.markers++
		r.markedAt = now
	}
	if !r.wrong {
		r.out = p.Timestamp
		return
	}
	if fresh {
		passed := ticks.Count(now.Sub(r.anchored), media.VideoClockRate)
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
		told := ticks.Duration(r.ticks, media.VideoClockRate)
		switch {
		case 4*told > 5*passed:
			r.bad = max(r.bad, 0) + 1
		case 5*told < 4*passed:
			r.bad = min(r.bad, 0) - 1
		default:
			r.bad = 0
		}
		r.wrong = r.wrong || r.bad >= retimeSpans || r.bad <= -retimeSpans
		r.from, r.ticks = now, 0
	}
	if r.wrong {
		r.anchor, r.anchored = r.out, now
	}
}
