package ingest

import (
	"errors"
	"fmt"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/vp9"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"

	"touchline/media"
)

// maxSide is the largest accepted width or height, in pixels, of untrusted input.
const maxSide = 16384

// errStart is returned for an access unit that does not begin with a frame's start.
var errStart = errors.New("expected the start of a frame, got the middle of one")

// errEnd is returned for an access unit that lacks a frame's end.
var errEnd = errors.New("incomplete frame: its end is missing")

// unit is a depacketised access unit.
type unit struct {
	data          []byte
	key           bool
	picture       bool // more than parameter sets
	discardable   bool // no other unit refers to this one
	setless       bool // a key frame without parameter sets, so none
	width, height int  // 0 if the unit has no size
	layers        int  // spatial layers of the stream, 0 if unknown

	// lead is a packet to send before it: earlier parameter sets that a decoder
	// needs to start here.
	lead *rtp.Packet
}

// unpacker depacketises access units. It keeps state for later units of the epoch:
// parameter sets and layer sizes.
type unpacker struct {
	codec   media.Codec
	decrypt func([]byte) ([]byte, error) // nil without encryption

	vp8     codecs.VP8Packet
	vp9     codecs.VP9Packet
	sizes   [][2]int // VP9: width and height of each spatial layer
	params  params   // H264, H265
	inKeys  bool     // the last key frame had parameter sets
	av1Seq  av1Sequence
	haveSeq bool
}

// unpack depacketises one access unit. fresh is set if the packets before it are
// missing or unknown: its first packet then has to be the start of a frame.
func (u *unpacker) unpack(packets []*rtp.Packet, fresh bool) (unit, error) {
	if u.decrypt != nil && u.codec != media.H264 && u.codec != media.H265 {
		return unit{}, fmt.Errorf("expected H264 or H265 to decrypt, got %v", u.codec)
	}
	switch u.codec {
	case media.VP8:
		return u.unpackVP8(packets)
	case media.VP9:
		return u.unpackVP9(packets)
	case media.H264:
		return u.unpackH264(packets, fresh)
	case media.H265:
		return u.unpackH265(packets, fresh)
	case media.AV1:
		return u.unpackAV1(packets)
	case media.CodecUnknown:
	}
	return unit{}, fmt.Errorf("expected a codec that can be depacketised, got %v", u.codec)
}

// payloadBytes returns the length of the packets' payloads.
func payloadBytes(packets []*rtp.Packet) int {
	n := 0
	for _, p := range packets {
		n += len(p.Payload)
	}
	return n
}

// plausible returns its arguments, or zeros if they are no picture size.
func plausible(w, h int) (width, height int) {
	if w <= 0 || h <= 0 || w > maxSide || h > maxSide {
		return 0, 0
	}
	return w, h
}

// unpackVP8 follows RFC 7741 for the descriptor and RFC 6386 section 9.1 for
// the frame header.
func (u *unpacker) unpackVP8(packets []*rtp.Packet) (unit, error) {
	out := unit{data: make([]byte, 0, payloadBytes(packets)), picture: true, discardable: true, layers: 1}
	for i, p := range packets {
		part, err := u.vp8.Unmarshal(p.Payload)
		if err != nil {
			return unit{}, fmt.Errorf("read VP8 descriptor: %w", err)
		}
		if i == 0 && (u.vp8.S == 0 || u.vp8.PID != 0) {
			return unit{}, errStart
		}
		out.discardable = out.discardable && u.vp8.N == 1
		out.data = append(out.data, part...)
	}
	d := out.data
	if len(d) < 3 {
		return unit{}, fmt.Errorf("expected a VP8 frame of 3 bytes or more, got %d", len(d))
	}
	if d[0]&1 != 0 {
		return out, nil
	}
	if len(d) < 10 || d[3] != 0x9d || d[4] != 0x01 || d[5] != 0x2a {
		return unit{}, errors.New("VP8 key frame without a start code")
	}
	out.key, out.discardable = true, false
	out.width, out.height = plausible((int(d[7])<<8|int(d[6]))&0x3fff, (int(d[9])<<8|int(d[8]))&0x3fff)
	return out, nil
}

// unpackVP9 follows RFC 9628. All spatial layers of a picture are one unit,
// one after another.
func (u *unpacker) unpackVP9(packets []*rtp.Packet) (unit, error) {
	out := unit{data: make([]byte, 0, payloadBytes(packets)), picture: true, layers: 1}
	top := 0
	ended := true
	for i, p := range packets {
		u.vp9 = codecs.VP9Packet{}
		part, err := u.vp9.Unmarshal(p.Payload)
		if err != nil {
			return unit{}, fmt.Errorf("read VP9 descriptor: %w", err)
		}
		if i == 0 && !u.vp9.B {
			return unit{}, errStart
		}
		if u.vp9.B != ended {
			return unit{}, errEnd
		}
		ended = u.vp9.E
		sid := int(u.vp9.SID)
		top = max(top, sid)
		if u.vp9.V {
			u.takeSizes()
		}
		if i == 0 {
			if key, w, h := vp9Key(part); key && sid == 0 {
				out.key = true
				out.width, out.height = w, h
				if !u.vp9.V {
					u.sizes = nil
				}
			}
		}
		out.data = append(out.data, part...)
	}
	if len(out.data) == 0 {
		return unit{}, errors.New("expected a VP9 frame, got descriptors only")
	}
	if !ended {
		return unit{}, errEnd
	}
	out.layers = max(top+1, len(u.sizes))
	if top < len(u.sizes) {
		if w, h := plausible(u.sizes[top][0], u.sizes[top][1]); w > 0 {
			out.width, out.height = w, h
		}
	}
	return out, nil
}

// takeSizes keeps the layer sizes of the latest scalability structure.
func (u *unpacker) takeSizes() {
	u.sizes = make([][2]int, int(u.vp9.NS)+1)
	for i := range u.sizes {
		if u.vp9.Y && i < len(u.vp9.Width) && i < len(u.vp9.Height) {
			u.sizes[i] = [2]int{int(u.vp9.Width[i]), int(u.vp9.Height[i])}
		}
	}
}

// vp9Key reports whether a VP9 frame is a key frame, and its size.
func vp9Key(frame []byte) (key bool, width, height int) {
	var h vp9.Header
	if h.Unmarshal(frame) != nil || h.ShowExistingFrame || h.NonKeyFrame {
		return false, 0, 0
	}
	width, height = plausible(h.Width(), h.Height())
	return true, width, height
}
