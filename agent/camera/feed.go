// Package camera brings sources into a room: what media/source yields, made fit
// by media/source/conform, published by agent/room. It is what the command
// camera, the demo and the page's picker have in common.
//
// A Feed is a participant of the room. It stays there while its source is
// away, so that viewers need not find it again, and its attributes say how the
// source is. A Manager keeps the sources that come and go while the program
// runs, Senders those that send by themselves (WHIP).
package camera

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/rs/zerolog"

	"touchline/agent/room"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
	"touchline/media/source/conform"
)

// queue is how many access units wait for the room.
const queue = 128

// Options of a Feed.
type Options struct {
	// URL of the LiveKit server; Keys or a ready Token for it.
	URL   string
	Keys  room.Keys
	Token string
	// Room, Identity and Name of the participant.
	Room, Identity, Name string
	// Agents are dispatched to the room if the participant makes it; not with a ready token.
	Agents       []*livekit.RoomAgentDispatch
	LoopbackOnly bool
	// Mode says when to transcode, "" is conform.Auto. H265 lets H265 pass.
	Mode conform.Mode
	H265 bool
	// BitRate of what is transcoded, at 1280 x 720, in bit/s; 0 for the codec's own.
	BitRate int
	// Codec program, "" looks for it.
	Codec string
	// OnStatus gets the source's state; OnReason why it is transcoded. May be nil.
	OnStatus func(source.Status)
	OnReason func(string)
	Log      zerolog.Logger
}

// Feed is one participant with a picture.
type Feed struct {
	opts    Options
	pub     *room.CameraPublisher
	fit     *conform.Converter
	out     chan media.EncodedFrame
	request atomic.Pointer[func()] // asks the present source for a key frame
	asked   atomic.Pointer[func()] // notes that somebody asked for one
	sup     atomic.Pointer[source.Supervisor]

	mu     sync.Mutex
	epoch  uint32 // of what goes into the converter
	clock  soundClock
	behind atomic.Uint64

	skipping bool          // by send only
	asks     chan struct{} // for key frames, by send
}

// New checks the options; nothing runs yet.
func New(o Options) (*Feed, error) {
	f := &Feed{opts: o, out: make(chan media.EncodedFrame, queue), asks: make(chan struct{}, 1)}
	var err error
	f.fit, err = conform.New(conform.Options{
		Out: f.send, RequestKeyFrame: f.askSource, OnReason: o.OnReason, Mode: o.Mode, H265: o.H265, Path: o.Codec,
		To: codec.TranscodeOptions{BitRate: o.BitRate}, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	f.pub, err = room.NewCameraPublisher(room.CameraOptions{
		URL: o.URL, Keys: o.Keys, Token: o.Token, Room: o.Room, Identity: o.Identity, Name: o.Name, Agents: o.Agents,
		LoopbackOnly: o.LoopbackOnly, OnKeyFrame: f.wantKeyFrame, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("make the camera's participant: %w", err)
	}
	f.pub.SetState(room.CameraState{State: source.Connecting.String(), Since: time.Now()})
	return f, nil
}

// Run stays in the room until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	g, ctx := rescue.WithContext(ctx)
	g.Go(func() error { return f.fit.Run(ctx) })
	g.Go(func() error { return f.pub.Run(ctx, f.out) })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-f.asks:
				f.fit.RequestKeyFrame()
			}
		}
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Play stays in the room with one source, until ctx ends or the source ended or
// was given up. hide takes its secrets out of texts.
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

// Pull has one source's pictures go into the room, until ctx ends or the source
// ended or was given up. Run must be running. Another source may be pulled
// afterwards.
func (f *Feed) Pull(ctx context.Context, p source.Puller, hide func(string) string) error {
	var sup *source.Supervisor
	sink := f.Attach(func() { sup.RequestKeyFrame() }, func() { sup.KeyFrameAsked() })
	sup, err := source.NewSupervisor(source.Options{
		Puller: p, Sink: sink, OnStatus: f.Note, Hide: hide, Now: time.Now, Random: rand.Float64, Log: f.opts.Log,
	})
	if err != nil {
		return err
	}
	f.sup.Store(sup)
	return sup.Run(ctx)
}

// Note takes the source's state to the room, and to whoever wants to know it.
func (f *Feed) Note(s source.Status) {
	f.fit.SetSlow(s.Slow)
	f.pub.SetState(room.CameraState{State: s.State.String(), Reason: s.Reason, Since: s.Since})
	if f.opts.OnStatus != nil {
		f.opts.OnStatus(s)
	}
}

// Status is that of the source that is pulled, or was last.
func (f *Feed) Status() source.Status {
	if sup := f.sup.Load(); sup != nil {
		return sup.Status()
	}
	return source.Status{State: source.Connecting}
}

// Attach returns the place of another source: its epochs are new ones. request
// asks it for a key frame; asked is told when somebody wants one, whoever
// answers. Neither is called before the source's first frame.
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
	var theirs, ours uint32
	return source.Sink{
		Frame: func(frame media.EncodedFrame) {
			if !began || frame.Epoch != theirs {
				if !began {
					f.fit.Forget()
					live.Store(true)
				}
				began, theirs = true, frame.Epoch
				f.mu.Lock()
				f.epoch++
				ours = f.epoch
				f.mu.Unlock()
			}
			frame.Epoch = ours
			f.fit.Frame(frame)
		},
		Opus: f.sound,
	}
}

// Reason says why the picture is transcoded, "" when it is not.
func (f *Feed) Reason() string { return f.fit.Reason() }

// Stats counts what went into the room.
func (f *Feed) Stats() room.OutStats { return f.pub.Stats() }

// wantKeyFrame is what a request from the room comes to: the server sends the
// publisher a PLI (RFC 4585) for those who watch.
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

// send hands a frame to the room. When the room is behind, it goes on at a key
// frame. The converter calls it from one goroutine at a time.
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
		f.opts.Log.Warn().Uint64("so_far", n).Msg("the room is too slow for the camera, access units are left out")
	}
	if !f.skipping {
		f.skipping = true
		f.wanted()
	}
}

// wanted asks for a key frame from within send, where the converter must not be
// called back at once.
func (f *Feed) wanted() {
	select {
	case f.asks <- struct{}{}:
	default:
	}
}

func (f *Feed) sound(o source.Opus) {
	f.mu.Lock()
	timestamp := f.clock.next(o)
	f.mu.Unlock()
	_, _ = f.pub.WriteCaptured(o.Payload, timestamp, o.Marker, o.Arrival, o.NTP) // it counts and complains by itself
}

// soundClock makes one run of timestamps of those of several senders.
type soundClock struct {
	began         bool
	in, out, base uint32
	at            time.Time
}

// next keeps a sender's distances, and goes on by the time that passed where
// they make no sense.
func (c *soundClock) next(o source.Opus) uint32 {
	const most = 5 * 48000
	if step := int32(o.Timestamp - c.in); c.began && (step <= -most || step >= most) {
		c.base = c.out + uint32(max(960, min(o.Received.Sub(c.at), time.Hour)*48/time.Millisecond)) - o.Timestamp
	}
	c.began, c.in, c.at = true, o.Timestamp, o.Received
	c.out = c.base + o.Timestamp
	return c.out
}
