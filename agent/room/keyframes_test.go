//go:build integration

package room_test

import (
	"context"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/media/delay"
	"touchline/media/fanout"
)

// nextAsked waits for the next request.
func (c *testCamera) nextAsked(t *testing.T) {
	t.Helper()
	before := c.keyFrames.Load()
	eventually(t, func() bool { return c.keyFrames.Load() > before }, "a key frame is asked for")
}

// TestKeyFramesAreAskedFor: the camera gets requests with and without viewers, which are counted. TestKeyFrameInterval has the
// intervals.
func TestKeyFramesAreAskedFor(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	frame(t, bot)
	pump(t, bot)
	eventually(t, func() bool { return bot.VideoSID() != "" }, "the delayed picture is published")
	cam.nextAsked(t)
	require.Zero(t, bot.Viewers())

	v := joinViewer(t, s, "ann")
	eventually(t, func() bool { return bot.Viewers() == 1 && len(v.media(bot.VideoSID())) > 0 }, "a viewer is there")
	cam.nextAsked(t)

	v.room.Disconnect()
	eventually(t, func() bool { return bot.Viewers() == 0 }, "the viewer is gone")
	cam.nextAsked(t)
}

// TestLateViewerOfAStillPicture: a viewer that joins while the camera sends nothing gets the frames since the last key frame at once.
func TestLateViewerOfAStillPicture(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	pictures := fanout.NewPictures(fanout.Options{Room: bot.Relay()})
	bot.Relay().Replay = pictures.Replay
	run(t, func(ctx context.Context) error {
		for {
			f, err := bot.Watcher().ReadFrame(ctx)
			if err != nil {
				return nil //nolint:nilerr // the test is over
			}
			if _, err := pictures.WriteFrame(delay.OutFrame{EncodedFrame: f, Due: f.Arrival}); err != nil {
				return err
			}
		}
	})
	ann := joinViewer(t, s, "ann")
	eventually(t, func() bool { return len(ann.media(bot.VideoSID())) > 5 }, "it flows")
	cam.paused.Store(true)
	<-time.After(2 * time.Second)
	late := joinViewer(t, s, "late")
	eventually(t, func() bool { return len(late.media(bot.VideoSID())) > 0 }, "the still picture")
	require.True(t, cam.paused.Load())
}

// TestKeyFrameAskedOnPLI has another agent lose our picture: it is no viewer,
// so the next request would be up to 4 s away.
func TestKeyFrameAskedOnPLI(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	frame(t, bot)
	pump(t, bot)

	type delayed struct {
		track *webrtc.TrackRemote
		from  *lksdk.RemoteParticipant
	}
	picture := make(chan delayed, 1)
	cb := lksdk.NewRoomCallback()
	cb.OnTrackSubscribed = func(tr *webrtc.TrackRemote, _ *lksdk.RemoteTrackPublication, p *lksdk.RemoteParticipant) {
		if p.Identity() != bot.Identity() {
			return
		}
		if tr.Kind() == webrtc.RTPCodecTypeVideo {
			picture <- delayed{tr, p}
		}
		go func() {
			for {
				if _, _, err := tr.ReadRTP(); err != nil {
					return
				}
			}
		}()
	}
	token, err := conn.AgentToken(s.keys(), conn.Person{Room: "match", Identity: "another agent"})
	require.NoError(t, err)
	other := lksdk.NewRoom(cb)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, other.JoinWithContextAndToken(ctx, s.URL(), token, lksdk.WithDisableTURN()))
	t.Cleanup(other.Disconnect)
	var p delayed
	select {
	case p = <-picture:
	case <-ctx.Done():
		require.FailNow(t, "expected the delayed picture at the other agent")
	}

	// The beginning asks on its own; a quiet second and a half shows that only
	// the regular request is left, 4 s after the one before.
	eventually(t, func() bool {
		n := cam.keyFrames.Load()
		<-time.After(1500 * time.Millisecond)
		return cam.keyFrames.Load() == n
	}, "no requests")
	require.Zero(t, bot.Viewers())
	took := time.Hour
	for tries := 5; tries > 0 && took >= 3*time.Second; tries-- { // a busy machine may be late; the regular request comes after 4 s
		before := cam.keyFrames.Load()
		lost := time.Now()
		p.from.WritePLI(p.track.SSRC())
		eventually(t, func() bool { return cam.keyFrames.Load() > before }, "the camera is asked")
		took = time.Since(lost)
		t.Logf("asked %v after the loss", took)
	}
	require.Less(t, took, 3*time.Second)
}
