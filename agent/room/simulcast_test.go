//go:build integration

package room_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
	pionmedia "github.com/pion/webrtc/v4/pkg/media"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/media"
)

// layer is one resolution of a simulcast camera.
type layer struct {
	quality       livekit.VideoQuality
	width, height int
	bytes         int // of a picture
	want          atomic.Bool
	track         *lksdk.LocalTrack
}

// startSimulcast publishes one VP8 camera in three resolutions, by the client library's own means.
func startSimulcast(t *testing.T, s *server, identity string) {
	t.Helper()
	token, err := conn.CameraToken(s.keys(), conn.Person{Room: "match", Identity: identity})
	require.NoError(t, err)
	r, err := lksdk.ConnectToRoomWithToken(s.URL(), token, lksdk.NewRoomCallback(), lksdk.WithAutoSubscribe(false))
	require.NoError(t, err)
	t.Cleanup(r.Disconnect)
	layers := []*layer{
		{quality: livekit.VideoQuality_LOW, width: 320, height: 180, bytes: 200},
		{quality: livekit.VideoQuality_MEDIUM, width: 640, height: 360, bytes: 500},
		{quality: livekit.VideoQuality_HIGH, width: 1280, height: 720, bytes: 1100},
	}
	var tracks []*lksdk.LocalTrack
	for _, l := range layers {
		l.want.Store(true)
		l.track, err = lksdk.NewLocalTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8, ClockRate: media.VideoClockRate},
			lksdk.WithSimulcast("camera", &livekit.VideoLayer{
				Quality: l.quality, Width: uint32(l.width), Height: uint32(l.height), Bitrate: uint32(8 * 25 * l.bytes),
			}), lksdk.WithRTCPHandler(func(p rtcp.Packet) {
				if _, ok := p.(*rtcp.PictureLossIndication); ok {
					l.want.Store(true)
				}
			}))
		require.NoError(t, err)
		tracks = append(tracks, l.track)
	}
	_, err = r.LocalParticipant.PublishSimulcastTrack(tracks, &lksdk.TrackPublicationOptions{
		Name: "camera", Source: livekit.TrackSource_CAMERA, VideoWidth: 1280, VideoHeight: 720,
	})
	require.NoError(t, err)
	run(t, pace(frameGap, func(n uint32) error {
		for _, l := range layers {
			if !l.track.IsBound() {
				continue
			}
			data := vp8(l.want.Swap(false), l.width, l.height, l.bytes, n)
			if err := l.track.WriteSample(pionmedia.Sample{Data: data, Duration: frameGap}, nil); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestSimulcastLayer: with the delayed copy on, the highest layer is watched; with it off, the
// smallest that has the size the engine needs.
func TestSimulcastLayer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		relay    bool
		longSide int
		want     int // width of the pictures that come
	}{
		{"delayed copy", true, 448, 1280},
		{"engine alone", false, 448, 640},
		{"engine with small pictures", false, 256, 320},
		{"engine with large pictures", false, 1280, 1280},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			startSimulcast(t, s, "cam")
			bot := startBot(t, s, func(o *room.Options) { o.Relay, o.LongSide = tt.relay, tt.longSide })
			// The server begins with any layer and switches to the requested one. From then on it stays: a
			// layer is pinned, not taken as the way allows.
			const stays = 75 // pictures, 3 s
			row, changes := 0, 0
			for end := time.Now().Add(2 * patience); row < stays; {
				require.True(t, time.Now().Before(end), "%d pictures of width %d in a row, after %d changes", row, tt.want, changes)
				if f := frame(t, bot); f.Width == tt.want {
					row++
				} else if row > 0 {
					row, changes = 0, changes+1
				}
			}
			require.LessOrEqual(t, changes, 1, "the layer changes")
			source := bot.Watcher().Source()
			require.Equal(t, tt.want, source.Width)
			require.Equal(t, tt.want*9/16, source.Height)
		})
	}
}
