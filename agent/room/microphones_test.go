//go:build integration

package room_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/agenttest"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/room/watch"
)

// listeners hear the microphones that pick chooses; nil chooses all.
type listeners struct {
	mu     sync.Mutex
	pick   func(m agent.Microphone) bool
	all    []agent.Microphone
	opened map[string][]*micEar // by track
}

// micEar is the sink of one microphone.
type micEar struct {
	ear

	of     agent.Microphone
	closed bool
	late   int // packets after the end
}

func (e *micEar) WriteRTP(p *rtp.Packet, at time.Time) {
	e.mu.Lock()
	if e.closed {
		e.late++
	}
	e.mu.Unlock()
	e.ear.WriteRTP(p, at)
}

func (e *micEar) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
}

func (l *listeners) Choose(all []agent.Microphone, _ time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = all
	out := []string{"TR_unknown"}
	for _, m := range all {
		if l.pick == nil || l.pick(m) {
			out = append(out, m.Track)
		}
	}
	return out
}

func (l *listeners) Open(m agent.Microphone) watch.MicrophoneSink {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &micEar{of: m}
	l.opened[m.Track] = append(l.opened[m.Track], e)
	return e
}

func (l *listeners) choose(pick func(m agent.Microphone) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pick = pick
}

func (l *listeners) seen() []agent.Microphone {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// of returns the microphone of a participant, as last seen.
func (l *listeners) of(identity string) (m agent.Microphone, ok bool) {
	for _, m := range l.seen() {
		if m.Identity == identity {
			return m, true
		}
	}
	return m, false
}

// ears returns the sinks of a participant so far, of all its tracks.
func (l *listeners) ears(identity string) (out []*micEar) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.opened {
		for _, e := range list {
			if e.of.Identity == identity {
				out = append(out, e)
			}
		}
	}
	return out
}

// open waits for the one sink of a participant that is open.
func (l *listeners) open(t *testing.T, identity string) (found *micEar) {
	t.Helper()
	eventually(t, func() bool {
		found = nil
		n := 0
		for _, e := range l.ears(identity) {
			e.mu.Lock()
			if !e.closed {
				found, n = e, n+1
			}
			e.mu.Unlock()
		}
		return n == 1
	}, "one sink of "+identity)
	return found
}

// newListeners returns listeners that require, when the bot has left, that every sink is closed and got nothing afterwards.
func newListeners(t *testing.T) *listeners {
	t.Helper()
	l := &listeners{opened: map[string][]*micEar{}}
	t.Cleanup(func() {
		require.NotEmpty(t, l.opened)
		for _, list := range l.opened {
			for _, e := range list {
				require.True(t, e.closed, e.of.Identity)
				require.Zero(t, e.late)
			}
		}
	})
	return l
}

// speaker is a participant with a microphone.
type speaker struct {
	room *lksdk.Room
	pub  *lksdk.LocalTrackPublication
	quit func()
}

// joinSpeaker joins with a token, whose kind may be another, and publishes a microphone that says one byte.
func joinSpeaker(t *testing.T, s *server, token string, mark byte, codec string, every time.Duration) *speaker {
	t.Helper()
	p := &speaker{room: lksdk.NewRoom(nil)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.room.JoinWithContextAndToken(ctx, s.URL(), token, lksdk.WithAutoSubscribe(false), lksdk.WithDisableTURN()))
	t.Cleanup(p.room.Disconnect)
	p.speak(t, mark, codec, every)
	return p
}

// speak publishes a microphone.
func (p *speaker) speak(t *testing.T, mark byte, codec string, every time.Duration) {
	t.Helper()
	c := webrtc.RTPCodecCapability{MimeType: codec, ClockRate: 48000, Channels: 2}
	if codec != webrtc.MimeTypeOpus {
		c = webrtc.RTPCodecCapability{MimeType: codec, ClockRate: 8000}
	}
	track, err := lksdk.NewLocalTrack(c)
	require.NoError(t, err)
	p.pub, err = p.room.LocalParticipant.PublishTrack(track, &lksdk.TrackPublicationOptions{Source: livekit.TrackSource_MICROPHONE})
	require.NoError(t, err)
	p.quit = run(t, pace(every, func(n uint32) error {
		for range max(1, int(time.Millisecond/every)) {
			_ = track.WriteRTP(&rtp.Packet{ // fails once the track is unpublished
				Header:  rtp.Header{Version: 2, SequenceNumber: uint16(n), Timestamp: n * 960},
				Payload: []byte{0x78, mark, 2, 3, 4, 5},
			}, nil)
		}
		return nil
	}))
}

func speakerToken(t *testing.T, s *server, identity string, rights access.Rights, links ...string) string {
	t.Helper()
	grant := access.Grant{Rights: rights, Links: links}
	token, err := conn.ViewerToken(s.keys(), conn.Person{
		Room: "match", Identity: identity, Name: "Name of " + identity, Speaks: true, Attributes: control.Attributes(s.keys(), grant),
	})
	require.NoError(t, err)
	return token
}

func kindToken(t *testing.T, s *server, identity string, kind livekit.ParticipantInfo_Kind) string {
	t.Helper()
	token, err := auth.NewAccessToken(s.APIKey(), s.APISecret()).SetIdentity(identity).SetKind(kind).SetValidFor(time.Hour).
		SetVideoGrant(&auth.VideoGrant{RoomJoin: true, Room: "match", Agent: kind == livekit.ParticipantInfo_AGENT}).ToJWT()
	require.NoError(t, err)
	return token
}

const voicePace = 20 * time.Millisecond

// TestMicrophones hears people, the camera's microphone in both sinks, and nobody else.
func TestMicrophones(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	chirp(t, cam, 1)
	e, l := &ear{}, newListeners(t)
	asked := control.New(control.Config{}, s.keys(), &agenttest.Steered{}, nil, nil, testLog(t))
	bot := startBot(t, s, func(o *room.Options) { o.Sound, o.Microphones, o.Control = e, l, asked })
	run(t, func(ctx context.Context) error { _ = asked.Run(ctx); return nil })
	pump(t, bot)

	opus := webrtc.MimeTypeOpus
	ann := joinSpeaker(t, s, speakerToken(t, s, "ann", access.Watch|access.Instruct), 2, opus, voicePace)
	joinSpeaker(t, s, speakerToken(t, s, "bob", access.Watch, "0000000000000002", "0000000000000001"), 3, opus, voicePace)
	joinSpeaker(t, s, kindToken(t, s, "phone", livekit.ParticipantInfo_SIP), 4, opus, voicePace)
	joinSpeaker(t, s, kindToken(t, s, "ingress", livekit.ParticipantInfo_INGRESS), 8, opus, voicePace)
	joinSpeaker(t, s, kindToken(t, s, "other bot", livekit.ParticipantInfo_AGENT), 5, opus, voicePace)
	joinSpeaker(t, s, kindToken(t, s, "recorder", livekit.ParticipantInfo_EGRESS), 6, opus, voicePace)

	_, err := ann.room.LocalParticipant.PublishTrack(must(lksdk.NewLocalTrack(webrtc.RTPCodecCapability{
		MimeType: webrtc.MimeTypeVP8, ClockRate: 90000,
	})), &lksdk.TrackPublicationOptions{Source: livekit.TrackSource_CAMERA})
	require.Error(t, err, "its token allows a microphone alone")

	for identity, mark := range map[string]byte{"cam": 1, "ann": 2, "bob": 3, "phone": 4, "ingress": 8} {
		l.open(t, identity).hears(t, mark, identity+" is heard")
	}
	e.hears(t, 1, "the camera's sound goes on beside it")
	all := l.seen()
	require.Equal(t, []string{"ann", "bob", "cam", "ingress", "phone"}, identities(all))
	for i, m := range all {
		require.NotEmpty(t, m.Track)
		require.False(t, m.Muted)
		require.Equal(t, m.Identity == "cam", m.Watched)
		require.Equal(t, m.Identity == "ann", m.Instructs)
		require.Equal(t, map[string]string{"bob": "0000000000000001"}[m.Identity], m.Link, "the first link")
		all[i] = m
	}
	require.Equal(t, "Name of ann", all[0].Name)
	require.Equal(t, ann.pub.SID(), all[0].Track)

	// The sinks of one track come and go without the other.
	camMic := l.open(t, "cam")
	l.choose(func(m agent.Microphone) bool { return m.Identity != "cam" })
	eventually(t, func() bool { camMic.mu.Lock(); defer camMic.mu.Unlock(); return camMic.closed }, "closed")
	e.hears(t, 1, "the camera's sound goes on without the microphone")
	require.Equal(t, 1, e.begun)
	l.choose(nil)
	l.open(t, "cam").hears(t, 1, "the camera is heard again")
	watch := bot.Watcher().Watching()
	watch.Identity = "nobody"
	bot.Watcher().Select(watch)
	eventually(t, func() bool { m, _ := l.of("cam"); return !m.Watched }, "the camera is not watched")
	mic := l.open(t, "cam")
	mic.hears(t, 1, "it is heard unwatched")
	require.Equal(t, 1, mic.begun)
	watch.Identity = ""
	bot.Watcher().Select(watch)
	e.hears(t, 1, "its sound is back")

	// Muting is seen; a track that is published again is another one.
	ann.pub.SetMuted(true)
	eventually(t, func() bool { m, _ := l.of("ann"); return m.Muted }, "muted")
	ann.pub.SetMuted(false)
	l.open(t, "ann").hears(t, 2, "unmuted")
	was := l.open(t, "ann")
	ann.quit()
	require.NoError(t, ann.room.LocalParticipant.UnpublishTrack(ann.pub.SID()))
	eventually(t, func() bool { was.mu.Lock(); defer was.mu.Unlock(); return was.closed }, "its end")
	ann.speak(t, 7, opus, voicePace)
	now := l.open(t, "ann")
	now.hears(t, 7, "the next track")
	require.NotEqual(t, was.of.Track, now.of.Track)

	// Not chosen for a moment.
	l.choose(func(m agent.Microphone) bool { return m.Identity != "bob" })
	eventually(t, func() bool { e := l.ears("bob")[0]; e.mu.Lock(); defer e.mu.Unlock(); return e.closed }, "bob's end")
	l.choose(nil)
	l.open(t, "bob").hears(t, 3, "bob again")
}

func identities(all []agent.Microphone) (out []string) {
	for _, m := range all {
		out = append(out, m.Identity)
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestMicrophonesAfterFaults: a fault of the connection costs no microphone.
func TestMicrophonesAfterFaults(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	l := newListeners(t)
	bot := startBot(t, s, func(o *room.Options) { o.Microphones = l })
	joinSpeaker(t, s, speakerToken(t, s, "ann", 0), 2, webrtc.MimeTypeOpus, voicePace)
	l.open(t, "ann").hears(t, 2, "heard")
	for _, fault := range []struct {
		name   string
		inject func(r *lksdk.Room)
	}{
		{"the signal connection drops", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateSignalReconnect) }},
		{"the node fails", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateNodeFailure) }},
		{"the server says leave", func(r *lksdk.Room) { r.Simulate(lksdk.SimulateServerLeave) }},
	} {
		before := bot.Reconnects() + bot.Joins()
		fault.inject(bot.CurrentRoom())
		eventually(t, func() bool { return bot.Reconnects()+bot.Joins() > before }, fault.name)
		l.open(t, "ann").hears(t, 2, "heard after "+fault.name)
	}
}

// TestBadMicrophones: one that floods and one without Opus hurt nobody else.
func TestBadMicrophones(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	chirp(t, cam, 1)
	e, l := &ear{}, newListeners(t)
	bot := startBot(t, s, func(o *room.Options) { o.Sound, o.Microphones = e, l })
	pump(t, bot)
	joinSpeaker(t, s, speakerToken(t, s, "flood", 0), 2, webrtc.MimeTypeOpus, 100*time.Microsecond)
	joinSpeaker(t, s, speakerToken(t, s, "old", 0), 3, webrtc.MimeTypePCMU, voicePace)
	joinSpeaker(t, s, speakerToken(t, s, "good", 0), 4, webrtc.MimeTypeOpus, voicePace)
	eventually(t, func() bool { return bot.SoundLost() > 1000 }, "the flood is cut")
	l.open(t, "good").hears(t, 4, "the good one is heard")
	e.hears(t, 1, "the camera is heard")
	had := drained(bot)
	eventually(t, func() bool { return drained(bot) > had+20 }, "the picture goes on")
	e.hears(t, 1, "the camera is still heard")
	require.Empty(t, l.ears("old"))
	_, known := l.of("old")
	require.True(t, known)
}

// TestSilentMicrophone: a microphone that sends nothing at first, for longer than a subscription waits, is heard when it does.
func TestSilentMicrophone(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	l := newListeners(t)
	startBot(t, s, func(o *room.Options) { o.Microphones = l })
	joinSpeaker(t, s, speakerToken(t, s, "ann", 0), 2, webrtc.MimeTypeOpus, 7*time.Second)
	first := l.open(t, "ann") // the server sends silence at first
	eventually(t, func() bool { first.mu.Lock(); defer first.mu.Unlock(); return first.last == 2 }, "heard")
}

// TestManyMicrophones: a hundred participants unmute at once, more than are heard.
func TestManyMicrophones(t *testing.T) {
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	chirp(t, cam, 1)
	e, l := &ear{}, newListeners(t)
	bot := startBot(t, s, func(o *room.Options) { o.Sound, o.Microphones = e, l })
	pump(t, bot)
	e.hears(t, 1, "the camera is heard")
	l.choose(func(m agent.Microphone) bool { return !m.Muted })
	const people = 100
	all := make([]*speaker, people)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for n := range people {
		token := speakerToken(t, s, fmt.Sprintf("p%03d", n), 0)
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			all[n] = joinSpeaker(t, s, token, 2, webrtc.MimeTypeOpus, 100*time.Millisecond)
			all[n].pub.SetMuted(true)
		})
	}
	wg.Wait()
	eventually(t, func() bool {
		seen := l.seen()
		return len(seen) == people+1 && !slices.ContainsFunc(seen, func(m agent.Microphone) bool { return !m.Muted && m.Identity != "cam" })
	}, "all are seen, and muted")
	for _, p := range all {
		p.pub.SetMuted(false)
	}
	open := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, list := range l.opened {
			for _, e := range list {
				e.mu.Lock()
				if !e.closed {
					n++
				}
				e.mu.Unlock()
			}
		}
		return n
	}
	eventually(t, func() bool { return open() == 100 }, "as many as the bound are heard")
	e.hears(t, 1, "the camera is still heard")
	had := drained(bot)
	eventually(t, func() bool { return drained(bot) > had+20 }, "the picture goes on")
	l.choose(func(m agent.Microphone) bool { return m.Identity > "p095" })
	eventually(t, func() bool { return open() == 4 }, "the rest is let go")
	e.hears(t, 1, "the camera is heard after all")
}
