// Package media defines pictures and sound: encoded access units, decoded pictures,
// PCM, and their three times.
//
// The three times are:
//
//   - PTS, media time: the source's RTP clock, unwrapped, from the first access unit
//     of an epoch;
//   - NTP, the wall clock of the capture, from RTCP sender reports, zero if unknown;
//   - Arrival, the PTS mapped to the local monotonic clock by the smallest transit,
//     without network jitter.
package media

import (
	"fmt"
	"strings"
	"time"

	"github.com/pion/rtp"

	"touchline/internal/ticks"
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

// ParseCodec reads a MIME type ("video/VP8") or a name ("vp8"), ignoring case.
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

// EncodedFrame is one access unit: the data of one picture. It is shared and read-only.
type EncodedFrame struct {
	Codec    Codec
	KeyFrame bool // a decoder can start here
	// Discardable is set if the source marks the access unit as not referenced by others.
	Discardable bool

	// PTS is media time since the epoch's first access unit.
	PTS time.Duration
	// NTP is the wall clock of the capture, zero if unknown.
	NTP time.Time
	// Arrival is PTS on the local clock, without network jitter.
	Arrival time.Time
	// Received is when the last packet came.
	Received time.Time

	// Epoch changes whenever PTS restarts: another track, another SSRC, a restarted
	// source. Frames of different epochs are independent.
	Epoch uint32

	// Width and Height in pixels, of the highest layer; 0 before the first access
	// unit of the epoch with a size.
	Width, Height int

	// Turn is the quarter turns, clockwise, that make the picture upright where the transport says so, not the stream.
	Turn uint8

	// SpatialLayers is 1 for ordinary streams, more for VP9 and AV1 SVC.
	SpatialLayers int

	// Data is the decoder's input: Annex B for H264 and H265, the frame for VP8, the
	// frames of all layers for VP9, OBUs with size fields for AV1.
	Data []byte

	// Packets are its RTP packets, in order and without SFU padding; nil if the source
	// was not RTP.
	Packets []*rtp.Packet
}

// VideoFrame is a decoded picture: packed 8-bit RGB, no padding between rows. It is
// shared and read-only.
type VideoFrame struct {
	PTS     time.Duration
	NTP     time.Time
	Arrival time.Time
	Epoch   uint32

	Width, Height int
	// Pix has Width*Height*3 bytes, R G B, top row first.
	Pix []byte
}

// PCM is mono 16-bit sound.
type PCM struct {
	Rate    int // samples per second
	Samples []int16
}

// Duration returns the playing time of the samples.
func (p PCM) Duration() time.Duration {
	if p.Rate <= 0 {
		return 0
	}
	return ticks.Duration(int64(len(p.Samples)), int64(p.Rate))
}
