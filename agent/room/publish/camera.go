package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/packet"
)

// CameraOptions configure a CameraPublisher.
type CameraOptions struct {
	// URL of the LiveKit server.
	URL string
	// Keys mint a fresh token for each join; Token is a ready one instead.
	Keys  conn.Keys
	Token string
	// Room, Identity and Name of the camera's participant.
	Room, Identity, Name string
	// Agents are dispatched to the room if the camera makes it; not with a ready token.
	Agents []*livekit.RoomAgentDispatch
	// LoopbackOnly: see Options.
	LoopbackOnly bool
	// ScreenShare publishes as screen share instead of camera.
	ScreenShare bool
	// OnKeyFrame is called when a viewer needs a key frame. It must not block. May be nil.
	OnKeyFrame func()
	// Log receives the log.
	Log zerolog.Logger
}

// CameraPublisher publishes one camera as an ordinary participant. It reconnects like a Supervisor.
type CameraPublisher struct {
	pictureTrack

	opts  CameraOptions
	conn  *conn.Connection
	sound SoundTrack

	writing sync.Mutex
	packer  *packet.Packer

	reports captureReports
	picture atomic.Pointer[media.EncodedFrame] // the newest, for its times; nil if one is unknown

	state      atomic.Pointer[string] // to publish; nil before the first
	shown      *string                // used by the connection's goroutine only
	showsState bool                   // it may change its own attributes
}

// NewCameraPublisher checks the options. It does not connect.
func NewCameraPublisher(opts CameraOptions) (*CameraPublisher, error) {
	if opts.URL == "" {
		return nil, errors.New("the camera needs the LiveKit server's URL (ws://HOST:PORT)")
	}
	if opts.OnKeyFrame == nil {
		opts.OnKeyFrame = func() {}
	}
	token := func() (string, error) {
		who := conn.Person{Room: opts.Room, Identity: opts.Identity, Name: opts.Name, Agents: opts.Agents}
		return conn.PublisherToken(opts.Keys, who, true)
	}
	showsState, room, expires := true, opts.Room, time.Time{}
	if opts.Token != "" {
		token = func() (string, error) { return opts.Token, nil }
		ready, err := conn.ReadToken(opts.Token)
		if err != nil {
			return nil, err
		}
		showsState, room, expires = ready.OwnAttributes, ready.Room, ready.Expires
	} else if _, err := token(); err != nil {
		return nil, err
	}
	encryption, err := conn.NewEncryption(opts.Keys.E2EE, room)
	if err != nil {
		return nil, err
	}
	c := &CameraPublisher{opts: opts, packer: packet.NewPacker(uint16(rand.Uint32()), rand.Uint32()), showsState: showsState}
	c.gap, c.needTrack, c.needKeyFrame = true, c.wakeUp, opts.OnKeyFrame
	c.encryption, c.sound.encryption = encryption, encryption
	c.sound.log, c.sound.name, c.sound.stream, c.sound.wake = opts.Log, "sound", "camera", c.wakeUp
	c.conn = conn.New(conn.Options{
		Log: opts.Log, URL: opts.URL, Token: token, Expires: expires, Callbacks: c, Loopback: opts.LoopbackOnly, Reports: &c.reports,
		Encryption: encryption,
	})
	conn.SetLibraryLogger(opts.Log)
	return c, nil
}

// Run publishes frames at once until ctx ends or frames is closed (nil), or a retry cannot help (see Supervisor.Run).
func (c *CameraPublisher) Run(ctx context.Context, frames <-chan media.EncodedFrame) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- rescue.Call(func() error { return c.conn.Run(ctx) }) }()
	for {
		select {
		case f, ok := <-frames:
			if !ok {
				cancel()
				return <-ended
			}
			if _, err := c.WriteFrame(f); err != nil {
				c.warnings.Warn(c.opts.Log, c.errors.Add(1), err, "camera frame not sent")
			}
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("publish the camera: %w", err)
			}
			return nil
		}
	}
}

// WriteFrame sends one access unit at once, with its PTS as timestamp. written is zero if nothing was sent: without a connection, and
// from a gap until the next key frame.
func (c *CameraPublisher) WriteFrame(f media.EncodedFrame) (written time.Time, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	track := c.ready(f)
	if track == nil {
		return time.Time{}, nil
	}
	var packets []*rtp.Packet
	sent, err := c.seal(f)
	if err == nil {
		packets, err = c.packer.Packets(sent, time.Now())
	}
	if err != nil {
		c.gap = true
		return time.Time{}, err
	}
	c.gap = false
	for _, p := range packets {
		if werr := track.WriteRTP(p, nil); werr != nil {
			err, c.gap = werr, true
			continue
		}
		c.packets.Add(1)
	}
	c.frames.Add(1)
	now := time.Now()
	c.noteFrame(f, uint32(track.SSRC()), packets[0].Timestamp, now)
	return now, err
}

// noteFrame passes the capture time of a picture to the sender reports.
func (c *CameraPublisher) noteFrame(f media.EncodedFrame, ssrc, timestamp uint32, sent time.Time) {
	at := f.Arrival
	if at.IsZero() {
		at = sent
	}
	c.reports.note(pictureReports, ssrc, timestamp, media.VideoClockRate, at)
	if f.NTP.IsZero() || f.Arrival.IsZero() {
		c.picture.Store(nil)
		return
	}
	c.picture.Store(&media.EncodedFrame{Arrival: f.Arrival, NTP: f.NTP})
}

// maxLip bounds the correction of the sound against the picture by the camera's clock. Beyond it, the sender reports of the two tracks
// use different clocks.
const maxLip = 500 * time.Millisecond

// WriteCaptured is WriteOpus for sound with its capture time by the local clock and by the camera's clock; zero if unknown.
func (c *CameraPublisher) WriteCaptured(
	packet []byte, timestamp uint32, marker bool, arrival, ntp time.Time,
) (written time.Time, err error) {
	written, err = c.WriteOpus(packet, timestamp, marker)
	at := arrival
	if at.IsZero() {
		at = written
	}
	if p := c.picture.Load(); p != nil && !ntp.IsZero() {
		if by := p.Arrival.Add(ntp.Sub(p.NTP)); by.Sub(at).Abs() <= maxLip {
			at = by
		}
	}
	if track := c.sound.bound(); track != nil && !at.IsZero() {
		c.reports.note(soundReports, uint32(track.SSRC()), timestamp, opusClockRate, at)
	}
	return written, err
}

// opusClockRate is the RTP clock rate of Opus in Hz (RFC 7587 section 4.1).
const opusClockRate = 48000

// WriteOpus sends one packet of the camera's 48 kHz Opus like VoiceTrack.WriteOpus. The first packet publishes the sound track.
func (c *CameraPublisher) WriteOpus(packet []byte, timestamp uint32, marker bool) (written time.Time, err error) {
	return c.sound.WriteOpus(packet, timestamp, marker)
}

// SetState publishes the state of the camera as an attribute.
func (c *CameraPublisher) SetState(s CameraState) {
	text, err := json.Marshal(s)
	if err != nil { // strings and a time always marshal
		return
	}
	state := string(text)
	c.state.Store(&state)
	c.wakeUp()
}

func (c *CameraPublisher) wakeUp() { c.conn.Wake() }

// Carries reports whether the room takes a picture in a codec; true without a connection.
func (c *CameraPublisher) Carries(codec media.Codec) bool { return c.conn.Enables(codec.MimeType()) }

// CurrentRoom returns the present connection, nil between connections. Do not keep it.
func (c *CameraPublisher) CurrentRoom() *lksdk.Room { return c.conn.Room() }

// RoomCallback implements conn.Callbacks.
func (c *CameraPublisher) RoomCallback(*conn.Session) *lksdk.RoomCallback {
	return lksdk.NewRoomCallback()
}

// Created implements conn.Callbacks.
func (c *CameraPublisher) Created(*conn.Session) {}

// Joined implements conn.Callbacks.
func (c *CameraPublisher) Joined(ses *conn.Session) error {
	c.shown = nil
	return c.Check(ses, time.Now())
}

// Reconnected implements conn.Callbacks.
func (c *CameraPublisher) Reconnected(*conn.Session) error {
	c.Republished()
	c.shown = nil
	c.opts.OnKeyFrame()
	return nil
}

// Check implements conn.Callbacks: it publishes once the first frame gave the codec.
func (c *CameraPublisher) Check(ses *conn.Session, now time.Time) error {
	if state := c.state.Load(); c.showsState && state != c.shown {
		ses.Room.LocalParticipant.SetAttributes(map[string]string{CameraAttribute: *state})
		c.shown = state
	}
	if err := c.sound.Ensure(ses); err != nil {
		return err
	}
	if c.settle(ses, now, c.opts.Log) {
		return errors.New("the camera is no longer published")
	}
	if c.missing(now) {
		o := lksdk.TrackPublicationOptions{Name: "camera", Source: livekit.TrackSource_CAMERA}
		if c.opts.ScreenShare {
			o.Name, o.Source = "screen", livekit.TrackSource_SCREEN_SHARE
		}
		if err := c.publish(ses, o, c.conn.Guarded(c.opts.OnKeyFrame), c.opts.Log); err != nil {
			return fmt.Errorf("publish the camera: %w", err)
		}
		return nil
	}
	c.resize(ses)
	return nil
}

// Left implements conn.Callbacks.
func (c *CameraPublisher) Left(*conn.Session) {
	c.Drop()
	c.sound.Drop()
}
