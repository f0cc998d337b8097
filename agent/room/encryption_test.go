//go:build integration

package room_test

import (
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
	"touchline/agent/room/conn"
)

// TestEncryptedCamera: a camera that is encrypted end to end is not read, nor its microphone, and the bot says why, until there is one in
// the clear.
func TestEncryptedCamera(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	token, err := conn.CameraToken(s.keys(), conn.Person{Room: "match", Identity: "locked"})
	require.NoError(t, err)
	person := lksdk.NewRoom(nil)
	require.NoError(t, person.JoinWithContextAndToken(t.Context(), s.URL(), token, lksdk.WithAutoSubscribe(false), lksdk.WithDisableTURN()))
	t.Cleanup(person.Disconnect)
	for mime, from := range map[string]livekit.TrackSource{
		webrtc.MimeTypeVP8: livekit.TrackSource_CAMERA, webrtc.MimeTypeOpus: livekit.TrackSource_MICROPHONE,
	} {
		c := webrtc.RTPCodecCapability{MimeType: mime, ClockRate: 90000}
		if mime == webrtc.MimeTypeOpus {
			c.ClockRate, c.Channels = 48000, 2
		}
		track, err := lksdk.NewLocalTrack(c)
		require.NoError(t, err)
		_, err = person.LocalParticipant.PublishTrack(track, &lksdk.TrackPublicationOptions{Source: from, Encryption: livekit.Encryption_GCM})
		require.NoError(t, err)
		run(t, pace(20*time.Millisecond, func(n uint32) error {
			_ = track.WriteRTP(&rtp.Packet{
				Header: rtp.Header{Version: 2, Marker: true, SequenceNumber: uint16(n), Timestamp: n * 1800}, Payload: []byte{0x10, 1, 2, 3, 4, 5, 6, 7},
			}, nil)
			return nil
		}))
	}
	e := &ear{}
	bot := startBot(t, s, func(o *room.Options) { o.Sound = e })
	pump(t, bot)
	eventually(t, func() bool {
		return bot.Watcher().Away() == "the camera is end-to-end encrypted; this commentator has no key"
	}, "the reason")
	require.Empty(t, bot.Watcher().Source().Identity)
	<-time.After(2 * time.Second)
	require.Zero(t, bot.Watcher().Stats().Packets)
	startCamera(t, s, "open", 640, 360)
	eventually(t, func() bool { return bot.Watcher().Source().Identity == "open" && bot.Watcher().Away() == "" }, "the other camera")
}
