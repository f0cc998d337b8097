package ingest_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/ingest"
)

// vp9Layer makes one packet of a layer frame as a three-layer sender does.
type vp9Layer struct {
	sid        byte
	begin, end bool
	key        bool // no inter-picture prediction
	ss         bool
	body       []byte
}

// payload writes the descriptor of RFC 9628, non-flexible mode.
func (l vp9Layer) payload(id uint16) []byte {
	b := []byte{0x80 | 0x20, 0x80 | byte(id>>8), byte(id), l.sid << 1, byte(id)}
	if l.sid > 0 {
		b[3] |= 1
	}
	if !l.key {
		b[0] |= 0x40
	}
	if l.begin {
		b[0] |= 0x08
	}
	if l.end {
		b[0] |= 0x04
	}
	if l.ss {
		b[0] |= 0x02
		b = append(b, 2<<5|0x10, 1, 64, 0, 180, 2, 128, 1, 104, 5, 0, 2, 208) // 320x180, 640x360, 1280x720
	}
	return append(b, l.body...)
}

// vp9Body is the start of an uncompressed header with random data after it.
func vp9Body(key bool, w, h int, fill byte) []byte {
	if !key {
		return append([]byte{0x86}, bytes.Repeat([]byte{fill}, 50)...)
	}
	b := []byte{0x82, 0x49, 0x83, 0x42}
	// colour space 3 bits, range 1 bit, width 16 bits, height 16 bits
	v := uint64(0)<<32 | uint64(w-1)<<16 | uint64(h-1)
	for shift := 28; shift >= -4; shift -= 8 {
		if shift >= 0 {
			b = append(b, byte(v>>shift))
		} else {
			b = append(b, byte(v<<4))
		}
	}
	return append(b, bytes.Repeat([]byte{fill}, 50)...)
}

func TestVP9SpatialLayersAreOneUnit(t *testing.T) {
	t.Parallel()
	const pictures, layers = 20, 3
	build := func(pictures int, upTo byte) []truth {
		var out []truth
		seq := uint16(1)
		for i := range pictures {
			tr := truth{ts: uint32(i) * 3000}
			key := i%10 == 0
			for sid := range upTo {
				body := vp9Body(key && sid == 0, 320, 180, byte(i))
				for part := range 2 {
					l := vp9Layer{sid: sid, begin: part == 0, end: part == 1, key: key, ss: key && sid == 0 && part == 0}
					l.body = body[:30]
					if part == 1 {
						l.body = body[30:]
					}
					tr.packets = append(tr.packets, &rtp.Packet{
						Header: rtp.Header{
							SequenceNumber: seq, Timestamp: tr.ts, SSRC: 7, Marker: sid == upTo-1 && part == 1,
						},
						Payload: l.payload(uint16(i)),
					})
					seq++
				}
				tr.data = append(tr.data, body...)
			}
			out = append(out, tr)
		}
		return out
	}

	a := ingest.New(ingest.Options{Codec: media.VP9})
	frames := build(pictures, layers)
	out := pushAll(a, frames)
	require.Len(t, out, pictures, "%+v", a.Stats())
	for i, f := range out {
		require.Equal(t, i%10 == 0, f.KeyFrame)
		require.Equal(t, 3, f.SpatialLayers)
		require.Equal(t, 1280, f.Width)
		require.Equal(t, 720, f.Height)
		require.Equal(t, frames[i].data, f.Data)
		require.Len(t, f.Packets, 6)
	}

	// An SFU that forwards two layers only: the picture is smaller.
	a = ingest.New(ingest.Options{Codec: media.VP9})
	out = pushAll(a, build(pictures, 2))
	require.Len(t, out, pictures)
	require.Equal(t, 640, out[0].Width)
	require.Equal(t, 360, out[5].Height)
	require.Equal(t, 3, out[5].SpatialLayers)

	// A lost layer packet drops all frames up to the next key frame.
	a = ingest.New(ingest.Options{Codec: media.VP9})
	frames = build(pictures, layers)
	frames[3].packets = append(frames[3].packets[:3:3], frames[3].packets[4:]...)
	out = pushAll(a, frames)
	require.Len(t, out, 3+10)

	// So does a layer that an SFU cuts short and renumbers, at the end or before the next layer.
	for _, last := range []int{5, 3} {
		a = ingest.New(ingest.Options{Codec: media.VP9})
		frames = build(pictures, layers)
		frames[3].packets = append(frames[3].packets[:last:last], frames[3].packets[last+1:]...)
		renumber(frames)
		require.Len(t, pushAll(a, frames), 3+10)
		require.Equal(t, uint64(1), a.Stats().Broken)
		require.Zero(t, a.Stats().Lost)
	}
}

// renumber numbers all packets without a gap.
func renumber(frames []truth) {
	seq := uint16(1)
	for _, f := range frames {
		for _, p := range f.packets {
			p.SequenceNumber = seq
			seq++
		}
	}
}

// TestCutShort cuts a picture short without a gap in the sequence numbers, as an SFU
// that switches between simulcast layers: the picture and all frames up to the next key
// frame are dropped.
func TestCutShort(t *testing.T) {
	t.Parallel()
	const broken, gop, n = 20, 10, 100
	build := func() []truth {
		return packetise(media.VP8, fakeVP8(rand.New(rand.NewPCG(4, 4)), n, gop, 3000), 100, 5000, 400)
	}
	unmark := func(frames []truth) {
		for _, f := range frames {
			f.packets[len(f.packets)-1].Marker = false
		}
	}
	frames := build()
	last := len(frames[broken].packets) - 1
	require.Positive(t, last)
	frames[broken].packets = frames[broken].packets[:last]
	renumber(frames)
	a := ingest.New(ingest.Options{Codec: media.VP8})
	out := pushAll(a, frames)
	require.Len(t, out, n-gop, "all but those from the broken key frame to the next")
	require.Equal(t, uint64(1), a.Stats().Broken)
	require.Zero(t, a.Stats().Lost)

	// A source without markers loses only its last picture, whose end is unknown.
	frames = build()
	unmark(frames)
	require.Len(t, pushAll(ingest.New(ingest.Options{Codec: media.VP8}), frames), n-1)

	// One that stops setting them continues at its next key frame.
	frames = build()
	unmark(frames[broken:])
	require.Len(t, pushAll(ingest.New(ingest.Options{Codec: media.VP8}), frames), n-gop-1)
}
