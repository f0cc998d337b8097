//go:build integration

package room_test

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/media"
)

// sources records the reports of a bot about its source.
type sources struct {
	mu   sync.Mutex
	said []string
}

func (s *sources) note(info agent.SourceInfo, reason string) {
	s.mu.Lock()
	s.said = append(s.said, info.Identity+" "+reason)
	s.mu.Unlock()
}

func (s *sources) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.said...)
}

// drained is how many access units a bot has handed out so far; pump reads them all.
func drained(bot *room.Supervisor) uint64 { return bot.Watcher().Stats().Frames }

// flows waits until picture and voice of the bot reach the viewer on its present tracks.
func flows(t *testing.T, bot *room.Supervisor, v *viewer, what string) {
	t.Helper()
	frames := drained(bot)
	video, voice := len(v.media(bot.VideoSID())), len(v.media(bot.VoiceSID()))
	eventually(t, func() bool {
		return drained(bot) > frames+5 &&
			len(v.media(bot.VideoSID())) > video+5 && len(v.media(bot.VoiceSID())) > voice+5
	}, what)
}

// engineOf reaches the library's inside, for a message that the server sends only in trouble of its own.
func engineOf(r *lksdk.Room) *lksdk.RTCEngine {
	return (*lksdk.RTCEngine)(reflect.ValueOf(r).Elem().FieldByName("engine").UnsafePointer())
}

// TestFaults covers every way a connection is known to break: each time frames must flow again and both
// tracks be published again.
func TestFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		inject func(r *lksdk.Room)
	}{
		{"the signal connection drops", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateSignalReconnect) }},
		{"the node fails", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateNodeFailure) }},
		{"the session migrates", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateMigration) }},
		{"the server says leave", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateServerLeave) }},
		{"the server says reconnect", func(r *lksdk.Room) {
			engineOf(r).OnLeave(&livekit.LeaveRequest{Action: livekit.LeaveRequest_RECONNECT})
		}},
	}
	s := startServer(t)
	startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	v := joinViewer(t, s, "ann")
	pump(t, bot)
	flows(t, bot, v, "flows at the start")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := bot.CurrentRoom()
			require.NotNil(t, r)
			joins, reconnects := bot.Joins(), bot.Reconnects()
			began := time.Now()
			tt.inject(r)
			struck := func() bool { return bot.Reconnects() != reconnects || bot.Joins() != joins }
			eventually(t, struck, "the fault strikes and is reconnected")
			flows(t, bot, v, "flows again")
			t.Logf("all flows again after %v (reconnected by the library %d times, %d new joins)",
				time.Since(began).Round(time.Millisecond), bot.Reconnects()-reconnects, bot.Joins()-joins)
		})
	}
}

func TestServerStopsAndComesBack(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var outages sync.Map
	bot := startBot(t, s, func(o *room.Options) { o.OnOutage = func(err error) { outages.Store(err.Error(), true) } })
	startCamera(t, s, "cam", 640, 360)
	pump(t, bot)
	flows(t, bot, joinViewer(t, s, "ann"), "flows at the start")
	s.stop()
	said := func() (n int) {
		outages.Range(func(any, any) bool { n++; return true })
		return n
	}
	eventually(t, func() bool { return said() > 0 }, "an attempt to join has failed")
	s.start()
	began := time.Now()
	eventually(t, func() bool { return bot.CurrentRoom() != nil && bot.VoiceSID() != "" }, "joined again")
	t.Logf("bot in the room again %v after the server's start", time.Since(began).Round(time.Millisecond))
	v := joinViewer(t, s, "ann again")
	flows(t, bot, v, "flows again")
	t.Logf("all flows again %v after the server's start", time.Since(began).Round(time.Millisecond))
}

func TestFirstCameraIsChosenAndChosenAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var said sources
	bot := startBot(t, s, func(o *room.Options) { o.OnSource = said.note })
	pump(t, bot)
	// Another agent's picture is never watched, whatever its source.
	other := startBot(t, s, func(o *room.Options) { o.Identity = "other bot" })
	first := startCamera(t, s, "first", 640, 360)
	watching := func(identity string) func() bool {
		return func() bool {
			src := bot.Watcher().Source()
			return src.Identity == identity && src.FPS > 0
		}
	}
	eventually(t, watching("first"), "the first camera")
	pump(t, other)
	eventually(t, func() bool { return other.VideoSID() != "" }, "the other agent publishes a camera")
	second := startCamera(t, s, "second", 320, 180)
	eventually(t, func() bool { return second.SID() != "" }, "second published")
	require.Equal(t, "first", bot.Watcher().Source().Identity, "a second camera changes nothing")

	bot.Watcher().Select(media.WatchConfig{Identity: "second"})
	eventually(t, watching("second"), "selected live")
	eventually(t, func() bool { return bot.Watcher().Source().Width == 320 }, "its own size")
	bot.Watcher().Select(media.WatchConfig{})
	began := time.Now()
	second.stop()
	eventually(t, watching("first"), "the other one when it goes")
	t.Logf("re-chosen after %v", time.Since(began).Round(time.Millisecond))
	first.stop()
	eventually(t, func() bool { return bot.Watcher().Source().Identity == "" }, "nothing left, not even the agent's")
	bot.Watcher().Select(media.WatchConfig{Identity: "other bot"})
	<-time.After(500 * time.Millisecond)
	require.Empty(t, bot.Watcher().Source().Identity, "an agent is not watched even by name")
	require.Contains(t, said.list(), "first watching")
	require.Contains(t, said.list(), "second gone")
}

func TestMute(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var said sources
	bot := startBot(t, s, func(o *room.Options) { o.OnSource = said.note })
	cam := startCamera(t, s, "cam", 640, 360)
	pump(t, bot)
	flows(t, bot, joinViewer(t, s, "ann"), "flows at the start")
	mute := func(muted bool) {
		for _, p := range cam.CurrentRoom().LocalParticipant.TrackPublications() {
			p.(*lksdk.LocalTrackPublication).SetMuted(muted)
		}
		cam.paused.Store(muted)
	}
	ownMuted := func() bool {
		for _, p := range bot.CurrentRoom().LocalParticipant.TrackPublications() {
			if p.SID() == bot.VideoSID() {
				return p.IsMuted()
			}
		}
		return false
	}
	mute(true)
	eventually(t, func() bool { return bot.Watcher().Source().Muted }, "the mute is seen")
	eventually(t, ownMuted, "and mirrored")
	joins := bot.Joins()
	mute(false)
	n := drained(bot)
	eventually(t, func() bool { return drained(bot) > n+5 && !ownMuted() }, "back")
	require.Equal(t, []string{"cam watching", "cam muted", "cam back"}, said.list())
	require.Equal(t, joins, bot.Joins(), "a mute is no fault")

	api := lksdk.NewRoomServiceClient(s.URL(), s.APIKey(), s.APISecret())
	_, err := api.MutePublishedTrack(t.Context(), &livekit.MuteRoomTrackRequest{Room: "match", Identity: "bot", TrackSid: bot.VideoSID(), Muted: true})
	require.NoError(t, err)
	eventually(t, ownMuted, "a moderator's mute")
	mute(true)
	<-time.After(2 * time.Second)
	mute(false)
	<-time.After(time.Second)
	require.True(t, ownMuted(), "stays")
}

// TestSilentCamera: a camera that is present but sends nothing gets a key frame request and a new subscription;
// then the bot blames the camera and stays in the room.
func TestSilentCamera(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var said sources
	bot := startBot(t, s, func(o *room.Options) { o.OnSource = said.note })
	cam := startCamera(t, s, "cam", 640, 360)
	pump(t, bot)
	eventually(t, func() bool { return drained(bot) > 10 }, "flows at the start")
	subscriptions := bot.Watcher().Stats().Sources
	began := time.Now()
	cam.paused.Store(true)
	eventually(t, func() bool { return bot.Watcher().Away() != "" }, "the camera is found to be silent")
	t.Logf("%q is said after %v", bot.Watcher().Away(), time.Since(began).Round(time.Millisecond))
	require.Greater(t, bot.Watcher().Stats().Sources, subscriptions, "a new subscription")
	n := drained(bot)
	began = time.Now()
	cam.paused.Store(false)
	eventually(t, func() bool { return drained(bot) > n }, "back")
	t.Logf("back %v after the camera", time.Since(began).Round(time.Millisecond))
	eventually(t, func() bool { return bot.Watcher().Away() == "" }, "and said")
	require.Equal(t, []string{"cam watching", "cam silent", "cam back"}, said.list())
	require.EqualValues(t, 1, bot.Joins())
}

// TestHungCamera: the camera's process is stopped, continued, and killed in the end. Voice and
// delayed picture keep their tracks through all of it.
func TestHungCamera(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	bot := startBot(t, s, nil)
	cam := startCameraProcess(t, s, "cam")
	v := joinViewer(t, s, "ann")
	pump(t, bot)
	flows(t, bot, v, "flows at the start")
	voice, video := bot.VoiceSID(), bot.VideoSID()
	began := time.Now()
	require.NoError(t, cam.Process.Signal(syscall.SIGSTOP))
	eventually(t, func() bool { return bot.Watcher().Away() != "" }, "the camera is found to be silent")
	t.Logf("%q is said after %v", bot.Watcher().Away(), time.Since(began).Round(time.Millisecond))
	<-time.After(time.Until(began.Add(10 * time.Second))) // a second after a dead connection would be given up
	heard := len(v.media(voice))
	n := drained(bot)
	began = time.Now()
	require.NoError(t, cam.Process.Signal(syscall.SIGCONT))
	eventually(t, func() bool { return drained(bot) > n+10 && bot.Watcher().Away() == "" }, "back")
	t.Logf("back %v after the camera", time.Since(began).Round(time.Millisecond))
	eventually(t, func() bool { return len(v.media(voice)) > heard+10 }, "the voice went on")

	began = time.Now()
	require.NoError(t, cam.Process.Kill())
	eventually(t, func() bool { return bot.Watcher().Source().Identity == "" || bot.Watcher().Away() != "" }, "killed")
	t.Logf("%q, participant %q, after %v", bot.Watcher().Away(), bot.Watcher().Source().Identity, time.Since(began).Round(time.Millisecond))
	require.EqualValues(t, 1, bot.Joins())
	require.Zero(t, bot.Reconnects())
	require.Equal(t, voice, bot.VoiceSID())
	require.Equal(t, video, bot.VideoSID())
}

// TestDeadConnection: the subscriber connection ends silently, and the library does not notice.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	bot := startBot(t, s, nil)
	startCamera(t, s, "cam", 640, 360)
	pump(t, bot)
	eventually(t, func() bool { return drained(bot) > 10 }, "flows at the start")
	began := time.Now()
	require.NoError(t, bot.CurrentRoom().LocalParticipant.GetSubscriberPeerConnection().Close())
	eventually(t, func() bool { return bot.Joins() > 1 }, "joined again")
	joined := time.Since(began)
	n := drained(bot)
	eventually(t, func() bool { return drained(bot) > n+10 }, "back")
	t.Logf("joined again after %v, picture after %v", joined.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	require.Empty(t, bot.Watcher().Away())
}

// TestForgottenSubscription: the server has forgotten that we want the track, as it does in some of the library's
// reconnects; other participants do not notice.
func TestForgottenSubscription(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	bot := startBot(t, s, nil)
	startCamera(t, s, "cam", 640, 360)
	pump(t, bot)
	eventually(t, func() bool { return drained(bot) > 10 }, "flows at the start")
	began := time.Now()
	for _, p := range bot.CurrentRoom().GetParticipantByIdentity("cam").TrackPublications() {
		require.NoError(t, p.(*lksdk.RemoteTrackPublication).SetSubscribed(false))
	}
	eventually(t, func() bool { return bot.Watcher().Source().FPS == 0 }, "the picture is away")
	n := drained(bot)
	eventually(t, func() bool { return drained(bot) > n+10 }, "back")
	t.Logf("back after %v", time.Since(began).Round(time.Millisecond))
	require.EqualValues(t, 1, bot.Joins())
}

// TestPublishingEndsWithTheConnection: the library waits 10 s for the answer to a publication, also when the
// connection has broken and the answer with it. Here the server keeps it to itself for want of a right.
func TestPublishingEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	v := joinViewer(t, s, "ann")
	tests := []struct {
		name      string
		interrupt func(gone, reconnecting func())
		want      string
	}{
		{"the session is over", func(gone, _ func()) { gone() }, "disconnected"},
		{"the connection breaks", func(_, reconnecting func()) { reconnecting() }, "connection was lost"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.ErrorContains(t, room.PublishUnanswered(v.room, tt.interrupt), tt.want)
			// The library has given it an empty name: it no longer waits.
			eventually(t, func() bool { return len(v.room.LocalParticipant.TrackPublications()) > 0 }, "nothing waits")
		})
	}
}

func TestSlowReaderLosesUpToTheNextKeyFrame(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	eventually(t, func() bool { return bot.Watcher().Stats().Dropped > 5 }, "the queue is bounded and losses counted")
	prev := frame(t, bot)
	require.True(t, prev.KeyFrame)
	jumps := 0
	for range 120 {
		f := frame(t, bot)
		if number(f) != number(prev)+1 {
			jumps++
			require.True(t, f.KeyFrame, "what follows a loss begins with a key frame")
		}
		prev = f
	}
	require.Positive(t, jumps)
}

func TestReadyTokenOfAnotherKind(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	startCamera(t, s, "cam", 640, 360)
	token, err := conn.ViewerToken(s.keys(), conn.Person{Room: "match", Identity: "guest"})
	require.NoError(t, err)
	guest := startBot(t, s, func(o *room.Options) {
		o.Token, o.Keys, o.Identity, o.Room = token, conn.Keys{}, "", ""
	})
	require.True(t, frame(t, guest).KeyFrame, "it watches with what rights there are")
	require.Empty(t, guest.VoiceSID())

	agentToken, err := conn.AgentToken(s.keys(), conn.Person{Room: "match", Identity: "ready"})
	require.NoError(t, err)
	bot := startBot(t, s, func(o *room.Options) {
		o.Token, o.Keys, o.Identity, o.Room = agentToken, conn.Keys{}, "", ""
	})
	require.Equal(t, "ready", bot.Identity())
	require.True(t, frame(t, bot).KeyFrame)
}

func TestRefusedToken(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	bot, err := room.New(room.Options{
		URL: s.URL(), Keys: conn.Keys{APIKey: s.APIKey(), APISecret: "another secret, also long enough for the check"},
		Room: "match", Identity: "bot", Log: testLog(t),
	})
	require.NoError(t, err)
	require.ErrorIs(t, bot.Run(t.Context()), conn.ErrRefused)
}

func TestSameIdentityEndsTheFirst(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	first, err := room.New(room.Options{URL: s.URL(), Keys: s.keys(), Room: "match", Identity: "bot", Log: testLog(t)})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- first.Run(t.Context()) }()
	eventually(t, func() bool { return first.CurrentRoom() != nil }, "in")
	startBot(t, s, nil)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, conn.ErrReplaced)
	case <-time.After(patience):
		t.Fatal("the first bot did not give way")
	}
}

func TestStateIsShownAndLeavesInitializing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	v := joinViewer(t, s, "ann")
	began := time.Now()
	bot := startBot(t, s, nil)
	shown := func() map[string]string {
		if p := v.room.GetParticipantByIdentity("bot"); p != nil {
			return p.Attributes()
		}
		return nil
	}
	eventually(t, func() bool { return shown()["lk.agent.state"] == agent.StateInitializing }, "visible with a state")
	t.Logf("visible after %v", time.Since(began).Round(time.Millisecond))
	require.Equal(t, lksdk.ParticipantAgent, v.room.GetParticipantByIdentity("bot").Kind())
	bot.SetState(agent.Status{State: agent.StateListening, Detail: "watching cam", Percent: 100, Activity: "watching"})
	eventually(t, func() bool { return shown()["lk.agent.state"] == agent.StateListening }, "changed")
	detail := func() string { return v.room.GetParticipantByIdentity("bot").Metadata() }
	eventually(t, func() bool { return strings.Contains(detail(), "watching cam") }, "the detail follows")
	require.JSONEq(t, `{"state":"listening","detail":"watching cam","percent":100,"chip":"watching"}`, detail())
	sid := v.room.GetParticipantByIdentity("bot").SID()
	bot.CurrentRoom().Simulate(lksdk.SimulateNodeFailure)
	eventually(t, func() bool {
		p := v.room.GetParticipantByIdentity("bot")
		return p != nil && p.SID() != sid
	}, "a new session")
	eventually(t, func() bool { return shown()["lk.agent.state"] == agent.StateListening }, "shown again")
}

func TestRunEndsQuicklyWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	took := time.Hour
	for tries := 5; tries > 0 && took >= 4*time.Second; tries-- { // a busy machine may be late
		bot, err := room.New(room.Options{
			URL: "ws://127.0.0.1:9", Keys: conn.Keys{APIKey: "k", APISecret: "secret"}, Room: "r", Identity: "bot",
			Log: testLog(t),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		began := time.Now()
		require.NoError(t, bot.Run(ctx))
		took = time.Since(began)
		cancel()
	}
	require.Less(t, took, 4*time.Second, "an attempt to join may take 5 s")
}
