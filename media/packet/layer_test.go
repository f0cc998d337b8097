package packet_test

import (
	"testing"

	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/packet"
)

// TestBaseLayer: the lowest layer of a VP9 access unit is a frame of one layer with its own size, which can be rewritten.
func TestBaseLayer(t *testing.T) {
	t.Parallel()
	sizes := []byte{2<<5 | 0x10, 1, 64, 0, 180, 2, 128, 1, 104, 5, 0, 2, 208} // 320x180, 640x360, 1280x720
	layer := func(sid byte, body string) *rtp.Packet {
		b := []byte{0x80 | 0x20 | 0x08 | 0x04, 0x80, 5, sid << 1, 9} // I, L, B, E; picture 5; TL0PICIDX 9
		if sid == 0 {
			b[0] |= 0x02
			b = append(b, sizes...)
		}
		return &rtp.Packet{Payload: append(b, body...)}
	}
	f := media.EncodedFrame{
		Codec: media.VP9, KeyFrame: true, Width: 1280, Height: 720, SpatialLayers: 3, Data: []byte("lowmidtop"),
		Packets: []*rtp.Packet{layer(0, "low"), layer(1, "mid"), layer(2, "top")},
	}
	base := packet.BaseLayer(f)
	require.Equal(t, []int{1, 320, 180}, []int{base.SpatialLayers, base.Width, base.Height})
	require.Equal(t, "low", string(base.Data))
	require.Equal(t, f.Packets[:1], base.Packets)
	out, err := packet.NewRewriter(1, 1).Packets(base, start())
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.True(t, out[0].Marker)
	require.Equal(t, 3, f.SpatialLayers, "the frame itself is not changed")

	f.Codec = media.AV1
	require.Equal(t, f, packet.BaseLayer(f))
}
