// Package packet makes RTP packets of access units: it rewrites the packets of the delayed
// copy, splits payloads that are too large, packetises frames without packets, and
// converts the NTP time of sender reports.
//
// It owns no track, no clock and no queue.
package packet

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"

	"touchline/internal/ticks"
	"touchline/media"
)

// MaxPayload is the largest RTP payload, in bytes: with headers, SRTP and a TURN
// channel it is below the smallest usual path MTU.
const MaxPayload = 1188

// errNothing is returned for a frame without media.
var errNothing = errors.New("expected a frame with packets or data, got neither")

// Packer packetises access units without packets, with their PTS as timestamp. It is
// for one output track and not safe for concurrent use.
type Packer struct {
	seq     uint16
	base    uint32 // timestamp of PTS 0 of the epoch
	last    uint32 // timestamp of the newest frame
	lastAt  time.Time
	epoch   uint32
	started bool
	id      counter // PictureID of VP8 and VP9
}

// NewPacker returns a Packer whose first packet has the given sequence number
// and whose PTS 0 has the given timestamp.
func NewPacker(seq uint16, ts uint32) *Packer { return &Packer{seq: seq, base: ts} }

// Packets returns the packets of one frame, in order. The timestamps of a new epoch
// continue by the time since the previous frame.
func (p *Packer) Packets(f media.EncodedFrame, now time.Time) ([]*rtp.Packet, error) {
	payloads, err := packetise(nil, f, &p.id)
	if err != nil {
		return nil, fmt.Errorf("packetise %v frame: %w", f.Codec, err)
	}
	at := uint32(ticks.Count(f.PTS, media.VideoClockRate)) //nolint:gosec // modulo 2^32
	if p.started && f.Epoch != p.epoch {
		passed := ticks.Count(max(now.Sub(p.lastAt), 10*time.Millisecond), media.VideoClockRate)
		p.base = p.last + uint32(passed) - at //nolint:gosec // modulo 2^32
	}
	p.last = p.base + at
	p.started, p.epoch, p.lastAt = true, f.Epoch, now
	return assemble(payloads, &p.seq, p.last), nil
}

// assemble returns packets with the payloads of one frame, the last one with the
// marker, and advances the sequence number.
func assemble(payloads [][]byte, seq *uint16, ts uint32) []*rtp.Packet {
	store := make([]rtp.Packet, len(payloads))
	out := make([]*rtp.Packet, len(payloads))
	for i, p := range payloads {
		store[i] = rtp.Packet{
			Header:  rtp.Header{Version: 2, Marker: i == len(payloads)-1, SequenceNumber: *seq, Timestamp: ts},
			Payload: p,
		}
		out[i] = &store[i]
		*seq++
	}
	return out
}

// packetise appends the payloads of a frame's Data to out. The picture number of VP8
// and VP9 is from id.
func packetise(out [][]byte, f media.EncodedFrame, id *counter) ([][]byte, error) {
	var p rtp.Payloader
	switch f.Codec {
	case media.VP8:
		if len(f.Data) == 0 {
			break
		}
		n := id.advance(0)
		head := []byte{0x80 | 0x10, 0x80, 0x80 | byte(n>>8&0x7f), byte(n)} //nolint:gosec // the low bits
		for i, part := range pieces(f.Data, MaxPayload-len(head)) {
			if i == 1 {
				head[0] &^= 0x10
			}
			out = append(out, slices.Concat(head, part))
		}
		return out, nil
	case media.VP9:
		n := id.advance(0) & 0x7fff
		p = &codecs.VP9Payloader{InitialPictureIDFn: func() uint16 { return n }}
	case media.H264:
		// The payloader puts one set of each kind into one packet, and loses further ones.
		p = &codecs.H264Payloader{DisableStapA: bytes.Count(f.Data, []byte{0, 0, 1, 0x68})+bytes.Count(f.Data, []byte{0, 0, 1, 0x28}) > 1}
	case media.H265:
		p = &codecs.H265Payloader{}
	case media.AV1:
		p = &codecs.AV1Payloader{}
	case media.CodecUnknown:
		return out, errors.New("unknown codec")
	}
	var made [][]byte
	if p != nil && len(f.Data) > 0 {
		made = p.Payload(MaxPayload, f.Data)
	}
	if len(made) == 0 {
		return out, fmt.Errorf("malformed frame of %d bytes", len(f.Data))
	}
	return append(out, made...), nil
}

// Canonical returns an H264 access unit as the receiver of its packets joins it: with start codes of four bytes, and without the
// delimiters and the filler that are not sent. Encryption signs these bytes.
func Canonical(annexB []byte) []byte {
	code := []byte{0, 0, 1}
	out := make([]byte, 0, len(annexB)+16)
	_, rest, more := bytes.Cut(annexB, code)
	for more {
		var nal []byte
		nal, rest, more = bytes.Cut(rest, code)
		nal = bytes.TrimRight(nal, "\x00") // of the next start code
		const delimiter, filler = 9, 12
		if len(nal) > 0 && nal[0]&0x1f != delimiter && nal[0]&0x1f != filler {
			out = append(append(out, 0, 0, 0, 1), nal...)
		}
	}
	return out
}

// NTPTime converts the NTP timestamp of a sender report, in units of 2^-32 seconds
// since 1900 (RFC 3550 section 4).
func NTPTime(ntp uint64) time.Time {
	const to1970 = 2208988800 // seconds from 1900 to 1970
	nanos := (ntp & 0xffffffff) * uint64(time.Second) >> 32
	return time.Unix(int64(ntp>>32)-to1970, int64(nanos))
}
