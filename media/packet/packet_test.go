package packet_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pion/rtp"
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
