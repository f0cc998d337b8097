package rtsp

import (
	"encoding/binary"

	"github.com/pion/rtp"

	"touchline/media"
)

// parameterSets puts the SDP's parameter sets in front of key frames that come
// without: many cameras send them in the SDP only. It adds a packet and
// numbers the following ones on, so that nothing looks lost.
type parameterSets struct {
	codec   media.Codec
	payload []byte // an aggregation packet of the sets; nil when the SDP has none
	shift   uint16
	began   bool
	ts      uint32
	seen    bool // this access unit has sets of its own
	given   bool // it was given ours
}

// NAL unit types: H.264 table 7-1 with RFC 6184, H.265 table 7-1 with RFC 7798.
const (
	h264IDR, h264SPS, h264StapA, h264FuA = 5, 7, 24, 28

	h265FirstIRAP, h265LastIRAP, h265VPS, h265SPS, h265AP, h265FU = 16, 21, 32, 33, 48, 49
)

func newParameterSets(codec media.Codec, sets ...[]byte) *parameterSets {
	p := &parameterSets{codec: codec, payload: []byte{h264StapA | 0x60}}
	if codec == media.H265 {
		p.payload = []byte{h265AP << 1, 1}
	}
	for _, s := range sets {
		if len(s) == 0 || len(s) > 0xffff {
			p.payload = nil // half a set is of no use
			break
		}
		p.payload = binary.BigEndian.AppendUint16(p.payload, uint16(len(s))) //nolint:gosec // checked above
		p.payload = append(p.payload, s...)
	}
	return p
}

// complete returns the packets to use in place of one. A nil receiver changes nothing.
func (s *parameterSets) complete(p *rtp.Packet) []*rtp.Packet {
	if s == nil || s.payload == nil {
		return []*rtp.Packet{p}
	}
	if !s.began || p.Timestamp != s.ts {
		s.began, s.ts, s.seen, s.given = true, p.Timestamp, false, false
	}
	sets, key := s.look(p.Payload)
	s.seen = s.seen || sets
	if !key || s.seen || s.given {
		p.SequenceNumber += s.shift
		return []*rtp.Packet{p}
	}
	s.given = true
	lead := &rtp.Packet{Header: p.Header, Payload: s.payload}
	lead.Extension, lead.Extensions, lead.ExtensionProfile = false, nil, 0
	lead.Marker, lead.Padding = false, false
	lead.Header.PaddingSize = 0
	lead.SequenceNumber += s.shift
	s.shift++
	p.SequenceNumber += s.shift
	return []*rtp.Packet{lead, p}
}

// look reports whether a payload holds a sequence parameter set, and whether a
// slice of a key frame begins in it.
func (s *parameterSets) look(b []byte) (sets, key bool) {
	if s.codec == media.H265 {
		return lookH265(b)
	}
	return lookH264(b)
}

func lookH264(b []byte) (sets, key bool) {
	if len(b) < 2 {
		return false, false
	}
	switch t := b[0] & 0x1f; t {
	case h264StapA:
		each(b[1:], func(nal []byte) {
			sets = sets || nal[0]&0x1f == h264SPS
			key = key || nal[0]&0x1f == h264IDR
		})
	case h264FuA:
		start := b[1]&0x80 != 0
		sets, key = start && b[1]&0x1f == h264SPS, start && b[1]&0x1f == h264IDR
	default:
		sets, key = t == h264SPS, t == h264IDR
	}
	return sets, key
}

func lookH265(b []byte) (sets, key bool) {
	if len(b) < 3 {
		return false, false
	}
	judge := func(t byte) (bool, bool) {
		return t == h265SPS || t == h265VPS, t >= h265FirstIRAP && t <= h265LastIRAP
	}
	switch t := b[0] >> 1 & 0x3f; t {
	case h265AP:
		each(b[2:], func(nal []byte) {
			s, k := judge(nal[0] >> 1 & 0x3f)
			sets, key = sets || s, key || k
		})
	case h265FU:
		if b[2]&0x80 != 0 {
			sets, key = judge(b[2] & 0x3f)
		}
	default:
		sets, key = judge(t)
	}
	return sets, key
}

// each calls f for every whole NAL unit of an aggregation packet's body.
func each(b []byte, f func(nal []byte)) {
	for len(b) > 2 {
		n := int(binary.BigEndian.Uint16(b))
		if n == 0 || n > len(b)-2 {
			return
		}
		f(b[2 : 2+n])
		b = b[2+n:]
	}
}
