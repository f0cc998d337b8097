// Package camera publishes sources as participants of a room: frames of
// media/source, made suitable for WebRTC by media/source/transcode, through agent/room.
//
// A [Feed] is one participant. It stays in the room while its source is away, and shows the source's state in its
// attributes. A [Manager] holds the sources that are added and removed while the program runs, [Senders] the WHIP
// senders, and [Ingest] their server and keys. A [Demo] is the generated camera. The package does not choose the camera
// that a bot watches.
package camera

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/agent/room/publish"
	"touchline/internal/redact"
	"touchline/internal/rescue"
	"touchline/internal/ticks"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
	"touchline/media/source/transcode"
)

// queue bounds the access units that wait to be sent.
const queue = 128

// Options of a Feed.
type Options struct {
	// URL of the LiveKit server; Keys or a ready Token for it.
	URL   string
	Keys  conn.Keys
	Token string
	// Room, Identity and Name of the participant.
	Room, Identity, Name string
	// Agents are dispatched to the room if the participant creates it; not with a ready token.
	Agents       []*livekit.RoomAgentDispatch
	LoopbackOnly bool
	// Mode decides when to transcode; "" is transcode.Auto. H265 is published as it is if H265 is set.
	Mode transcode.Mode
	H265 bool
	// Codec is the path of touchline-codec; "" searches for it.
	Codec string
	// Memory is shared by all decoders of the program; nil for no bound.
	Memory *codec.Memory
	// OnStatus receives the source's state, OnReason the reason for transcoding. May be nil.
	OnStatus func(source.Status)
	OnReason func(string)
	// Started is called when a program of the machine starts for the source. May be nil.
	Started func()
	Log     zerolog.Logger
}

// Feed is one participant that publishes a picture and sound.
type Feed struct {
	opts    Options
	pub     *publish.CameraPublisher
	fit     *transcode.Converter
	out     chan media.EncodedFrame
	request atomic.Pointer[func()] // asks the present source for a key frame
	asked   atomic.Pointer[func()] // reports a request of the room
	sup     atomic.Pointer[source.Supervisor]

	mu     sync.Mutex
	epoch  uint32 // of the converter's input
	clock  soundClock
	behind atomic.Uint64

	skipping bool        // used by send only
	wanted   wake.Signal // send needs a key frame
}

// New checks the options; nothing runs yet.
func New(o Options) (*Feed, error) {
	f := &Feed{opts: o, out: make(chan media.EncodedFrame, queue), wanted: wake.New()}
	carries := func(c media.Codec) bool { return f.pub.Carries(c) }
	var err error
	f.fit, err = transcode.New(transcode.Options{
		Out: f.send, RequestKeyFrame: f.askSource, OnReason: o.OnReason, Mode: o.Mode, H265: o.H265, Path: o.Codec, Memory: o.Memory,
		Carries: carries, Log: o.Log,
		To: codec.TranscodeOptions{Choose: func() media.Codec { return publish.Encodable(carries) }},
	})
	if err != nil {
		return nil, err
	}
	f.pub, err = publish.NewCameraPublisher(publish.CameraOptions{
		URL: o.URL, Keys: o.Keys, Token: o.Token, Room: o.Room, Identity: o.Identity, Name: o.Name, Agents: o.Agents,
		LoopbackOnly: o.LoopbackOnly, OnKeyFrame: f.wantKeyFrame, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("make the camera's participant: %w", err)
	}
	f.pub.SetState(publish.CameraState{State: source.Connecting.String(), Since: time.Now()})
	return f, nil
}

// Run stays in the room until ctx ends or the room refuses or removes the participant.
func (f *Feed) Run(ctx context.Context) error {
	g, ctx := rescue.WithContext(ctx)
	g.Go(func() error { return f.fit.Run(ctx) })
	g.Go(func() error { return f.pub.Run(ctx, f.out) })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-f.wanted:
				f.fit.RequestKeyFrame()
			}
		}
	})
	return rescue.UnlessCanceled(g.Wait())
}

// Play stays in the room with one source until ctx ends, or the source ends or fails permanently. hide removes the
// source's secrets from texts.
func (f *Feed) Play(ctx context.Context, p source.Puller, hide func(string) string) error {
	g, ctx := rescue.WithContext(ctx)
	ctx, end := context.WithCancel(ctx)
	g.Go(func() error { return f.Run(ctx) })
	g.Go(func() error {
		defer end()
		return f.Pull(ctx, p, hide)
	})
	return g.Wait()
}

// Pull publishes one source until ctx ends, or the source ends or fails permanently. Run must be running. Another source
// may be pulled afterwards.
func (f *Feed) Pull(ctx context.Context, p source.Puller, hide func(string) string) error {
	var sup *source.Supervisor
	sink := f.Attach(func() { sup.RequestKeyFrame() }, func() { sup.KeyFrameAsked() })
	note := func(s source.Status) {
		if f.sup.Load() == sup { // a replaced source may end late
			f.Note(s)
		}
	}
	sup, err := source.NewSupervisor(source.Options{
		Puller: p, Sink: sink, OnStatus: note, Hide: hide, Now: time.Now, Random: rand.Float64, Log: f.opts.Log,
	})
	if err != nil {
		return err
	}
	f.sup.Store(sup)
	return sup.Run(ctx)
}

// Note publishes the source's state.
func (f *Feed) Note(s source.Status) {
	f.fit.SetSlow(s.Slow)
	f.pub.SetState(publish.CameraState{State: s.State.String(), Reason: redact.Addresses(s.Reason), Since: s.Since})
	if f.opts.OnStatus != nil {
		f.opts.OnStatus(s)
	}
}

// Status returns the state of the present or last source.
func (f *Feed) Status() source.Status {
	if sup := f.sup.Load(); sup != nil {
		return sup.Status()
	}
	return source.Status{State: source.Connecting}
}

// Attach returns the sink for another source, whose frames begin new epochs. request asks the source for a key frame.
// asked is called for each request of the room. Neither is called before the source's first frame.
func (f *Feed) Attach(request, asked func()) source.Sink {
	var live atomic.Bool
	guarded := func(do func()) *func() {
		g := func() {
			if live.Load() {
				do()
			}
		}
		return &g
	}
	f.request.Store(guarded(request))
	f.asked.Store(guarded(asked))
	var began bool
	var from, to uint32 // epochs
	return source.Sink{
		Frame: func(frame media.EncodedFrame) {
			if !began || frame.Epoch != from {
				if !began {
					f.fit.Forget()
					live.Store(true)
				}
				began, from = true, frame.Epoch
				f.mu.Lock()
				f.epoch++
				to = f.epoch
				f.mu.Unlock()
			}
			frame.Epoch = to
			f.fit.Frame(frame)
		},
		Opus: f.sound, Started: f.opts.Started,
	}
}

// Reason returns why the picture is transcoded, "" if it is not.
func (f *Feed) Reason() string { return f.fit.Reason() }

// Stats returns the counters of the publisher.
func (f *Feed) Stats() publish.OutStats { return f.pub.Stats() }

// wantKeyFrame handles a request of the room: the server sends the publisher a PLI
// (RFC 4585) when a subscriber needs a key frame.
func (f *Feed) wantKeyFrame() {
	if asked := f.asked.Load(); asked != nil {
		(*asked)()
	}
	f.fit.RequestKeyFrame()
}

func (f *Feed) askSource() {
	if request := f.request.Load(); request != nil {
		(*request)()
	}
}

// send queues a frame for the room. When the queue is full, it drops frames up to the
// next key frame. The converter calls it from one goroutine at a time.
func (f *Feed) send(frame media.EncodedFrame) {
	if !f.skipping || frame.KeyFrame {
		select {
		case f.out <- frame:
			f.skipping = false
			return
		default:
		}
	}
	if n := f.behind.Add(1); n == 1 || n%100 == 0 {
		f.opts.Log.Warn().Uint64("dropped", n).Msg("camera frames dropped: the room is too slow")
	}
	if !f.skipping {
		f.skipping = true
		f.wanted.Set() // the converter must not be called from here
	}
}

func (f *Feed) sound(o source.Opus) {
	f.mu.Lock()
	timestamp := f.clock.next(o)
	f.mu.Unlock()
	_, _ = f.pub.WriteCaptured(o.Payload, timestamp, o.Marker, o.Arrival, o.NTP) // it counts and logs errors itself
}

// soundClock joins the timestamps of several senders into one sequence.
type soundClock struct {
	began         bool
	in, out, base uint32
	at            time.Time
}

// next keeps the sender's intervals, but uses the elapsed time for implausible ones.
func (c *soundClock) next(o source.Opus) uint32 {
	const most = 5 * 48000
	if step := int32(o.Timestamp - c.in); c.began && (step <= -most || step >= most) {
		c.base = c.out + uint32(max(960, ticks.Count(min(o.Received.Sub(c.at), time.Hour), 48000))) - o.Timestamp
	}
	c.began, c.in, c.at = true, o.Timestamp, o.Received
	c.out = c.base + o.Timestamp
	return c.out
}
