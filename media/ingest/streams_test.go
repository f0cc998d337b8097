package ingest_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/rtp/codecs/av1/obu"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/ingest"
)

// splitNAL cuts Annex B into NAL units.
func splitNAL(b []byte) [][]byte {
	var out [][]byte
	for _, part := range bytes.Split(b, []byte{0, 0, 1}) {
		if part = bytes.TrimRight(part, "\x00"); len(part) > 0 {
			out = append(out, part)
		}
	}
	return out
}

// obus cuts a temporal unit into OBU type and body, without delimiters.
func obus(tb testing.TB, b []byte) [][]byte {
	tb.Helper()
	var out [][]byte
	for len(b) > 0 {
		h, err := obu.ParseOBUHeader(b)
		require.NoError(tb, err)
		require.True(tb, h.HasSizeField)
		n, used, err := obu.ReadLeb128(b[h.Size():])
		require.NoError(tb, err)
		end := h.Size() + int(used) + int(n)
		if h.Type != obu.OBUTemporalDelimiter {
			out = append(out, append([]byte{byte(h.Type)}, b[h.Size()+int(used):end]...))
		}
		b = b[end:]
	}
	return out
}

// payloader returns a fresh packetiser.
func payloader(codec media.Codec) rtp.Payloader {
	switch codec {
	case media.VP8:
		return &codecs.VP8Payloader{EnablePictureID: true}
	case media.VP9:
		return &codecs.VP9Payloader{InitialPictureIDFn: func() uint16 { return 0x7ff0 }}
	case media.H264:
		return &codecs.H264Payloader{}
	case media.H265:
		return &codecs.H265Payloader{}
	case media.AV1, media.CodecUnknown:
	}
	return &codecs.AV1Payloader{}
}

// truth is one access unit and its packets as they were sent.
type truth struct {
	data    []byte
	packets []*rtp.Packet
	ts      uint32
}

// packetise makes packets at 30 fps from the given sequence number and
// timestamp on.
func packetise(codec media.Codec, units [][]byte, seq uint16, ts uint32, mtu uint16) []truth {
	p := payloader(codec)
	var out []truth
	for _, u := range units {
		tr := truth{data: u, ts: ts}
		parts := p.Payload(mtu, u)
		for i, b := range parts {
			tr.packets = append(tr.packets, &rtp.Packet{
				Header:  rtp.Header{Version: 2, SequenceNumber: seq, Timestamp: ts, Marker: i == len(parts)-1, SSRC: 7},
				Payload: b,
			})
			seq++
		}
		out = append(out, tr)
		ts += 3000
	}
	return out
}

// clone copies a packet, because Push takes ownership.
func clone(p *rtp.Packet) *rtp.Packet {
	q := *p
	q.Payload = bytes.Clone(p.Payload)
	return &q
}

// fakeVP8 makes VP8 frames without an encoder: valid headers, random rest.
func fakeVP8(r *rand.Rand, n, gop, maxSize int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		b := make([]byte, 12+r.IntN(maxSize))
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		if i%gop == 0 {
			copy(b, []byte{b[0] &^ 1, b[1], b[2], 0x9d, 1, 0x2a, 0x40, 0x01, 0xb4, 0x00}) // 320x180
		} else {
			b[0] |= 1
		}
		out[i] = b
	}
	return out
}

// pushAll pushes every packet at its frame's time and collects the units.
func pushAll(a *ingest.Assembler, frames []truth) []media.EncodedFrame {
	var out []media.EncodedFrame
	for i, f := range frames {
		at := start().Add(time.Duration(i) * time.Second / 30)
		for _, p := range f.packets {
			out = append(out, a.Push(clone(p), at)...)
		}
	}
	return out
}
