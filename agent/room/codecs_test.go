//go:build integration

package room_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/sfu"
	"touchline/media"
	"touchline/media/delay"
)

// TestRoomWithoutTheCodec: a delayed picture that the room does not allow is not published, with a reason. The bot stays, and publishes a
// picture that the room allows.
func TestRoomWithoutTheCodec(t *testing.T) {
	t.Parallel()
	s := startServerWith(t, sfu.Options{VideoCodecs: []string{"video/vp8"}})
	bot := startBot(t, s, nil)
	v := joinViewer(t, s, "ann")
	run(t, pace(20*time.Millisecond, func(n uint32) error {
		_, err := bot.Voice().WriteOpus([]byte{0x78, 1, 2, 3, 4, 5}, n*960, n%50 == 0)
		return err
	}))
	eventually(t, func() bool { return bot.VoiceSID() != "" }, "the voice is published")
	require.False(t, bot.Carries(media.H264))
	require.True(t, bot.Carries(media.VP8))
	for began := time.Now(); time.Since(began) < 8*time.Second; time.Sleep(40 * time.Millisecond) {
		_, err := bot.Relay().WriteFrame(delay.OutFrame{EncodedFrame: media.EncodedFrame{
			Codec: media.H264, KeyFrame: true, Width: 640, Height: 360, SpatialLayers: 1, Data: []byte{0, 0, 0, 1, 0x65, 1, 2},
		}, Due: time.Now()})
		require.NoError(t, err)
	}
	require.Contains(t, bot.Relay().Barred(), "the room does not allow pictures in H264")
	require.EqualValues(t, 1, bot.Joins())
	require.NotEmpty(t, v.media(bot.VoiceSID()))
	eventually(t, func() bool {
		p := v.room.GetParticipantByIdentity("bot")
		return p != nil && strings.Contains(p.Metadata(), "the room does not allow pictures in H264")
	}, "the reason is in the state")

	startCamera(t, s, "cam", 640, 360)
	pump(t, bot)
	flows(t, bot, v, "the picture in VP8")
	require.Empty(t, bot.Relay().Barred())
	require.EqualValues(t, 1, bot.Joins())
}
