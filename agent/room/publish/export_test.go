package publish

import (
	"net"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/media"
)

// boundTrack returns a track whose packets go to a peer on loopback.
func boundTrack(t *testing.T, mime string) *lksdk.LocalTrack {
	t.Helper()
	track, err := lksdk.NewLocalTrack(webrtc.RTPCodecCapability{MimeType: mime, ClockRate: media.VideoClockRate})
	require.NoError(t, err)
	from, to := Peers(t)
	_, err = from.AddTrack(track)
	require.NoError(t, err)
	Connect(t, from, to)
	require.Eventually(t, track.IsBound, 2*time.Minute, 5*time.Millisecond)
	return track
}

// Peers makes two ends on loopback.
func Peers(t *testing.T) (from, to *webrtc.PeerConnection) {
	t.Helper()
	var engine webrtc.SettingEngine
	engine.SetIncludeLoopbackCandidate(true)
	engine.SetIPFilter(func(ip net.IP) bool { return ip.IsLoopback() && ip.To4() != nil })
	engine.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	api := webrtc.NewAPI(webrtc.WithSettingEngine(engine))
	var out [2]*webrtc.PeerConnection
	for i := range out {
		pc, err := api.NewPeerConnection(webrtc.Configuration{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pc.GracefulClose()) })
		out[i] = pc
	}
	return out[0], out[1]
}

// Connect joins them, candidates inside the descriptions.
func Connect(t *testing.T, from, to *webrtc.PeerConnection) {
	t.Helper()
	offer, err := from.CreateOffer(nil)
	require.NoError(t, err)
	gathered := webrtc.GatheringCompletePromise(from)
	require.NoError(t, from.SetLocalDescription(offer))
	<-gathered
	require.NoError(t, to.SetRemoteDescription(*from.LocalDescription()))
	answer, err := to.CreateAnswer(nil)
	require.NoError(t, err)
	gathered = webrtc.GatheringCompletePromise(to)
	require.NoError(t, to.SetLocalDescription(answer))
	<-gathered
	require.NoError(t, from.SetRemoteDescription(*to.LocalDescription()))
}

// VoiceTo returns a voice that writes to inner.
func VoiceTo(inner *lksdk.LocalTrack) *VoiceTrack {
	return &VoiceTrack{localTrack: localTrack{inner: inner}, log: zerolog.Nop()}
}

// PacketsPerStep is how many packets of a frame of n leave together.
func PacketsPerStep(n int) int { return packetsPerStep(n) }
