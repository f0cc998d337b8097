package ingest_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/ingest"
)

// seeds are valid payloads for each parser.
func seeds() map[media.Codec][][]byte {
	r := rand.New(rand.NewPCG(1, 1))
	return map[media.Codec][][]byte{
		media.VP8: packetsOf(packetise(media.VP8, fakeVP8(r, 3, 2, 300), 1, 1, 200)),
		media.VP9: {
			vp9Layer{begin: true, end: true, key: true, ss: true, body: vp9Body(true, 320, 180, 1)}.payload(3),
			vp9Layer{begin: true, end: true, body: vp9Body(false, 0, 0, 1)}.payload(4),
			{0x90 | 0x40 | 0x02, 1, 3, 3, 3, 0xff, 0xff},
		},
		media.H264: {
			{0x67, 0x64, 0x00, 0x1f, 0xac, 0xd9, 0x40, 0x50, 0x05, 0xbb, 0x01, 0x10, 0, 0, 3, 0, 0x10, 0, 0, 3, 3, 0xc0, 0xf1, 0x83, 0x19, 0x60},
			{0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0},
			{0x65, 0x88, 0x84, 0, 0x33},
			{0x78, 0, 2, 0x67, 1, 0, 1, 0x68},
			{0x7c, 0x85, 1, 2, 3},
			{0x7c, 0x45, 1, 2, 3},
		},
		media.H265: {
			{0x40, 1, 0x0c, 1, 0xff, 0xff},
			{0x42, 1, 1, 1, 0x60, 0, 0, 3, 0, 0x90, 0, 0, 3, 0, 0, 3, 0, 0x3f, 0xa0, 5, 2, 1, 0x69},
			{0x26, 1, 0xaf, 0x80},
			{0x60, 1, 0, 3, 0x40, 1, 0x0c},
			{0x62, 1, 0x93, 1, 2},
			{0x62, 1, 0x53, 1, 2},
		},
		media.AV1: {
			{0x28, 0x0a, 0x0b, 0, 0, 0, 0x24, 0xc4, 0xff, 0xdf, 0x3f, 0xf2, 0x40, 0x10, 0x32, 0x10, 0x40, 1, 2},
			{0x50, 0x30, 1},
			{0xa0, 0x30, 0x10},
			{0x00, 0x81, 0x80, 0x80, 0x80, 1},
		},
	}
}

func packetsOf(frames []truth) [][]byte {
	var out [][]byte
	for _, f := range frames {
		for _, p := range f.packets {
			out = append(out, p.Payload)
		}
	}
	return out
}

// fuzzInput packs payloads with a control byte and a length each.
func fuzzInput(payloads [][]byte) []byte {
	var b []byte
	for i, p := range payloads {
		control := byte(0)
		if i == len(payloads)-1 {
			control = 1
		}
		b = append(b, control)
		b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		b = append(b, p...)
	}
	return b
}

// FuzzAssembler feeds arbitrary payloads, markers, jumps of sequence and
// timestamp and padding flags, and checks invariants.
func FuzzAssembler(f *testing.F) {
	for codec, payloads := range seeds() {
		f.Add(byte(codec), fuzzInput(payloads))
		f.Add(byte(codec), append(fuzzInput(payloads), fuzzInput(payloads)...))
	}
	f.Fuzz(func(t *testing.T, codec byte, in []byte) {
		c := media.Codec(codec%5 + 1)
		a := ingest.New(ingest.Options{Codec: c})
		seq, ts, now := uint16(65530), uint32(0xfffffff0), start()
		var last media.EncodedFrame
		first := true
		check := func(frames []media.EncodedFrame) {
			for _, f := range frames {
				require.True(t, !first || f.KeyFrame, "the first frame is a key frame")
				require.True(t, first || f.Epoch == last.Epoch || f.KeyFrame, "an epoch begins with a key frame")
				require.NotEmpty(t, f.Data)
				require.NotEmpty(t, f.Packets)
				require.Equal(t, c, f.Codec)
				require.True(t, f.Width >= 0 && f.Width <= 16384 && f.Height >= 0 && f.Height <= 16384)
				require.True(t, f.Width == 0 || f.Width >= 32 && f.Height >= 32)
				if !first && f.Epoch == last.Epoch && f.PTS > last.PTS {
					require.True(t, f.Arrival.After(last.Arrival))
				}
				last, first = f, false
			}
		}
		for len(in) >= 3 {
			control := in[0]
			n := min(int(binary.BigEndian.Uint16(in[1:])), len(in)-3)
			p := &rtp.Packet{
				Header: rtp.Header{
					SequenceNumber: seq, Timestamp: ts, SSRC: uint32(control >> 7),
					Marker: control&1 != 0, Padding: control&2 != 0,
				},
				Payload: append([]byte(nil), in[3:3+n]...),
			}
			in = in[3+n:]
			seq++
			if control&4 != 0 {
				seq += uint16(control) << 6
			}
			if control&1 != 0 || control&8 != 0 {
				ts += 3000
			}
			if control&16 != 0 {
				ts += uint32(control) << 16
			}
			if control&32 != 0 {
				now = now.Add(time.Duration(control) * time.Millisecond)
			}
			check(a.Push(p, now))
			a.WantsKeyFrame(now)
			a.SenderReport(now, ts)
		}
		check(a.Tick(now.Add(time.Minute)))
		s := a.Stats()
		require.GreaterOrEqual(t, s.Packets, s.Padding+s.Duplicates+s.Late)
	})
}

// FuzzTruncated cuts access units of valid packets at any byte.
func FuzzTruncated(f *testing.F) {
	for codec := range byte(5) {
		f.Add(codec, uint16(3), uint16(1))
		f.Add(codec, uint16(0), uint16(9))
	}
	all := seeds()
	f.Fuzz(func(_ *testing.T, codec byte, which, cut uint16) {
		c := media.Codec(codec%5 + 1)
		a := ingest.New(ingest.Options{Codec: c})
		payloads := all[c]
		for i, p := range payloads {
			p = append([]byte(nil), p...)
			if i == int(which)%len(payloads) {
				p = p[:int(cut)%(len(p)+1)]
			}
			a.Push(&rtp.Packet{
				Header:  rtp.Header{SequenceNumber: uint16(i), Timestamp: 9, Marker: i == len(payloads)-1},
				Payload: p,
			}, start())
		}
		a.Tick(start().Add(time.Second))
	})
}
