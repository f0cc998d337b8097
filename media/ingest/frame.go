package ingest

import (
	"errors"
	"time"

	"github.com/pion/rtp"

	"touchline/media"
)

// isPadding reports whether a packet has no media. SFUs send padding as probes, before
// the first key frame and in place of dropped packets; some leave the padding in the
// payload, as zeros and the count, or with a payload as long as the padding.
func isPadding(pkt *rtp.Packet) bool {
	n := len(pkt.Payload)
	if n == 0 {
		return true
	}
	if !pkt.Padding {
		return false
	}
	last := pkt.Payload[n-1]
	if int(last) == n && (int(pkt.Header.PaddingSize) == n || int(pkt.PaddingSize) == n) {
		return true
	}
	for _, b := range pkt.Payload[:n-1] {
		if b != 0 {
			return false
		}
	}
	return true
}

// take adds a packet to its access unit. Calls are in order.
func (a *Assembler) take(out []media.EncodedFrame, pkt *rtp.Packet, at time.Time) []media.EncodedFrame {
	if a.tsKnown && pkt.Timestamp == a.tsLast {
		if a.finished {
			// More of a unit that was completed by its marker: the sender
			// marks slices or layers, not pictures.
			a.tails++
			a.finished = false
			a.stats.Broken++
			a.fresh = true
			a.dirty = true
		}
	} else {
		if len(a.unit) > 0 {
			out = a.finish(out, false)
		}
		a.advance(pkt.Timestamp, at)
	}
	if a.unit == nil {
		a.unit = make([]*rtp.Packet, 0, a.lastLen+1)
	}
	a.unit = append(a.unit, pkt)
	a.unitBytes += len(pkt.Payload)
	if len(a.unit) == 1 || at.After(a.unitTime) {
		a.unitTime = at
	}
	if a.unitBytes > maxUnitBytes || len(a.unit) > maxUnitPackets {
		a.gap()
		return out
	}
	if pkt.Marker && a.tails < tailLimit {
		out = a.finish(out, true)
		a.finished = true
	}
	return out
}

// advance updates the unwrapped timestamp, or starts a new epoch when the timestamp
// jumped by more than the elapsed time.
func (a *Assembler) advance(ts uint32, at time.Time) {
	a.finished = false
	if a.tsKnown {
		passed := max(0, at.Sub(a.tsAt))
		diff := int64(int32(ts - a.tsLast)) //nolint:gosec // modulo 2^32
		if passed > time.Hour {
			// The timestamp may have wrapped: expect the elapsed time.
			want := int64(passed/time.Second) * a.rate
			diff = want + int64(int32(ts-a.tsLast-uint32(want))) //nolint:gosec // modulo 2^32
		}
		if d := a.duration(diff); d < -jumpLimit || d > passed+jumpLimit {
			a.epoch++
			a.stats.Restarts++
			a.opts.Log.Info().Float64("jump_s", d.Seconds()).Uint32("epoch", a.epoch).Msg("timestamps restarted")
			sr, ntp, rtpTime := a.srKnown, a.srNTP, a.srRTP
			a.reset()
			a.srKnown, a.srNTP, a.srRTP = sr, ntp, rtpTime
			a.fresh = false // no packet is missing before it
		} else {
			a.ticks += diff
		}
	}
	a.tsKnown, a.tsLast, a.tsAt = true, ts, at
	a.applySenderReport()
}

// cutShort reports whether a picture lacks its end although no packet is missing: an
// SFU that switches simulcast layers may stop within a picture and renumber. Only a
// missing marker shows it, if the sender sets markers. VP9 and AV1 have their own end
// flags, and SFUs rewrite their markers with the layers.
func (a *Assembler) cutShort(marked bool) bool {
	if marked {
		a.marked++
		return false
	}
	trusted := a.marked >= markersTrusted
	a.marked = 0
	return trusted && a.opts.Codec != media.VP9 && a.opts.Codec != media.AV1
}

// errTruncated is an access unit without its end.
var errTruncated = errors.New("truncated")

// finish appends the collected access unit to out if it can be decoded. marked
// is true if the unit ended by its marker.
func (a *Assembler) finish(out []media.EncodedFrame, marked bool) []media.EncodedFrame {
	packets, received, fresh := a.unit, a.unitTime, a.fresh
	a.unit, a.unitBytes, a.fresh = nil, 0, false
	a.lastLen = len(packets)
	pts := a.duration(a.ticks)

	u, err := a.unpack.unpack(packets, fresh)
	if err == nil && u.picture && a.cutShort(marked) {
		err = errTruncated
	}
	if err != nil {
		a.stats.Broken++
		a.dirty = true
		a.opts.Log.Debug().Err(err).Int("packets", len(packets)).Msg("access unit dropped")
		return out
	}
	if u.width > 0 && (u.width < blankSide || u.height < blankSide) {
		// The next picture refers to this one.
		a.stats.Blanks++
		a.dirty = true
		return out
	}
	arrival := a.clock.Map(pts, received)
	if !u.picture {
		return out
	}
	if a.dirty && !u.key {
		a.stats.wait(u)
		return out
	}
	a.dirty = false
	if u.width > 0 {
		a.width, a.height = u.width, u.height
	}
	if u.key || u.layers > a.layers {
		a.layers = u.layers
	}
	a.stats.Frames++
	if u.key {
		a.stats.KeyFrames++
	}
	switch {
	case a.opts.Decrypt != nil:
		packets = nil
	case u.lead != nil:
		packets = append([]*rtp.Packet{u.lead}, packets...)
	}
	return append(out, media.EncodedFrame{
		Codec:         a.opts.Codec,
		KeyFrame:      u.key,
		Discardable:   u.discardable,
		PTS:           pts,
		NTP:           a.clock.NTP(pts),
		Arrival:       arrival,
		Received:      received,
		Epoch:         a.epoch,
		Width:         a.width,
		Height:        a.height,
		SpatialLayers: a.layers,
		Data:          u.data,
		Packets:       packets,
	})
}
