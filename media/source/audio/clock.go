package audio

import (
	"time"

	"touchline/internal/ticks"
	"touchline/media/ingest"
	"touchline/media/source"
)

// Clock returns the capture times of an RTP stream's sound, without a transcoder's
// latency. It is not safe for concurrent use.
type Clock struct {
	rate   int64 // of the stream's timestamps, in Hz
	clock  ingest.Clock
	began  bool
	last   uint32 // timestamp
	ticks  int64  // the same, unwrapped, counted from the first
	origin int64  // the first, at 48 kHz
}

// farOff is the least step between timestamps that begins another stream.
const farOff = time.Minute

// NewClock makes a Clock for timestamps of a rate in Hz, which must be positive.
func NewClock(rate int) *Clock { return &Clock{rate: int64(rate)} }

// Packet records the timestamp of a packet and when it came.
func (c *Clock) Packet(timestamp uint32, at time.Time) {
	if step := int64(int32(timestamp - c.last)); !c.began || c.span(step).Abs() > farOff { //nolint:gosec // modulo 2^32
		*c = Clock{rate: c.rate, began: true, origin: int64(timestamp) * opusRate / c.rate}
	} else {
		c.ticks += step
	}
	c.last = timestamp
	c.clock.Map(c.span(c.ticks), at)
}

// SenderReport records the two clocks of an RTCP sender report.
func (c *Clock) SenderReport(ntp time.Time, timestamp uint32) {
	if !c.began {
		return
	}
	if ahead := int64(int32(timestamp - c.last)); c.span(ahead).Abs() <= farOff { //nolint:gosec // modulo 2^32
		c.clock.SenderReport(ntp, c.span(c.ticks+ahead))
	}
}

// Stamp sets the capture times of an Opus packet of the stream, which may be transcoded.
func (c *Clock) Stamp(o *source.Opus) {
	if !c.began {
		return
	}
	newest := c.origin + c.ticks*opusRate/c.rate
	ahead := newest - c.origin + int64(int32(o.Timestamp-uint32(newest))) //nolint:gosec // modulo 2^32
	pts := ticks.Duration(ahead, opusRate)
	o.Arrival, o.NTP = c.clock.At(pts), c.clock.NTP(pts)
}

func (c *Clock) span(count int64) time.Duration {
	return ticks.Duration(count, c.rate)
}
