// Package audio transcodes the sound of cameras to Opus, the codec of rooms: G.711 in
// this process, AAC by the program ffmpeg.
//
// It owns the encoder, and for AAC the ffmpeg process.
package audio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/g711"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media/source"
)

const (
	opusRate = 48000 // of RTP timestamps, at any rate of the encoder (RFC 7587 section 4.1)
	// perSecond is the number of packets in a second.
	perSecond = 50
	// maxPacket is the largest Opus packet of one frame (RFC 6716, section 3.2.1).
	maxPacket = 1275
	// maxPayload bounds one packet: a second and a half at the highest rate, in two channels.
	maxPayload = 3 * opusRate
)

// G711 transcodes G.711 (RFC 3551 section 4.5.14) to Opus. It is not safe for
// concurrent use.
type G711 struct {
	mulaw          bool
	rate, channels int
	enc            *opus.Encoder
	out            func(source.Opus)

	began   bool
	next    uint32  // timestamp that follows without a gap, at the source's rate
	pending []int16 // less than a frame
	packet  [maxPacket]byte
}

// NewG711 makes a transcoder for mu-law or A-law of a rate that Opus supports (8, 12,
// 16, 24 or 48 kHz), in one channel or two.
func NewG711(mulaw bool, rate, channels int, out func(source.Opus)) (*G711, error) {
	enc, err := opus.NewEncoder(rate, channels, opus.AppVoIP)
	if err != nil {
		return nil, fmt.Errorf("make an Opus encoder for %d channels of %d Hz: %w", channels, rate, err)
	}
	if err := enc.SetBitrate(24000 * channels); err != nil {
		return nil, fmt.Errorf("set the Opus bit rate: %w", err)
	}
	return &G711{mulaw: mulaw, rate: rate, channels: channels, enc: enc, out: out}, nil
}

// Write transcodes the payload of one RTP packet. After a gap the sound continues at
// the new timestamp.
func (g *G711) Write(payload []byte, timestamp uint32, received time.Time) {
	if len(payload) == 0 || len(payload) > maxPayload {
		return
	}
	marker := !g.began
	if g.began && timestamp != g.next {
		g.pending = g.pending[:0]
		marker = true
	}
	g.began = true
	g.next = timestamp + uint32(len(payload)/g.channels)   //nolint:gosec // at most maxPayload
	first := timestamp - uint32(len(g.pending)/g.channels) //nolint:gosec // less than a frame
	g.pending = append(g.pending, g.decode(payload)...)
	frame := g.rate / perSecond * g.channels
	for len(g.pending) >= frame {
		n, err := g.enc.Encode(g.pending[:frame], g.packet[:])
		if err == nil && n > 0 {
			g.out(source.Opus{
				Payload: bytes.Clone(g.packet[:n]), Timestamp: scale(first, g.rate), Marker: marker, Received: received,
			})
			marker = false
		}
		g.pending = append(g.pending[:0], g.pending[frame:]...)
		first += uint32(frame / g.channels) //nolint:gosec // a frame
	}
}

// scale converts a timestamp to the clock of Opus. For a rate that does not divide
// 48 kHz, timestamps jump at the wrap, once in a day.
func scale(timestamp uint32, rate int) uint32 {
	return timestamp * uint32(opusRate/rate) //nolint:gosec // at most 6: the encoder takes rates of 8 kHz and more
}

func (g *G711) decode(payload []byte) []int16 {
	var wide []byte // big endian
	if g.mulaw {
		var c g711.Mulaw
		c.Unmarshal(payload)
		wide = c
	} else {
		var c g711.Alaw
		c.Unmarshal(payload)
		wide = c
	}
	out := make([]int16, len(wide)/2)
	for i := range out {
		out[i] = int16(binary.BigEndian.Uint16(wide[2*i:])) //nolint:gosec // the same bits
	}
	return out
}
