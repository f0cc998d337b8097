//go:build integration

package room_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
	"touchline/agent/room/conn"
)

// TestCameraThatDoesNotAllow: the bot says that it may not watch a camera, stays in the room, and watches once it may.
func TestCameraThatDoesNotAllow(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	eventually(t, func() bool { return cam.CurrentRoom() != nil }, "the camera joins")
	cam.CurrentRoom().LocalParticipant.SetSubscriptionPermission(&livekit.SubscriptionPermission{})
	bot := startBot(t, s, nil)
	eventually(t, func() bool { return strings.Contains(bot.Watcher().Away(), "does not let the commentator watch") }, "the reason")
	<-time.After(25 * time.Second) // longer than any stall
	require.EqualValues(t, 1, bot.Joins())
	cam.CurrentRoom().LocalParticipant.SetSubscriptionPermission(&livekit.SubscriptionPermission{AllParticipants: true})
	frame(t, bot)
	eventually(t, func() bool { return bot.Watcher().Away() == "" }, "no reason")
	require.EqualValues(t, 1, bot.Joins())
}

// A camera that allows only the bot to subscribe hides its picture and sound from clients that subscribe to
// everything, as in docs/watching.md: they get the tracks of the bot, and nothing twice.
func TestCameraForTheBotAlone(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	chirp(t, cam, 1)
	eventually(t, func() bool { return cam.CurrentRoom() != nil }, "the camera joins")
	cam.CurrentRoom().LocalParticipant.SetSubscriptionPermission(&livekit.SubscriptionPermission{
		TrackPermissions: []*livekit.TrackPermission{{ParticipantIdentity: "bot", AllTracks: true}},
	})
	e := &ear{}
	bot := startBot(t, s, func(o *room.Options) { o.Sound = e })
	pump(t, bot)
	frame(t, bot)
	e.hears(t, 1, "the bot hears the camera")
	run(t, pace(frameGap, func(n uint32) error {
		_, err := bot.Sound().WriteOpus([]byte{0x78, 9, 9, 9, 9}, n*960, n == 0)
		return err
	}))

	var mu sync.Mutex
	got := map[string]bool{}
	cb := lksdk.NewRoomCallback()
	cb.OnTrackSubscribed = func(_ *webrtc.TrackRemote, pub *lksdk.RemoteTrackPublication, who *lksdk.RemoteParticipant) {
		mu.Lock()
		got[who.Identity()+" "+pub.Name()] = true
		mu.Unlock()
	}
	token, err := conn.ViewerToken(s.keys(), conn.Person{Room: "match", Identity: "ann"})
	require.NoError(t, err)
	everything := lksdk.NewRoom(cb)
	require.NoError(t, everything.JoinWithContextAndToken(t.Context(), s.URL(), token, lksdk.WithDisableTURN()))
	t.Cleanup(everything.Disconnect)
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= 3
	}, "picture, voice and sound of the bot")
	flows(t, bot, joinViewer(t, s, "bob"), "it goes on") // which takes longer than a subscription
	mu.Lock()
	require.Len(t, got, 3)
	for what := range got {
		require.Contains(t, what, "bot ")
	}
	mu.Unlock()

	// Without it all is there twice.
	cam.CurrentRoom().LocalParticipant.SetSubscriptionPermission(&livekit.SubscriptionPermission{AllParticipants: true})
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == 5
	}, "the camera's own picture and sound")
}
