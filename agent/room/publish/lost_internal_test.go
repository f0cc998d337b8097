package publish

import (
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/media"
)

// TestCameraAfterALostFrame: after a frame that was not sent, only a key frame can be decoded.
func TestCameraAfterALostFrame(t *testing.T) {
	t.Parallel()
	asked := 0
	c, err := NewCameraPublisher(CameraOptions{
		URL: "ws://livekit.invalid", Keys: conn.Keys{APIKey: "key", APISecret: "secret"}, Room: "match", Identity: "cam",
		OnKeyFrame: func() { asked++ },
	})
	require.NoError(t, err)
	track := boundTrack(t, webrtc.MimeTypeVP8)
	c.inner, c.codec = track, media.VP8
	write := func(key bool, data string) bool {
		written, err := c.WriteFrame(media.EncodedFrame{Codec: media.VP8, KeyFrame: key, Data: []byte(data)})
		require.Equal(t, data == "", err != nil)
		return !written.IsZero()
	}
	require.True(t, write(true, "key"))
	require.True(t, write(false, "delta"))
	require.False(t, write(false, ""), "this gives no packet")
	require.False(t, write(false, "delta"), "a delta after the lost frame")
	require.Equal(t, 1, asked)
	require.True(t, write(true, "key"))
	require.True(t, write(false, "delta"))
	require.Equal(t, 1, asked)
}

// TestCameraKnowsTheEndOfItsToken: it does not join for ever with a ready token that has expired.
func TestCameraKnowsTheEndOfItsToken(t *testing.T) {
	t.Parallel()
	token, err := conn.CameraToken(conn.Keys{APIKey: "key", APISecret: "secret"}, conn.Person{Room: "match", Identity: "cam"})
	require.NoError(t, err)
	c, err := NewCameraPublisher(CameraOptions{URL: "ws://livekit.invalid", Token: token})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), c.conn.Expires, time.Minute)
}
