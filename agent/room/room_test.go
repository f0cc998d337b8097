//go:build integration

package room_test

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
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
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/packet"
)

// server is a LiveKit server that can be stopped and started on its ports.
type server struct {
	*sfu.Server

	t    *testing.T
	opts sfu.Options
	stop func()
}

func startServer(t *testing.T) *server {
	t.Helper()
	return startServerWith(t, sfu.Options{})
}

// startServerWith starts one with further options.
func startServerWith(t *testing.T, opts sfu.Options) *server {
	t.Helper()
	opts.Log = testLog(t)
	s := &server{t: t, opts: opts}
	s.start()
	s.opts = s.Options()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) start() {
	s.t.Helper()
	var stop func() error
	s.Server, stop = sfutest.Start(s.t, s.opts)
	s.stop = func() { require.NoError(s.t, stop()) }
}

func (s *server) keys() conn.Keys { return conn.Keys{APIKey: s.APIKey(), APISecret: s.APISecret()} }

// number reads it back.
func number(f media.EncodedFrame) uint32 {
	if f.KeyFrame {
		return binary.BigEndian.Uint32(f.Data[10:])
	}
	return binary.BigEndian.Uint32(f.Data[3:])
}

// testCamera publishes synthetic VP8 until the test or it ends.
type testCamera struct {
	*publish.CameraPublisher

	keyFrames atomic.Int64 // asked for
	want      atomic.Bool  // the next frame is to be one
	paused    atomic.Bool
	late      time.Duration // of its pictures against their capture
	clock     time.Duration // by how much its own clock is ahead; 0 for none
	stop      func()
}

func startCamera(t *testing.T, s *server, identity string, width, height int) *testCamera {
	t.Helper()
	c, err := newTestCamera(publish.CameraOptions{
		URL: s.URL(), Keys: s.keys(), Room: "match", Identity: identity, LoopbackOnly: true, Log: testLog(t),
	})
	require.NoError(t, err)
	c.stop = run(t, func(ctx context.Context) error { return c.run(ctx, width, height) })
	return c
}

func newTestCamera(o publish.CameraOptions) (*testCamera, error) {
	c := &testCamera{}
	o.OnKeyFrame = func() { c.keyFrames.Add(1); c.want.Store(true) }
	var err error
	c.CameraPublisher, err = publish.NewCameraPublisher(o)
	return c, err
}

// run publishes pictures of a size until ctx ends.
func (c *testCamera) run(ctx context.Context, width, height int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames := make(chan media.EncodedFrame)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, frames) }()
	c.want.Store(true)
	began := time.Now()
	tick := time.NewTicker(frameGap)
	defer tick.Stop()
	for n := uint32(0); ; {
		var now time.Time
		select {
		case err := <-ended:
			return err
		case now = <-tick.C:
		}
		if c.paused.Load() {
			continue
		}
		key := c.want.Swap(false)
		n++
		size := 600
		if key {
			size = 9000
		}
		f := media.EncodedFrame{
			Codec: media.VP8, KeyFrame: key, PTS: now.Sub(began), Arrival: now.Add(-c.late), Received: now,
			SpatialLayers: 1, Data: vp8(key, width, height, size, n),
		}
		if c.clock != 0 {
			f.NTP = f.Arrival.Add(c.clock)
		}
		if key {
			f.Width, f.Height = width, height
		}
		select {
		case frames <- f:
		case err := <-ended:
			return err
		}
	}
}

func startBot(t *testing.T, s *server, change func(o *room.Options)) *room.Supervisor {
	t.Helper()
	opts := room.Options{
		URL: s.URL(), Keys: s.keys(), Room: "match", Identity: "bot", Name: "Bot", Relay: true, LoopbackOnly: true,
		Log: testLog(t),
	}
	if change != nil {
		change(&opts)
	}
	bot, err := room.New(opts)
	require.NoError(t, err)
	run(t, bot.Run)
	return bot
}

// frame reads the next access unit.
func frame(t *testing.T, bot *room.Supervisor) media.EncodedFrame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f, err := bot.Watcher().ReadFrame(ctx)
	require.NoError(t, err)
	return f
}

// pump relays everything the bot sees, delayed by nothing, and writes a voice packet each 20 ms.
func pump(t *testing.T, bot *room.Supervisor) {
	t.Helper()
	run(t, func(ctx context.Context) error {
		for {
			f, err := bot.Watcher().ReadFrame(ctx)
			if err == nil {
				_, err = bot.Relay().WriteFrame(delay.OutFrame{EncodedFrame: f, Due: f.Arrival})
			}
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the test is over
			}
			if err != nil {
				return err
			}
		}
	})
	run(t, pace(20*time.Millisecond, func(n uint32) error {
		_, err := bot.Voice().WriteOpus([]byte{0x78, 1, 2, 3, 4, 5}, n*960, n%50 == 0)
		return err
	}))
}

// TestDeclaredSize: the size that the server lists follows the picture.
func TestDeclaredSize(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	bot := startBot(t, s, nil)
	api := lksdk.NewRoomServiceClient(s.URL(), s.APIKey(), s.APISecret())
	width, height := atomic.Int64{}, atomic.Int64{}
	run(t, pace(frameGap, func(uint32) error {
		w, h := int(width.Load()), int(height.Load())
		_, err := bot.Relay().WriteFrame(delay.OutFrame{EncodedFrame: media.EncodedFrame{
			Codec: media.VP8, KeyFrame: true, Width: w, Height: h, SpatialLayers: 1, Data: vp8(true, w, h, 100, 1),
		}, Due: time.Now()})
		return err
	}))
	for _, size := range [][2]uint32{{640, 360}, {180, 320}} {
		width.Store(int64(size[0]))
		height.Store(int64(size[1]))
		eventually(t, func() bool {
			p, err := api.GetParticipant(t.Context(), &livekit.RoomParticipantIdentity{Room: "match", Identity: "bot"})
			if err != nil {
				return false
			}
			for _, track := range p.GetTracks() {
				if track.GetType() == livekit.TrackType_VIDEO {
					return track.GetWidth() == size[0] && track.GetHeight() == size[1]
				}
			}
			return false
		}, "the size")
	}
}

// viewer is a person who watches and hears the bot.
type viewer struct {
	room *lksdk.Room

	mu     sync.Mutex
	tracks map[string]*received // by track SID
}

type received struct {
	source  livekit.TrackSource
	stream  string
	packets []*rtp.Packet
}

func (v *viewer) take(t *webrtc.TrackRemote, pub *lksdk.RemoteTrackPublication, _ *lksdk.RemoteParticipant) {
	v.mu.Lock()
	r := &received{source: pub.Source(), stream: pub.TrackInfo().GetStream()}
	v.tracks[pub.SID()] = r
	v.mu.Unlock()
	for {
		p, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		v.mu.Lock()
		r.packets = append(r.packets, p)
		v.mu.Unlock()
	}
}

// media returns the packets with a payload of the newest live track of a source.
func (v *viewer) media(sid string) []*rtp.Packet {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []*rtp.Packet
	if r := v.tracks[sid]; r != nil {
		for _, p := range r.packets {
			if !p.Padding && len(p.Payload) > 0 {
				out = append(out, p)
			}
		}
	}
	return out
}

// joinViewer joins as a person and subscribes to everything of the bot's.
func joinViewer(t *testing.T, s *server, identity string) *viewer {
	t.Helper()
	v := &viewer{tracks: map[string]*received{}}
	token, err := conn.ViewerToken(s.keys(), conn.Person{Room: "match", Identity: identity})
	require.NoError(t, err)
	cb := lksdk.NewRoomCallback()
	cb.OnTrackSubscribed = func(tr *webrtc.TrackRemote, p *lksdk.RemoteTrackPublication, rp *lksdk.RemoteParticipant) {
		if rp.Kind() == lksdk.ParticipantAgent {
			go v.take(tr, p, rp)
		}
	}
	v.room = lksdk.NewRoom(cb)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, v.room.JoinWithContextAndToken(ctx, s.URL(), token, lksdk.WithDisableTURN()))
	t.Cleanup(v.room.Disconnect)
	return v
}

func TestWatchRelayAndSpeak(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	cam := startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	began := time.Now()
	f := frame(t, bot)
	t.Logf("first access unit after %v", time.Since(began))
	require.True(t, f.KeyFrame)
	require.Equal(t, media.VP8, f.Codec)
	require.Equal(t, []int{640, 360}, []int{f.Width, f.Height})
	require.NotEmpty(t, f.Packets)
	require.Equal(t, vp8(true, 640, 360, 9000, number(f)), f.Data)

	pump(t, bot)
	v := joinViewer(t, s, "ann")
	eventually(t, func() bool { return len(v.media(bot.VideoSID())) > 60 && len(v.media(bot.VoiceSID())) > 60 },
		"voice and delayed picture reach a viewer")
	require.Equal(t, 1, bot.Viewers(), "the camera may not subscribe and is no viewer")

	v.mu.Lock()
	require.Equal(t, livekit.TrackSource_CAMERA, v.tracks[bot.VideoSID()].source)
	require.Equal(t, livekit.TrackSource_MICROPHONE, v.tracks[bot.VoiceSID()].source)
	require.Equal(t, v.tracks[bot.VideoSID()].stream, v.tracks[bot.VoiceSID()].stream)
	v.mu.Unlock()
	video := v.media(bot.VideoSID())
	for i, p := range video {
		require.LessOrEqual(t, len(p.Payload), packet.MaxPayload)
		if i > 0 {
			require.Equal(t, video[i-1].SequenceNumber+1, p.SequenceNumber, "the copy has no holes")
		}
	}
	voice := v.media(bot.VoiceSID())
	for i, p := range voice {
		require.Equal(t, []byte{0x78, 1, 2, 3, 4, 5}, p.Payload)
		if i > 0 {
			require.Equal(t, uint32(960), p.Timestamp-voice[i-1].Timestamp)
		}
	}
	require.Positive(t, cam.keyFrames.Load())
	src := bot.Watcher().Source()
	require.Equal(t, "cam", src.Identity)
	require.Equal(t, "VP8", src.Codec)
}
