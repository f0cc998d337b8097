package rtsp_test

import (
	"testing"

	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/rtsp"
)

// FuzzPackets sends packets of every codec, split at lengths from the input, into a session.
func FuzzPackets(f *testing.F) {
	f.Add(byte(0), []byte{6, 0x65, 0x88, 1, 2, 3, 4, 4, 0x67, 1, 2, 3, 5, 0x7c, 0x85, 1, 2, 3})
	f.Add(byte(0), []byte{9, 0x78, 0, 2, 0x65, 1, 0, 2, 0x67, 1})
	f.Add(byte(1), []byte{6, 0x26, 1, 0x80, 3, 4, 5, 7, 0x62, 1, 0x93, 1, 2, 3, 4, 6, 0x60, 1, 0, 3, 0x26, 1})
	f.Add(byte(2), []byte{16, 0, 0, 0, 0, 1, 60, 40, 22, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(byte(3), []byte{11, 0x10, 0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 64, 0})
	formats := []func() format.Format{
		func() format.Format {
			return &format.H264{PayloadTyp: 96, PacketizationMode: 1, SPS: []byte{0x67, 1, 2}, PPS: []byte{0x68, 1}}
		},
		func() format.Format {
			return &format.H265{PayloadTyp: 96, VPS: []byte{0x40, 1, 1}, SPS: []byte{0x42, 1, 1}, PPS: []byte{0x44, 1, 1}}
		},
		func() format.Format { return &format.MJPEG{} },
		func() format.Format { return &format.VP8{PayloadTyp: 96} },
		func() format.Format { return &format.VP9{PayloadTyp: 96} },
		func() format.Format { return &format.AV1{PayloadTyp: 96} },
	}
	f.Fuzz(func(t *testing.T, kind byte, in []byte) {
		r := rtsp.NewReader(formats[int(kind)%len(formats)](), source.Sink{Frame: func(f media.EncodedFrame) {
			if len(f.Data) == 0 {
				t.Error("a picture without data")
			}
		}})
		seq := uint16(0)
		for len(in) > 0 {
			n := min(int(in[0]&0x3f), len(in)-1)
			p := &rtp.Packet{Header: rtp.Header{
				Version: 2, SequenceNumber: seq, Timestamp: uint32(seq/2) * 3000, Marker: in[0]&0x40 != 0,
			}, Payload: in[1 : 1+n]}
			if in[0]&0x80 != 0 {
				seq++
			}
			seq++
			r.Packet(p)
			in = in[1+n:]
		}
	})
}

// latmElement is one access unit after its configuration (ISO 14496-3, table 1.41).
func latmElement(tb testing.TB) []byte {
	tb.Helper()
	b, err := mpeg4audio.AudioMuxElement{
		MuxConfigPresent: true,
		StreamMuxConfig: &mpeg4audio.StreamMuxConfig{Programs: []*mpeg4audio.StreamMuxConfigProgram{{
			Layers: []*mpeg4audio.StreamMuxConfigLayer{{
				AudioSpecificConfig: &mpeg4audio.AudioSpecificConfig{Type: mpeg4audio.ObjectTypeAACLC, SampleRate: 16000, ChannelConfig: 1},
			}},
		}}},
		Payloads: [][][][]byte{{{{0xde, 4, 0x12, 0x34}}}},
	}.Marshal()
	require.NoError(tb, err)
	return b
}

// The configuration may be in the stream only, before the first access unit or later.
func TestLATMInBand(t *testing.T) {
	whole := latmElement(t)
	packet := func(seq uint16, marker bool, payload []byte) *rtp.Packet {
		return &rtp.Packet{Header: rtp.Header{Version: 2, SequenceNumber: seq, Marker: marker}, Payload: payload}
	}
	n, err := rtsp.ReadLATM(&format.MPEG4AudioLATM{CPresent: true}, []*rtp.Packet{
		packet(1, true, []byte{0x82, 1, 2}), // as before, but nothing was before
		packet(2, true, whole),
		packet(3, false, whole[:5]),
		packet(4, true, whole[5:]),
	})
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

// FuzzLATM parses the sound of a camera.
func FuzzLATM(f *testing.F) {
	f.Add(latmElement(f), true)
	f.Add([]byte{4, 1, 2, 3, 4}, false)
	f.Fuzz(func(t *testing.T, in []byte, inband bool) {
		l := &format.MPEG4AudioLATM{CPresent: inband}
		if !inband {
			l.StreamMuxConfig = &mpeg4audio.StreamMuxConfig{}
			if l.StreamMuxConfig.Unmarshal(in) != nil {
				return
			}
		}
		p := &rtp.Packet{Header: rtp.Header{Version: 2, Marker: true}, Payload: in}
		_, err := rtsp.ReadLATM(l, []*rtp.Packet{p, p})
		require.NoError(t, err)
	})
}

// FuzzSDP parses the SDP of a camera.
func FuzzSDP(f *testing.F) {
	f.Add([]byte("v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n" +
		"a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0IAKeKQFAe2AtwEBAaQeJEV,aM48gA==\r\na=control:trackID=0\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		desc, err := describe(in)
		if err != nil {
			require.ErrorContains(t, err, "no media streams")
			return
		}
		for _, m := range desc.Medias {
			for _, form := range m.Formats {
				if r := rtsp.NewReader(form, source.Sink{Frame: func(media.EncodedFrame) {}}); r != nil {
					r.Packet(&rtp.Packet{Header: rtp.Header{Version: 2}, Payload: []byte{0x65, 0x88, 0}})
				}
			}
		}
	})
}
