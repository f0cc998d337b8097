package packet_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/packet"
)

func TestPacker(t *testing.T) {
	t.Parallel()
	for _, codec := range codecsUnderTest() {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			now := start()
			data := bitstream(codec, parts(rand.New(rand.NewPCG(1, 2)), codec, true, 5000))
			p := packet.NewPacker(65534, 0xfffffff0)
			var last *rtp.Packet
			for n := range 3 {
				f := media.EncodedFrame{Codec: codec, KeyFrame: true, PTS: time.Duration(n) * time.Second / 30, Data: data}
				packets, err := p.Packets(f, now)
				require.NoError(t, err)
				require.Greater(t, len(packets), 3)
				for i, q := range packets {
					require.LessOrEqual(t, len(q.Payload), packet.MaxPayload)
					require.Equal(t, i == len(packets)-1, q.Marker)
					if last != nil {
						require.Equal(t, last.SequenceNumber+1, q.SequenceNumber)
						if i == 0 {
							require.InDelta(t, 3000, float64(q.Timestamp-last.Timestamp), 1)
						}
					}
					last = q
				}
			}
			// A restarted source begins at PTS 0; its timestamps continue.
			packets, err := p.Packets(media.EncodedFrame{Codec: codec, KeyFrame: true, Epoch: 1, Data: data}, now.Add(time.Second))
			require.NoError(t, err)
			ahead := packets[0].Timestamp - last.Timestamp
			require.Equal(t, uint32(media.VideoClockRate), ahead)
		})
	}
	_, err := packet.NewPacker(65534, 0xfffffff0).Packets(media.EncodedFrame{Data: []byte{1}}, start())
	require.ErrorContains(t, err, "codec")
	_, err = packet.NewPacker(65534, 0xfffffff0).Packets(media.EncodedFrame{Codec: media.VP8}, start())
	require.ErrorContains(t, err, "VP8")
}

func TestNTPTime(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 11, 21, 3, 4, 5, 500_000_000, time.UTC)
	ntp := uint64(want.Unix()+2208988800)<<32 | math.MaxUint32/2
	require.WithinDuration(t, want, packet.NTPTime(ntp), time.Microsecond)
}

// TestCanonical: what a receiver of a frame's packets joins, with the start codes of its own, is the canonical frame.
func TestCanonical(t *testing.T) {
	t.Parallel()
	var b []byte
	for i, nal := range [][]byte{{9, 0xf0}, {0x67, 1, 2}, {0x68, 3}, {0x28, 4}, {12, 0xff, 0xff}, {6, 5, 1, 7}, {0x65, 0x88, 4}, {0x65, 0x40, 5}} {
		b = append(append(b, []byte{0, 0, 0, 1}[i%2:]...), nal...)
	}
	want := []byte{0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x68, 3, 0, 0, 0, 1, 0x28, 4, 0, 0, 0, 1, 6, 5, 1, 7, 0, 0, 0, 1, 0x65, 0x88, 4, 0, 0, 0, 1, 0x65, 0x40, 5}
	require.Equal(t, want, packet.Canonical(b))
	require.Equal(t, want, packet.Canonical(want))
	require.Empty(t, packet.Canonical([]byte{0, 0, 1}))
	require.Empty(t, packet.Canonical([]byte{1, 2, 3}))

	packets, err := packet.NewPacker(1, 1).Packets(media.EncodedFrame{Codec: media.H264, Data: b}, start())
	require.NoError(t, err)
	var joined []byte
	h264 := &codecs.H264Packet{}
	for _, p := range packets {
		part, err := h264.Unmarshal(p.Payload)
		require.NoError(t, err)
		joined = append(joined, part...)
	}
	require.Equal(t, want, joined)
}
