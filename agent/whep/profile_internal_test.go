package whep

import (
	"testing"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/media"
)

// TestProfile: a player gets the picture under the payload type that fits its sequence parameter set.
func TestProfile(t *testing.T) {
	t.Parallel()
	sps := func(idc, constraints byte) media.EncodedFrame {
		return media.EncodedFrame{Codec: media.H264, KeyFrame: true, Data: []byte{0, 0, 0, 1, 0x09, 0xf0, 0, 0, 0, 1, 0x67, idc, constraints, 0x32, 0xac, 0}}
	}
	browser := []string{"42001f", "42e01f", "4d001f", "640c1f"}
	for _, tt := range []struct {
		name    string
		picture media.EncodedFrame
		offered []string
		want    string
	}{
		{"high", sps(0x64, 0), []string{"640c1f", "42e01f"}, "640c1f"},
		{"high among all", sps(0x64, 0x0c), browser, "640c1f"},
		{"main", sps(0x4d, 0), browser, "4d001f"},
		{"main for a player of high", sps(0x4d, 0), []string{"42e01f", "64001f"}, "64001f"},
		{"baseline", sps(0x42, 0), browser, "42001f"},
		{"constrained baseline", sps(0x42, 0xe0), browser, "42e01f"},
		{"no parameter set", media.EncodedFrame{Codec: media.H264, Data: []byte{0, 0, 1, 0x65}}, browser, "42e01f"},
		{"a player of one profile", sps(0x64, 0), []string{"42e01f"}, "42e01f"},
		{"high 4:2:2", sps(0x7a, 0), browser, "42e01f"},
		{"default", sps(0x42, 0), []string{""}, ""},
		{"not hexadecimal", sps(0x64, 0), []string{"zz"}, "zz"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := &offer{}
			for _, id := range tt.offered {
				fmtp := "level-asymmetry-allowed=1;packetization-mode=1"
				if id != "" {
					fmtp += ";profile-level-id=" + id
				}
				o.video = append(o.video, webrtc.RTPCodecParameters{RTPCodecCapability: webrtc.RTPCodecCapability{
					MimeType: webrtc.MimeTypeH264, SDPFmtpLine: fmtp,
				}})
			}
			got, ok := o.parameters(media.H264, profileOf(tt.picture))
			require.True(t, ok)
			require.Contains(t, got.SDPFmtpLine, tt.want)
		})
	}
	_, ok := (&offer{}).parameters(media.VP8, constrainedBaseline)
	require.False(t, ok)
}
