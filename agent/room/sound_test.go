//go:build integration

package room_test

import (
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
)

// ear takes the sound of the watched participant.
type ear struct {
	mu      sync.Mutex
	begun   int
	last    byte // the first byte of the newest payload
	packets int
	reports int
}

func (e *ear) Begin() {
	e.mu.Lock()
	e.begun++
	e.mu.Unlock()
}

func (e *ear) WriteRTP(p *rtp.Packet, _ time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(p.Payload) > 3 { // not the server's silence
		e.last = p.Payload[1]
		e.packets++
	}
}

func (e *ear) SenderReport(time.Time, uint32) {
	e.mu.Lock()
	e.reports++
	e.mu.Unlock()
}

// hears waits for new packets of one camera.
func (e *ear) hears(t *testing.T, mark byte, what string) {
	t.Helper()
	e.mu.Lock()
	had := e.packets
	e.mu.Unlock()
	eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.packets > had+10 && e.last == mark
	}, what)
}

// chirp has a camera make a sound.
func chirp(t *testing.T, c *testCamera, mark byte) (stop func()) {
	t.Helper()
	return run(t, pace(20*time.Millisecond, func(n uint32) error {
		_, err := c.WriteOpus([]byte{0x78, mark, 2, 3, 4, 5}, n*960, n == 0)
		return err
	}))
}

// TestSound follows the sound of the watched camera, through faults of the connection, and publishes
// sound as a separate track.
func TestSound(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	first := startCamera(t, s, "first", 640, 360)
	chirp(t, first, 1)
	e := &ear{}
	bot := startBot(t, s, func(o *room.Options) { o.Sound = e })
	pump(t, bot)
	e.hears(t, 1, "the first camera is heard")
	eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.reports > 0
	}, "sender reports come")

	v := joinViewer(t, s, "ann")
	published := func() (sid string) {
		for _, p := range bot.CurrentRoom().LocalParticipant.TrackPublications() {
			if p.Name() == "touchline-sound" {
				require.Equal(t, livekit.TrackSource_SCREEN_SHARE_AUDIO, p.Source())
				sid = p.SID()
			}
		}
		return sid
	}
	require.Empty(t, published(), "nothing was written yet")
	run(t, pace(20*time.Millisecond, func(n uint32) error {
		_, err := bot.Sound().WriteOpus([]byte{0x78, 9, 9, 9, 9}, n*960, n == 0)
		return err
	}))
	eventually(t, func() bool { return len(v.media(bot.Sound().SID())) > 20 }, "the sound reaches a viewer")
	require.NotEmpty(t, published())
	require.NotEqual(t, bot.VoiceSID(), bot.Sound().SID())

	for _, fault := range []struct {
		name   string
		inject func(r *lksdk.Room)
	}{
		{"the signal connection drops", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateSignalReconnect) }},
		{"the node fails", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateNodeFailure) }},
		{"the server says leave", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateServerLeave) }},
	} {
		fault.inject(bot.CurrentRoom())
		e.hears(t, 1, "heard after "+fault.name)
		flows(t, bot, v, "the rest flows after "+fault.name)
		had := len(v.media(bot.Sound().SID()))
		eventually(t, func() bool { return len(v.media(bot.Sound().SID())) > had+10 }, "published after "+fault.name)
	}

	// The sound goes with the picture, when another is chosen and when its participant leaves.
	second := startCamera(t, s, "second", 320, 180)
	chirp(t, second, 2)
	watch := bot.Watcher().Watching()
	watch.Identity = "second"
	bot.Watcher().Select(watch)
	e.hears(t, 2, "the second camera is heard")
	watch.Identity = ""
	bot.Watcher().Select(watch)
	second.stop()
	e.hears(t, 1, "the first camera is heard again")
}

// TestSoundComesLate has a camera without sound first, whose sound is muted for a while later on.
func TestSoundComesLate(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	e := &ear{}
	bot := startBot(t, s, func(o *room.Options) { o.Sound = e })
	pump(t, bot)
	frame(t, bot)
	stop := chirp(t, cam, 1)
	e.hears(t, 1, "sound that came after the picture")

	var mic *lksdk.LocalTrackPublication
	eventually(t, func() bool {
		for _, p := range cam.CurrentRoom().LocalParticipant.TrackPublications() {
			if lp, ok := p.(*lksdk.LocalTrackPublication); ok && p.Kind() == lksdk.TrackKindAudio {
				mic = lp
			}
		}
		return mic != nil
	}, "the camera's microphone")
	mic.SetMuted(true)
	stop()
	time.Sleep(6 * time.Second) // longer than a subscription may take
	mic.SetMuted(false)
	chirp(t, cam, 3)
	e.hears(t, 3, "heard after it was muted")

	require.NoError(t, cam.CurrentRoom().LocalParticipant.UnpublishTrack(mic.SID()))
	eventually(t, func() bool { return bot.CurrentRoom() != nil && drained(bot) > 0 }, "the picture goes on")
	flowsPicture := drained(bot)
	eventually(t, func() bool { return drained(bot) > flowsPicture+20 }, "the picture goes on without the sound")
}
