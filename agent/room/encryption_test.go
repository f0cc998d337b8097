//go:build integration

package room_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/room/publish"
	"touchline/media"
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

// TestEncryptedOwnCamera: Touchline's cameras encrypt in a room with a key, and the bot with the key reads them, byte for byte.
func TestEncryptedOwnCamera(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	keys := s.keys()
	keys.E2EE = "match=a key"
	c, err := newTestCamera(publish.CameraOptions{
		URL: s.URL(), Keys: keys, Room: "match", Identity: "cam", LoopbackOnly: true, Log: testLog(t),
	})
	require.NoError(t, err)
	sets := []byte{0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1f, 0xda, 0x02, 0x80, 0xf6, 0x84, 0, 0, 0, 1, 0x68, 0xce, 0x3c, 0x80}
	slice := append([]byte{0x65, 0x88}, bytes.Repeat([]byte{0, 0, 7}, 2000)...)
	frames := make(chan media.EncodedFrame)
	run(t, func(ctx context.Context) error { return c.Run(ctx, frames) })
	run(t, pace(frameGap, func(n uint32) error {
		frames <- media.EncodedFrame{
			Codec: media.H264, KeyFrame: true, PTS: time.Duration(n) * frameGap, Width: 1280, Height: 720, SpatialLayers: 1,
			Data: bytes.Join([][]byte{{0, 0, 0, 1, 9, 0xf0}, sets, {0, 0, 1}, slice}, nil), // with a delimiter and a short start code
		}
		return nil
	}))
	e := &ear{}
	run(t, pace(20*time.Millisecond, func(n uint32) error {
		_, err := c.WriteOpus([]byte{0x78, 5, 2, 3, 4, 5}, n*960, false)
		return err
	}))
	bot := startBot(t, s, func(o *room.Options) { o.Keys, o.Sound = keys, e })
	f := frame(t, bot)
	require.Equal(t, media.H264, f.Codec)
	require.Equal(t, bytes.Join([][]byte{sets, {0, 0, 0, 1}, slice}, nil), f.Data)
	require.Empty(t, f.Packets)
	e.hears(t, 5, "the camera's sound")

	stranger := startBot(t, s, func(o *room.Options) { o.Identity = "stranger" })
	eventually(t, func() bool { return stranger.Watcher().Away() != "" }, "the reason")
}
