// Package media is the vocabulary of pictures and sound: encoded access
// units, decoded pictures, PCM, and the three times that travel with them.
//
// It owns no behaviour beyond what its types need and imports no sibling.
//
// Three times, never mixed:
//
//   - PTS, media time: what the source's RTP clock says, unwrapped, counted
//     from the first access unit of an epoch;
//   - NTP, the wall clock of the capture, from RTCP sender reports, zero when
//     unknown;
//   - Arrival, the PTS mapped to the local monotonic clock by the smallest
//     transit seen (drift followed), so that network jitter is not in it.
package media

import (
	"fmt"
	"strings"
	"time"

	"github.com/pion/rtp"
)

// Codec names a video codec by its RTP payload format.
type Codec uint8

// The video codecs that LiveKit carries.
const (
	CodecUnknown Codec = iota
	VP8                // RFC 7741
	VP9                // RFC 9628
	H264               // RFC 6184
	H265               // RFC 7798
	AV1                // AV1 RTP payload specification 1.0
)

// String returns the codec's name as SDP writes it.
func (c Codec) String() string {
	switch c {
	case VP8:
		return "VP8"
	case VP9:
		return "VP9"
	case H264:
		return "H264"
	case H265:
		return "H265"
	case AV1:
		return "AV1"
	case CodecUnknown:
	}
	return "unknown"
}

// MimeType returns "video/" and the codec's SDP name.
func (c Codec) MimeType() string { return "video/" + c.String() }

// ParseCodec reads a mime type ("video/VP8") or a bare name ("vp8"), without
// regard to case.
func ParseCodec(s string) (Codec, error) {
	name := strings.ToUpper(strings.TrimPrefix(strings.ToLower(s), "video/"))
	for _, c := range []Codec{VP8, VP9, H264, H265, AV1} {
		if c.String() == name {
			return c, nil
		}
	}
	return CodecUnknown, fmt.Errorf("expected a video codec (VP8, VP9, H264, H265 or AV1), got %q", s)
}

// VideoClockRate is the RTP clock of every video payload format, in Hz.
const VideoClockRate = 90000

// EncodedFrame is one access unit: everything that belongs to one picture.
// It is read-only once handed on; several stages share it.
type EncodedFrame struct {
	Codec    Codec
	KeyFrame bool // a decoder can start here
	// Discardable: the source says that no other access unit is decoded by means of this one.
	Discardable bool

	// PTS is media time since the epoch's first access unit.
	PTS time.Duration
	// NTP is the capture's wall clock, zero when the source never said.
	NTP time.Time
	// Arrival is PTS on the local clock, free of network jitter.
	Arrival time.Time
	// Received is when the last packet really came.
	Received time.Time

	// Epoch changes whenever PTS starts anew: another track, another SSRC, a
	// restarted source. Frames of different epochs have nothing in common.
	Epoch uint32

	// Width and Height in pixels, of the highest layer; 0 when this access
	// unit does not say and no earlier one of the epoch did.
	Width, Height int

	// SpatialLayers is 1 for ordinary streams, more for VP9 and AV1 SVC.
	SpatialLayers int

	// Data is what a decoder eats: Annex B for H264 and H265, the frame for
	// VP8, all layers' frames one after another for VP9, OBUs with size
	// fields for AV1.
	Data []byte

	// Packets are the RTP packets that carried it, in order and without SFU
	// padding; nil if the source was not RTP.
	Packets []*rtp.Packet
}

// VideoFrame is one decoded picture: packed 8-bit RGB, no padding between
// rows. It is read-only once handed on.
type VideoFrame struct {
	PTS     time.Duration
	NTP     time.Time
	Arrival time.Time
	Epoch   uint32

	Width, Height int
	// Pix holds Width*Height*3 bytes, R G B, top row first.
	Pix []byte
}

// PCM is mono 16-bit sound.
type PCM struct {
	Rate    int // samples per second
	Samples []int16
}

// Duration is the playing time of the samples.
func (p PCM) Duration() time.Duration {
	if p.Rate <= 0 {
		return 0
	}
	return TicksToDuration(int64(len(p.Samples)), int64(p.Rate))
}
