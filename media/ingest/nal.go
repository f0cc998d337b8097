package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pion/rtp"
)

// NAL unit types used here: H.264 table 7-1 and RFC 6184 section 5.2, H.265
// table 7-1 and RFC 7798 section 4.4.
const (
	h264IDR   = 5
	h264SEI   = 6
	h264SPS   = 7
	h264PPS   = 8
	h264StapA = 24
	h264FuA   = 28

	h265FirstIRAP = 16
	h265LastIRAP  = 21
	h265LastVCL   = 31
	h265VPS       = 32
	h265SPS       = 33
	h265PPS       = 34
	h265AP        = 48
	h265FU        = 49
)

var errFragment = errors.New("incomplete fragmentation unit")

// nalWriter collects NAL units as Annex B. Fragments are written directly to the
// access unit, so that a NAL unit is copied once.
type nalWriter struct {
	data  []byte
	start int  // of the open fragmented NAL unit
	open  bool // within a fragmented NAL unit
	seen  func(nal []byte)
}

// add writes a complete NAL unit.
func (w *nalWriter) add(nal []byte) {
	if len(nal) == 0 {
		return
	}
	w.data = append(w.data, 0, 0, 0, 1)
	at := len(w.data)
	w.data = append(w.data, nal...)
	w.seen(w.data[at:])
}

// fragment writes one piece of a fragmented NAL unit, with its rebuilt header at the
// first piece.
func (w *nalWriter) fragment(header []byte, first, last bool, piece []byte) error {
	if first == w.open || first && last {
		return errFragment
	}
	if first {
		w.open = true
		w.data = append(w.data, 0, 0, 0, 1)
		w.start = len(w.data)
		w.data = append(w.data, header...)
	}
	w.data = append(w.data, piece...)
	if last {
		w.open = false
		w.seen(w.data[w.start:])
	}
	return nil
}

// aggregate writes the NAL units of an aggregation packet's body, each after a 16-bit
// length.
func (w *nalWriter) aggregate(body []byte) error {
	for len(body) > 0 {
		if len(body) < 2 {
			return fmt.Errorf("expected a NAL unit's length, %d byte is left", len(body))
		}
		n := int(binary.BigEndian.Uint16(body))
		if n > len(body)-2 {
			return fmt.Errorf("expected a NAL unit of %d bytes, %d are left", n, len(body)-2)
		}
		w.add(body[2 : 2+n])
		body = body[2+n:]
	}
	return nil
}

// nalUnit is an access unit of NAL units.
type nalUnit struct {
	unit
	sets     []parameterSet // in this unit
	hasSPS   bool
	slices   int
	headless bool // the first slice is not the picture's first
	recovers bool // it has a recovery point
}

// RecoveryPoint reports whether an H264 NAL unit is supplemental enhancement information with a recovery point (H.264 section D.1.8): a
// decoder can start there though the picture is no IDR. Broadcasts (open GOP) and encoders with intra refresh have no other key frames.
func RecoveryPoint(nal []byte) bool {
	const recoveryPoint, trailing = 6, 0x80
	if len(nal) == 0 || nal[0]&0x1f != h264SEI {
		return false
	}
	for b := nal[1:]; len(b) > 1 && b[0] != trailing; {
		var kind, size int
		kind, b = seiNumber(b)
		if kind == recoveryPoint {
			return true
		}
		size, b = seiNumber(b)
		b = b[min(size, len(b)):]
	}
	return false
}

// seiNumber reads a payload's type or size (H.264 section 7.3.2.3.1).
func seiNumber(b []byte) (n int, rest []byte) {
	for i, v := range b {
		if n += int(v); v != 0xff {
			return n, b[i+1:]
		}
	}
	return n, nil
}

// unpackH264 follows RFC 6184 for packetization modes 0 and 1: single NAL units,
// STAP-A and FU-A.
func (u *unpacker) unpackH264(packets []*rtp.Packet, fresh bool) (unit, error) {
	var out nalUnit
	out.discardable = true
	w := nalWriter{data: make([]byte, 0, payloadBytes(packets)+8*len(packets))}
	w.seen = func(nal []byte) {
		if nal[0]&0x60 != 0 { // nal_ref_idc: a reference, or parameters
			out.discardable = false
		}
		switch t := nal[0] & 0x1f; {
		case t == h264SPS:
			out.hasSPS = true
			out.sets = append(out.sets, parameterSet{kind: t, nal: nal})
		case t == h264PPS:
			out.sets = append(out.sets, parameterSet{kind: t, nal: nal})
		case t == h264SEI:
			out.recovers = out.recovers || RecoveryPoint(nal)
		case t >= 1 && t <= h264IDR:
			if out.slices == 0 {
				out.key = t == h264IDR || out.recovers
				// first_mb_in_slice is 0 if the code is a single one bit.
				out.headless = len(nal) < 2 || nal[1]&0x80 == 0
			}
			out.slices++
		}
	}
	for _, p := range packets {
		b := p.Payload
		var err error
		switch t := b[0] & 0x1f; {
		case t == h264FuA:
			if len(b) < 3 {
				return unit{}, fmt.Errorf("expected a FU-A of 3 bytes or more, got %d", len(b))
			}
			header := [1]byte{b[0]&0xe0 | b[1]&0x1f}
			err = w.fragment(header[:], b[1]&0x80 != 0, b[1]&0x40 != 0, b[2:])
		case w.open:
			err = errFragment
		case t == h264StapA:
			err = w.aggregate(b[1:])
		case t >= 1 && t < h264StapA:
			w.add(b)
		default:
			err = fmt.Errorf("expected a NAL unit, STAP-A or FU-A, got type %d", t)
		}
		if err != nil {
			return unit{}, fmt.Errorf("read H264 payload: %w", err)
		}
	}
	return u.finishNAL(&out, &w, fresh, packets[0], []byte{h264StapA | 0x60}, h264Set)
}

// unpackH265 follows RFC 7798 without DONL, which WebRTC never uses.
func (u *unpacker) unpackH265(packets []*rtp.Packet, fresh bool) (unit, error) {
	var out nalUnit
	w := nalWriter{data: make([]byte, 0, payloadBytes(packets)+8*len(packets))}
	w.seen = func(nal []byte) {
		if len(nal) < 3 {
			return
		}
		switch t := nal[0] >> 1 & 0x3f; {
		case t == h265SPS:
			out.hasSPS = true
			out.sets = append(out.sets, parameterSet{kind: t, nal: nal})
		case t == h265VPS, t == h265PPS:
			out.sets = append(out.sets, parameterSet{kind: t, nal: nal})
		case t <= h265LastVCL:
			if out.slices == 0 {
				out.key = t >= h265FirstIRAP && t <= h265LastIRAP
				out.headless = nal[2]&0x80 == 0 // first_slice_segment_in_pic_flag
			}
			out.slices++
		}
	}
	for _, p := range packets {
		b := p.Payload
		if len(b) < 3 {
			return unit{}, fmt.Errorf("expected an H265 payload of 3 bytes or more, got %d", len(b))
		}
		var err error
		switch t := b[0] >> 1 & 0x3f; {
		case t == h265FU:
			header := [2]byte{b[0]&0x81 | b[2]&0x3f<<1, b[1]}
			err = w.fragment(header[:], b[2]&0x80 != 0, b[2]&0x40 != 0, b[3:])
		case w.open:
			err = errFragment
		case t == h265AP:
			err = w.aggregate(b[2:])
		case t < h265AP:
			w.add(b)
		default:
			err = fmt.Errorf("expected a NAL unit, AP or FU, got type %d", t)
		}
		if err != nil {
			return unit{}, fmt.Errorf("read H265 payload: %w", err)
		}
	}
	return u.finishNAL(&out, &w, fresh, packets[0], []byte{h265AP << 1, 1}, h265Set)
}

// finishNAL completes an access unit. A key frame without parameter sets gets the sets of
// an earlier unit, in its data and as an aggregation packet with the given header.
// read sets a parameter set's id and the unit's picture size.
func (u *unpacker) finishNAL(
	out *nalUnit, w *nalWriter, fresh bool, first *rtp.Packet, header []byte, read func(*parameterSet, *unit),
) (unit, error) {
	if w.open {
		return unit{}, errFragment
	}
	out.layers = 1
	out.picture = out.slices > 0
	if out.picture && u.decrypt != nil {
		var err error
		if w.data, err = u.decrypt(w.data); err != nil {
			return unit{}, fmt.Errorf("decrypt: %w", err)
		}
		out.headless = false // it was read from encrypted bytes, and the unit is complete
	}
	out.data = w.data
	if fresh && out.picture && (out.headless || out.key && !out.hasSPS && u.inKeys) {
		return unit{}, errStart
	}
	if err := u.remember(out, read); err != nil {
		return unit{}, err
	}
	if !out.key {
		return out.unit, nil
	}
	u.inKeys = out.hasSPS
	switch {
	case out.hasSPS:
	case len(u.params) == 0:
		out.key, out.setless = false, true // nothing can be decoded from here
	default:
		out.data = u.params.annexB(out.data)
		lead := &rtp.Packet{Header: first.Header, Payload: u.params.aggregate(header)}
		lead.Marker = false
		lead.SequenceNumber--
		lead.Extension, lead.Extensions, lead.ExtensionProfile = false, nil, 0
		out.lead = lead
	}
	return out.unit, nil
}
