package packet_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/rtp/codecs/av1/obu"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/packet"
)

func start() time.Time { return time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC) }

// outFrame is a frame with its due time, as delay.OutFrame.
type outFrame struct {
	media.EncodedFrame
	Due time.Time
}

func codecsUnderTest() []media.Codec {
	return []media.Codec{media.VP8, media.VP9, media.H264, media.H265, media.AV1}
}

// noise fills n bytes without zeros, so that no start code appears.
func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + r.IntN(255))
	}
	return b
}

// parts makes the parts of one access unit: NAL units, OBUs (without size field) or one
// frame.
func parts(r *rand.Rand, codec media.Codec, key bool, size int) [][]byte {
	body := noise(r, size)
	switch codec {
	case media.VP8:
		body[0] |= 1
		if key {
			body = append([]byte{0x10, 2, 3, 0x9d, 1, 0x2a, 0x80, 2, 0x68, 1}, body...)
		}
		return [][]byte{body}
	case media.VP9:
		if key {
			return [][]byte{append([]byte{0x82, 0x49, 0x83, 0x42, 0x00, 0x27, 0xf0, 0x16, 0x70}, body...)}
		}
		return [][]byte{append([]byte{0x86}, body...)}
	case media.H264:
		if key {
			return [][]byte{append([]byte{0x67}, noise(r, 20)...), append([]byte{0x68}, noise(r, 5)...), append([]byte{0x65}, body...)}
		}
		return [][]byte{append([]byte{0x41}, body...), append([]byte{0x41}, noise(r, 30)...)}
	case media.H265:
		if key {
			return [][]byte{
				append([]byte{0x40, 1, 0x0c}, noise(r, 20)...),
				{0x42, 1, 1, 1, 0x60, 0, 0, 3, 0, 0x90, 0, 0, 3, 0, 0, 3, 0, 0x3f, 0xa0, 5, 2, 1, 0x69, 0x65, 0x95},
				{0x44, 1, 0xc1, 0x72, 0xb4},
				append([]byte{0x26, 1}, body...),
			}
		}
		return [][]byte{append([]byte{0x02, 1}, body...)}
	case media.AV1, media.CodecUnknown:
	}
	if key {
		return [][]byte{append([]byte{obu1(1)}, noise(r, 10)...), append([]byte{obu1(6)}, body...)}
	}
	return [][]byte{append([]byte{obu1(6)}, body...), append([]byte{obu1(5)}, noise(r, 7)...)}
}

func obu1(kind byte) byte { return kind << 3 }

// bitstream joins parts as media.EncodedFrame.Data has them.
func bitstream(codec media.Codec, units [][]byte) []byte {
	var b []byte
	for _, u := range units {
		switch codec {
		case media.H264, media.H265:
			b = append(append(b, 0, 0, 0, 1), u...)
		case media.AV1:
			b = append(b, u[0]|2)
			b = append(b, obu.WriteToLeb128(uint(len(u)-1))...)
			b = append(b, u[1:]...)
		case media.VP8, media.VP9, media.CodecUnknown:
			b = append(b, u...)
		}
	}
	return b
}

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

// rebuild turns packets back into bitstream with pion's depacketizers.
func rebuild(t *testing.T, codec media.Codec, packets []*rtp.Packet) []byte {
	t.Helper()
	var d rtp.Depacketizer
	switch codec {
	case media.VP8:
		d = &codecs.VP8Packet{}
	case media.VP9:
		d = &codecs.VP9Packet{}
	case media.H264:
		d = &codecs.H264Packet{}
	case media.H265:
		d = &codecs.H265Depacketizer{}
	case media.AV1, media.CodecUnknown:
		d = &codecs.AV1Depacketizer{}
	}
	var out []byte
	for _, p := range packets {
		b, err := d.Unmarshal(p.Payload)
		require.NoError(t, err)
		out = append(out, b...)
	}
	return out
}

// source makes a stream of frames; mtu 0 gives frames without packets.
func source(r *rand.Rand, codec media.Codec, n int, mtu uint16, epoch uint32) []outFrame {
	p := payloader(codec)
	var out []outFrame
	seq := uint16(r.Uint32())
	for i := range n {
		key := i%10 == 0
		pts := time.Duration(i) * time.Second / 30
		f := media.EncodedFrame{
			Codec: codec, KeyFrame: key, PTS: pts, Arrival: start().Add(pts), Received: start().Add(pts), Epoch: epoch, SpatialLayers: 1,
		}
		f.Data = bitstream(codec, parts(r, codec, key, 20+r.IntN(6000)))
		if mtu > 0 {
			payloads := p.Payload(mtu, f.Data)
			for j, b := range payloads {
				q := &rtp.Packet{
					Header: rtp.Header{
						Version: 2, SequenceNumber: seq, Timestamp: r.Uint32(), Marker: j == len(payloads)-1, SSRC: 5,
						PayloadType: 96,
					},
					Payload: b,
				}
				_ = q.SetExtension(1, []byte{1, 2, 3})
				f.Packets = append(f.Packets, q)
				seq++
			}
		}
		out = append(out, outFrame{EncodedFrame: f, Due: f.Arrival.Add(2 * time.Second)})
	}
	return out
}

func TestRewriterRoundTrip(t *testing.T) {
	t.Parallel()
	for _, codec := range codecsUnderTest() {
		for name, mtu := range map[string]uint16{"small packets": 1100, "camera packets": 1460, "jumbo": 9000, "no packets": 0} {
			t.Run(codec.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(uint64(codec), uint64(mtu)))
				w := packet.NewRewriter(65530, 0xffffff00)
				seq, ts := uint16(65530), uint32(0xffffff00)
				for i, f := range source(r, codec, 60, mtu, 0) {
					var before [][]byte
					for _, p := range f.Packets {
						b, err := p.Marshal()
						require.NoError(t, err)
						before = append(before, b)
					}
					packets, err := w.Packets(f.EncodedFrame, f.Due)
					require.NoError(t, err)
					for k, p := range packets {
						require.Equal(t, seq, p.SequenceNumber)
						require.InDelta(t, 0, float64(int32(p.Timestamp-ts)), 1)
						require.Equal(t, k == len(packets)-1, p.Marker)
						require.LessOrEqual(t, len(p.Payload), packet.MaxPayload)
						require.NotEmpty(t, p.Payload)
						require.False(t, p.Extension)
						require.False(t, p.Padding)
						require.Equal(t, uint8(2), p.Version)
						seq++
					}
					ts += 3000
					require.Equal(t, f.Data, rebuild(t, codec, packets), "frame %d", i)
					for k, p := range f.Packets {
						b, err := p.Marshal()
						require.NoError(t, err)
						require.Equal(t, before[k], b, "the source's packet was changed")
					}
				}
			})
		}
	}
}

func TestTimestampsSurviveEverything(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3))
	w := packet.NewRewriter(0, 0xfffff000)
	last, first := uint32(0), true
	for epoch := range uint32(5) {
		for i, f := range source(r, media.VP8, 20, 1100, epoch) {
			f.Due = start().Add(time.Duration(epoch)*400*time.Millisecond + time.Duration(i)*33*time.Millisecond)
			packets, err := w.Packets(f.EncodedFrame, f.Due)
			require.NoError(t, err)
			ts := packets[0].Timestamp
			require.True(t, first || int32(ts-last) >= 1, "timestamps go on")
			last, first = ts, false
		}
	}
}

// vp8Descriptor reads the fields that a browser uses.
func vp8Descriptor(t *testing.T, p *rtp.Packet) codecs.VP8Packet {
	t.Helper()
	var d codecs.VP8Packet
	_, err := d.Unmarshal(p.Payload)
	require.NoError(t, err)
	return d
}

func TestVP8NumbersGoOn(t *testing.T) {
	t.Parallel()
	w := packet.NewRewriter(0, 0)
	var ids []uint16
	var levels []uint8
	give := func(epoch uint32, key bool, id uint16, tl0, tid byte) {
		f := outFrame{Due: start()}
		f.Codec, f.KeyFrame, f.Epoch, f.Data = media.VP8, key, epoch, []byte{1}
		b := append([]byte{0x90, 0xe0, 0x80 | byte(id>>8), byte(id), tl0, tid << 6}, make([]byte, 3000)...)
		f.Packets = []*rtp.Packet{{Payload: b}}
		packets, err := w.Packets(f.EncodedFrame, f.Due)
		require.NoError(t, err)
		require.Len(t, packets, 3)
		for i, p := range packets {
			d := vp8Descriptor(t, p)
			require.Equal(t, i == 0, d.S == 1)
			require.Equal(t, tid, d.TID)
			if i == 0 {
				ids, levels = append(ids, d.PictureID), append(levels, d.TL0PICIDX)
			}
			require.Equal(t, ids[len(ids)-1], d.PictureID)
		}
	}
	give(0, true, 0x7ffe, 254, 0)
	give(0, false, 0x7fff, 254, 1)
	give(0, false, 0, 255, 0)
	give(0, false, 1, 255, 1)
	give(0, true, 40, 7, 0)       // frames were dropped in front
	give(0, false, 42, 8, 0)      // the SFU left one out
	give(1, true, 20000, 200, 0)  // another source
	give(1, false, 20001, 200, 1) // and on
	give(1, false, 20002, 201, 0)
	require.Equal(t, []uint16{0x7ffe, 0x7fff, 0, 1, 2, 3, 4, 5, 6}, ids)
	require.Equal(t, []uint8{254, 254, 255, 255, 0, 1, 2, 2, 3}, levels)
}

func TestVP9NumbersGoOn(t *testing.T) {
	t.Parallel()
	w := packet.NewRewriter(0, 0)
	var ids []uint16
	give := func(epoch uint32, key bool, id uint16) {
		f := outFrame{Due: start()}
		f.Codec, f.KeyFrame, f.Epoch = media.VP9, key, epoch
		// Two layers, flexible mode, a scalability structure on key frames.
		for sid := range byte(2) {
			b := []byte{0x80 | 0x20 | 0x10 | 0x08 | 0x04, 0x80 | byte(id>>8), byte(id), sid << 1}
			if !key {
				b[0] |= 0x40
				b = append(b, 1<<1)
			} else if sid == 0 {
				b[0] |= 0x02
				b = append(b, 1<<5|0x10, 1, 64, 0, 180, 2, 128, 1, 104)
			}
			f.Packets = append(f.Packets, &rtp.Packet{Payload: append(b, bytes.Repeat([]byte{sid + 1}, 2000)...)})
		}
		packets, err := w.Packets(f.EncodedFrame, f.Due)
		require.NoError(t, err)
		require.Len(t, packets, 4)
		for i, p := range packets {
			var d codecs.VP9Packet
			body, err := d.Unmarshal(p.Payload)
			require.NoError(t, err)
			require.Equal(t, uint8(i/2), d.SID)
			require.Equal(t, i%2 == 0, d.B)
			require.Equal(t, i%2 == 1, d.E)
			require.Equal(t, key && i == 0, d.V)
			require.Equal(t, byte(i/2+1), body[0])
			if i == 0 {
				ids = append(ids, d.PictureID)
			}
			require.Equal(t, ids[len(ids)-1], d.PictureID)
		}
	}
	give(0, true, 0x7fff)
	give(0, false, 0)
	give(0, false, 2) // references are distances, so the gap stays
	give(0, true, 90)
	give(3, true, 4000)
	give(3, false, 4001)
	require.Equal(t, []uint16{0x7fff, 0x8000 & 0x7fff, 2, 3, 4, 5}, ids)
}

func TestAggregatesAreTakenApart(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 8))
	tests := []struct {
		codec media.Codec
		head  []byte
		units [][]byte
	}{
		{media.H264, []byte{0x78}, [][]byte{
			append([]byte{0x67}, noise(r, 700)...), append([]byte{0x68}, noise(r, 700)...), append([]byte{0x65}, noise(r, 1300)...),
		}},
		{media.H265, []byte{0x60, 1}, [][]byte{
			append([]byte{0x42, 1}, noise(r, 700)...), append([]byte{0x44, 1}, noise(r, 700)...), append([]byte{0x26, 1}, noise(r, 1300)...),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.codec.String(), func(t *testing.T) {
			t.Parallel()
			b := bytes.Clone(tt.head)
			for _, u := range tt.units {
				b = binary.BigEndian.AppendUint16(b, uint16(len(u)))
				b = append(b, u...)
			}
			f := outFrame{Due: start()}
			f.Codec, f.Packets = tt.codec, []*rtp.Packet{{Payload: b}}
			packets, err := packet.NewRewriter(0, 0).Packets(f.EncodedFrame, f.Due)
			require.NoError(t, err)
			require.Len(t, packets, 4)
			require.Equal(t, bitstream(tt.codec, tt.units), rebuild(t, tt.codec, packets))
		})
	}
}

func TestRewriterRefuses(t *testing.T) {
	t.Parallel()
	w := packet.NewRewriter(9, 9)
	big := func(head ...byte) []*rtp.Packet { return []*rtp.Packet{{Payload: append(head, make([]byte, 2000)...)}} }
	tests := []struct {
		name string
		f    media.EncodedFrame
		want string
	}{
		{"nothing", media.EncodedFrame{Codec: media.VP8}, "got neither"},
		{"empty packets", media.EncodedFrame{Codec: media.H264, Packets: []*rtp.Packet{{}}}, "got neither"},
		{"VP8 descriptor cut", media.EncodedFrame{Codec: media.VP8, Packets: []*rtp.Packet{{Payload: []byte{0x90, 0x80}}}}, "incomplete"},
		{"VP9 descriptor cut", media.EncodedFrame{Codec: media.VP9, Packets: []*rtp.Packet{{Payload: []byte{0x80, 0x80}}}}, "incomplete"},
		{"H264 STAP-B", media.EncodedFrame{Codec: media.H264, Packets: big(25)}, "type 25"},
		{"H265 PACI", media.EncodedFrame{Codec: media.H265, Packets: big(50<<1, 1)}, "type 50"},
		{"AV1 length", media.EncodedFrame{Codec: media.AV1, Packets: big(0x20, 0xff, 0xff, 0xff, 0x7f)}, "incomplete"},
		{"VP9 layers without packets", media.EncodedFrame{Codec: media.VP9, SpatialLayers: 3, Data: []byte{0x82}}, "3 spatial layers"},
		{"VP9 that is none", media.EncodedFrame{Codec: media.VP9, Data: []byte{0}}, "malformed"},
		{"unknown", media.EncodedFrame{Data: []byte{1}}, "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.Packets(tt.f, start())
			require.ErrorContains(t, err, tt.want)
		})
	}
	good := source(rand.New(rand.NewPCG(1, 1)), media.H264, 1, 1100, 0)[0]
	packets, err := w.Packets(good.EncodedFrame, good.Due)
	require.NoError(t, err)
	require.Equal(t, uint16(9), packets[0].SequenceNumber, "a refused frame takes no number")
}

func FuzzRewriter(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, codec := range codecsUnderTest() {
		for _, frame := range source(r, codec, 2, 1460, 0) {
			f.Add(byte(codec), frame.Packets[0].Payload, frame.Packets[len(frame.Packets)-1].Payload, frame.Data)
			f.Add(byte(codec), []byte{}, []byte{}, frame.Data)
		}
	}
	f.Add(byte(media.AV1), append([]byte{0}, bytes.Repeat([]byte{0x80}, 1300)...), []byte{1}, []byte{1})
	f.Add(byte(media.VP9), append([]byte{0x0a, 0x08, 0xff}, make([]byte, 2000)...), []byte{1}, []byte{1})
	f.Fuzz(func(t *testing.T, codec byte, a, b, data []byte) {
		w := packet.NewRewriter(65535, 0xffffffff)
		frame := outFrame{Due: start()}
		frame.Codec = media.Codec(codec % 6)
		frame.Data = bytes.Clone(data)
		frame.Packets = []*rtp.Packet{{Payload: bytes.Clone(a)}, {Payload: bytes.Clone(b)}}
		seq := uint16(65535)
		for range 2 {
			packets, err := w.Packets(frame.EncodedFrame, frame.Due)
			require.Equal(t, a, frame.Packets[0].Payload)
			if err != nil {
				continue
			}
			require.NotEmpty(t, packets)
			for _, p := range packets {
				require.Equal(t, seq, p.SequenceNumber)
				require.LessOrEqual(t, len(p.Payload), packet.MaxPayload)
				require.NotEmpty(t, p.Payload)
				seq++
			}
			require.True(t, packets[len(packets)-1].Marker)
		}
	})
}

func BenchmarkRewriter(b *testing.B) {
	for _, codec := range codecsUnderTest() {
		for name, mtu := range map[string]uint16{"as is": 1100, "split": 1460} {
			b.Run(codec.String()+" "+name, func(b *testing.B) {
				frames := source(rand.New(rand.NewPCG(1, 1)), codec, 30, mtu, 0)
				w := packet.NewRewriter(0, 0)
				n, packets := 0, 0
				b.ReportAllocs()
				for b.Loop() {
					f := frames[n%len(frames)]
					out, err := w.Packets(f.EncodedFrame, f.Due)
					if err != nil {
						b.Fatal(err)
					}
					packets += len(out)
					n++
				}
				b.ReportMetric(float64(packets)/float64(n), "packets/frame")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
			})
		}
	}
}
