package ingest_test

import (
	"bytes"
	"math/bits"
	"slices"
	"testing"

	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/ingest"
)

// bitWriter writes a bitstream.
type bitWriter struct {
	b []byte
	n int // bits
}

// put writes the low bits of v.
func (w *bitWriter) put(v uint64, n int) *bitWriter {
	for i := n - 1; i >= 0; i-- {
		if w.n%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[w.n/8] |= byte(v>>i&1) << (7 - w.n%8)
		w.n++
	}
	return w
}

// ue writes unsigned Exp-Golomb codes.
func (w *bitWriter) ue(values ...uint64) *bitWriter {
	for _, v := range values {
		n := bits.Len64(v + 1)
		w.put(0, n-1).put(v+1, n)
	}
	return w
}

// nal returns the payload after a header, without emulation prevention.
func (w *bitWriter) nal(header ...byte) []byte {
	w.put(1, 1)
	return append(header, w.b...)
}

// filled returns a parameter set of n bytes with an id, the rest without zeros.
func filled(header []byte, before *bitWriter, id uint64, n int, fill byte) []byte {
	b := before.ue(id).nal(header...)
	return append(b, bytes.Repeat([]byte{fill}, max(0, n-len(b)))...)
}

func h264SPS() []byte {
	return []byte{0x67, 0x42, 0xc0, 0x1f, 0xda, 0x02, 0x80, 0xf6, 0x84}
}

// h264Stream sends NAL units, each as one access unit.
type h264Stream struct {
	a   *ingest.Assembler
	seq uint16
	ts  uint32
}

func (s *h264Stream) send(nals ...[]byte) []media.EncodedFrame {
	var out []media.EncodedFrame
	s.ts += 3000
	for i, nal := range nals {
		const mtu = 60000
		last := i == len(nals)-1
		push := func(b []byte, marker bool) {
			s.seq++
			out = append(out, s.a.Push(&rtp.Packet{
				Header: rtp.Header{SSRC: 1, SequenceNumber: s.seq, Timestamp: s.ts, Marker: marker}, Payload: b,
			}, at(int(s.ts/3000)))...)
		}
		if len(nal) <= mtu {
			push(nal, last)
			continue
		}
		for at := 1; at < len(nal); at += mtu {
			end := min(at+mtu, len(nal))
			fu := nal[0] & 0x1f
			if at == 1 {
				fu |= 0x80
			}
			if end == len(nal) {
				fu |= 0x40
			}
			push(append([]byte{nal[0]&0xe0 | 28, fu}, nal[at:end]...), last && end == len(nal))
		}
	}
	return out
}

// TestParameterSetsAreBounded: untrusted parameter sets are kept and added to each key
// frame, so they have to be small.
func TestParameterSetsAreBounded(t *testing.T) {
	t.Parallel()
	idr := []byte{0x65, 0x88, 0x84, 0x01}
	pps := func(id, size int, fill byte) []byte {
		return filled([]byte{0x68}, new(bitWriter), uint64(id), size, fill)
	}
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		s := &h264Stream{a: ingest.New(ingest.Options{Codec: media.H264})}
		require.Len(t, s.send(h264SPS(), pps(0, 4, 1), idr), 1)
		for _, size := range []int{4097, 70000, 7 << 20} {
			before := s.a.Stats().Broken
			require.Empty(t, s.send(pps(1, size, 7), idr), "%d bytes", size)
			require.Equal(t, before+1, s.a.Stats().Broken)
			got := s.send(idr)
			require.Len(t, got, 1, "goes on with the sets before")
			require.Less(t, len(got[0].Data), 100)
		}
	})
	t.Run("together", func(t *testing.T) {
		t.Parallel()
		s := &h264Stream{a: ingest.New(ingest.Options{Codec: media.H264})}
		require.Len(t, s.send(h264SPS(), pps(0, 4, 1), idr), 1)
		for id := 1; id < 200; id++ {
			s.send(pps(id, 4096, byte(id)|1))
		}
		require.NotZero(t, s.a.Stats().Broken)
		got := s.send(idr)
		require.Len(t, got, 1)
		require.LessOrEqual(t, len(got[0].Data), 65<<10)
		lead := got[0].Packets[0].Payload
		require.LessOrEqual(t, len(lead), 65<<10)
	})
	t.Run("replaced", func(t *testing.T) {
		t.Parallel()
		s := &h264Stream{a: ingest.New(ingest.Options{Codec: media.H264})}
		require.Len(t, s.send(h264SPS(), pps(0, 4, 1), pps(1, 4, 1), idr), 1)
		s.send(pps(1, 4, 9))
		got := s.send(idr)
		require.Len(t, got, 1)
		require.Equal(t, [][]byte{h264SPS(), pps(0, 4, 1), pps(1, 4, 9), idr}, splitNAL(got[0].Data))
	})
}

// TestParameterSetsReplaceH265: the ids of VPS, SPS and PPS are in different places.
func TestParameterSetsReplaceH265(t *testing.T) {
	t.Parallel()
	idr := []byte{0x26, 1, 0xaf, 0x80}
	vps := func(id uint64, fill byte) []byte { return append([]byte{0x40, 1}, byte(id<<4)|0xc, fill, 0xff) }
	sps := func(id uint64, w, h uint64) []byte {
		b := new(bitWriter).put(0, 4).put(1, 3).put(1, 1).put(0x1600000009ffffff, 64).put(0x5a5a5a5a, 32)
		b.put(3, 2).put(0xaaaa, 14) // one sub-layer, with its profile and level
		b.put(0xffffffffff, 40).put(0xffffffffffff, 48).put(0xff, 8)
		return b.ue(id, 1, w, h).put(0, 1).ue(0, 0, 4).nal(0x42, 1)
	}
	pps := func(id uint64, fill byte) []byte { return filled([]byte{0x44, 1}, new(bitWriter), id, 6, fill) }
	a := ingest.New(ingest.Options{Codec: media.H265})
	n := 0
	send := func(nals ...[]byte) []media.EncodedFrame {
		var out []media.EncodedFrame
		n++
		for i, nal := range nals {
			out = append(out, a.Push(&rtp.Packet{
				Header: rtp.Header{
					SSRC: 1, SequenceNumber: uint16(n*10 + i), Timestamp: uint32(n) * 3000, Marker: i == len(nals)-1,
				}, Payload: nal,
			}, at(n))...)
		}
		for i := len(nals); i < 10; i++ { // padding fills the numbers up
			a.Push(&rtp.Packet{Header: rtp.Header{SSRC: 1, SequenceNumber: uint16(n*10 + i), Timestamp: uint32(n) * 3000}}, at(n))
		}
		return out
	}
	got := send(vps(0, 1), sps(0, 640, 360), pps(0, 1), pps(1, 1), idr)
	require.Len(t, got, 1)
	require.Equal(t, []int{640, 360}, []int{got[0].Width, got[0].Height}, "a stream with temporal layers says its size")
	send(vps(0, 2), pps(1, 2))
	got = send(idr)
	require.Len(t, got, 1)
	require.Equal(t, [][]byte{vps(0, 2), sps(0, 640, 360), pps(0, 1), pps(1, 2), idr}, splitNAL(got[0].Data))
}

// TestH264Sizes covers usual sizes and those that the library's parser gets wrong or refuses.
func TestH264Sizes(t *testing.T) {
	t.Parallel()
	sps := func(chroma uint64, frameMbsOnly uint64, crop []uint64, vui bool) []byte {
		b := new(bitWriter).put(100, 8).put(0x001f, 16).ue(0, chroma)
		if chroma == 3 {
			b.put(0, 1)
		}
		b.ue(0, 0).put(0, 2).ue(0, 0, 0, 2).put(0, 1).ue(39, 22/(2-frameMbsOnly)).put(frameMbsOnly, 1)
		if frameMbsOnly == 0 {
			b.put(0, 1)
		}
		b.put(1, 1)
		if len(crop) > 0 {
			b.put(1, 1).ue(crop...)
		} else {
			b.put(0, 1)
		}
		if vui {
			return b.put(1, 1).put(1, 1).nal(0x67) // it ends where the VUI begins
		}
		return b.put(0, 1).nal(0x67)
	}
	tests := []struct {
		name          string
		sps           []byte
		width, height int
	}{
		{"4:2:0", sps(1, 1, []uint64{1, 3, 2, 2}, false), 640 - 8, 368 - 8},
		{"not cropped", sps(1, 1, nil, false), 640, 368},
		{"4:2:2", sps(2, 1, []uint64{1, 3, 2, 2}, false), 640 - 8, 368 - 4},
		{"4:4:4", sps(3, 1, []uint64{1, 3, 2, 2}, false), 640 - 4, 368 - 4},
		{"monochrome", sps(0, 1, []uint64{1, 3, 2, 2}, false), 640 - 4, 368 - 4},
		{"interlaced", sps(1, 0, []uint64{0, 0, 0, 2}, false), 640, 384 - 8},
		{"broken VUI", sps(1, 1, []uint64{0, 0, 0, 4}, true), 640, 360},
		{"cropped away", sps(1, 1, []uint64{400, 400, 0, 0}, false), 0, 0},
		{"short", []byte{0x67, 0x64}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &h264Stream{a: ingest.New(ingest.Options{Codec: media.H264})}
			got := s.send(tt.sps, []byte{0x68, 0xce, 0x3c, 0x80}, []byte{0x65, 0x88, 0x84, 0x01})
			require.Len(t, got, 1)
			require.Equal(t, []int{tt.width, tt.height}, []int{got[0].Width, got[0].Height})
		})
	}
}

// TestAV1DecoderModel: a sequence header with a decoder model and display delays, which mediacommon's parser does not support.
func TestAV1DecoderModel(t *testing.T) {
	t.Parallel()
	b := new(bitWriter).put(0, 3).put(0, 1).put(0, 1)
	b.put(1, 1).put(1, 32).put(60, 32).put(0, 1)         // timing
	b.put(1, 1).put(9, 5).put(1, 32).put(9, 5).put(9, 5) // decoder model
	b.put(1, 1).put(0, 5).put(0, 12).put(8, 5).put(0, 1)
	b.put(1, 1).put(0, 10).put(0, 10).put(0, 1) // the operating point's
	b.put(1, 1).put(3, 4)
	b.put(9, 4).put(8, 4).put(639, 10).put(359, 9).put(0, 16)
	sequence := append([]byte{1 << 3}, b.b...)
	frame := []byte{6 << 3, 0x10, 1, 2, 3}
	payload := append([]byte{0x20, byte(len(sequence))}, append(append([]byte{}, sequence...), frame...)...)
	a := ingest.New(ingest.Options{Codec: media.AV1})
	got := a.Push(&rtp.Packet{Header: rtp.Header{SSRC: 1, SequenceNumber: 1, Marker: true}, Payload: payload}, at(0))
	require.Len(t, got, 1, "%+v", a.Stats())
	require.True(t, got[0].KeyFrame)
	require.Equal(t, []int{640, 360}, []int{got[0].Width, got[0].Height})
}

// Key frames without parameter sets get those of the signalling, or are counted.
func TestSignalledParameterSets(t *testing.T) {
	t.Parallel()
	sets := [][]byte{h264SPS(), {0x68, 0xce, 0x3c, 0x80}}
	for name, given := range map[string][][]byte{"none": nil, "good": sets, "bad": {{0x67}, {}}} {
		a := ingest.New(ingest.Options{Codec: media.H264, Sets: given})
		var out []media.EncodedFrame
		for i, nal := range [][]byte{{0x65, 0x88, 1, 2}, {0x41, 0x9a, 1, 2}} {
			out = append(out, a.Push(&rtp.Packet{
				Header:  rtp.Header{Version: 2, SequenceNumber: uint16(i), Timestamp: uint32(3000 * i), Marker: true},
				Payload: nal,
			}, start())...)
		}
		if name != "good" {
			require.Empty(t, out, name)
			require.EqualValues(t, 1, a.Stats().Setless, name)
			require.EqualValues(t, 2, a.Stats().Waiting, name)
			continue
		}
		require.Len(t, out, 2)
		require.True(t, out[0].KeyFrame)
		require.Equal(t, 640, out[0].Width)
		require.True(t, bytes.HasPrefix(out[0].Data, append([]byte{0, 0, 0, 1}, sets[0]...)))
		require.Len(t, out[0].Packets, 2)
	}
}

// TestRecoveryPoint: a picture with a recovery point is a key frame (H.264 section D.1.8).
func TestRecoveryPoint(t *testing.T) {
	for _, tt := range []struct {
		name string
		sei  []byte
		want bool
	}{
		{"alone", []byte{6, 6, 1, 0xc4, 0x80}, true},
		{"after a buffering period and a long text", slices.Concat([]byte{6, 0, 1, 0x80, 5, 0xff, 1}, make([]byte, 256), []byte{6, 1, 0xc4, 0x80}), true},
		{"another message", []byte{6, 1, 1, 6, 0x80}, false},
		{"cut short", []byte{6, 5, 0xff}, false},
		{"no message", []byte{6}, false},
		{"another NAL unit", []byte{7, 6, 1, 0xc4, 0x80}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, ingest.RecoveryPoint(tt.sei))
			s := &h264Stream{a: ingest.New(ingest.Options{Codec: media.H264})}
			frames := s.send(h264SPS(), []byte{0x68, 0xce, 0x3c, 0x80}, tt.sei, []byte{0x41, 0x9a, 1, 2})
			require.Equal(t, tt.want, len(frames) == 1 && frames[0].KeyFrame)
		})
	}
}
