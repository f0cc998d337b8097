package rtsp

import (
	"encoding/binary"

	"github.com/pion/rtp"

	"touchline/media"
)

// parameterSets adds the SDP's parameter sets to key frames without any: many cameras
// send them in the SDP only. It adds a packet and renumbers the following ones.
type parameterSets struct {
	codec   media.Codec
	payload []byte // an aggregation packet of the sets; nil when the SDP has none
	shift   uint16
	began   bool
	ts      uint32
	seen    bool // this access unit has sets
	added   bool // sets were added to it

	setsSeen, keySeen bool // in the stream
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
			p.payload = nil // all are needed
			break
		}
		p.payload = binary.BigEndian.AppendUint16(p.payload, uint16(len(s))) //nolint:gosec // checked above
		p.payload = append(p.payload, s...)
	}
	return p
}

// complete returns the packets that replace p. A nil receiver changes nothing.
func (s *parameterSets) complete(p *rtp.Packet) []*rtp.Packet {
	if s == nil {
		return []*rtp.Packet{p}
	}
	sets, key := s.look(p.Payload)
	s.setsSeen, s.keySeen = s.setsSeen || sets, s.keySeen || key
	if s.payload == nil {
		return []*rtp.Packet{p}
	}
	if !s.began || p.Timestamp != s.ts {
		s.began, s.ts, s.seen, s.added = true, p.Timestamp, false, false
	}
	s.seen = s.seen || sets
	if !key || s.seen || s.added {
		p.SequenceNumber += s.shift
		return []*rtp.Packet{p}
	}
	s.added = true
	lead := &rtp.Packet{Header: p.Header, Payload: s.payload}
	lead.Extension, lead.Extensions, lead.ExtensionProfile = false, nil, 0
	lead.Marker, lead.Padding = false, false
	lead.Header.PaddingSize = 0
	lead.SequenceNumber += s.shift
	s.shift++
	p.SequenceNumber += s.shift
	return []*rtp.Packet{lead, p}
}

// look reports whether a payload contains a parameter set, and whether a slice of a
// key frame begins in it.
func (s *parameterSets) look(b []byte) (sets, key bool) {
	header, shift, mask, aggregation, fragment := 1, 0, byte(0x1f), byte(h264StapA), byte(h264FuA)
	if s.codec == media.H265 {
		header, shift, mask, aggregation, fragment = 2, 1, 0x3f, h265AP, h265FU
	}
	if len(b) <= header {
		return false, false
	}
	add := func(t byte) {
		if s.codec == media.H265 {
			sets = sets || t == h265SPS || t == h265VPS
			key = key || t >= h265FirstIRAP && t <= h265LastIRAP
		} else {
			sets, key = sets || t == h264SPS, key || t == h264IDR
		}
	}
	switch t := b[0] >> shift & mask; {
	case t == aggregation:
		each(b[header:], func(nal []byte) { add(nal[0] >> shift & mask) })
	case t != fragment:
		add(t)
	case b[header]&0x80 != 0: // the first fragment
		add(b[header] & mask)
	}
	return sets, key
}

// each calls f for every complete NAL unit of an aggregation packet's body.
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
