package camera

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/agent/room/conn"
	"touchline/agent/room/publish"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/sound"
	"touchline/worlds"
)

// DemoOptions of a Demo.
type DemoOptions struct {
	URL      string
	Keys     conn.Keys
	Room     string
	Identity string
	// Width, Height and FPS of the picture; 1280, 720 and 30 when 0.
	Width, Height, FPS int
	// Codec of the picture; H264 when unset.
	Codec media.Codec
	// World is the name of the generated world, see worlds.Worlds; the match when empty.
	World string
	// Seed of the generated world.
	Seed uint64
	// Counter draws the machine-readable frame counter.
	Counter bool
	// LoopbackOnly keeps media sockets on 127.0.0.1, for a server in the same process.
	LoopbackOnly bool
	// OnSent is called with the PTS of each picture that is published; may be nil.
	OnSent func(pts time.Duration)
	// Crowd adds the sound of the world.
	Crowd bool
	// Still generates a world without motion.
	Still bool
	Log   zerolog.Logger
}

// Demo publishes a generated world as a participant.
type Demo struct {
	opts  DemoOptions
	World *worlds.World
	enc   *codec.Encoder
	pub   *publish.CameraPublisher
	out   chan media.EncodedFrame
	key   atomic.Bool // the next picture must be a key frame
	start atomic.Pointer[time.Time]
}

// bitRate of the built-in camera at 1280x720, in bit/s.
const bitRate = 1_700_000

// NewDemo checks the options; nothing runs yet.
func NewDemo(o DemoOptions) (*Demo, error) {
	if o.Width == 0 {
		o.Width, o.Height = 1280, 720
	}
	o.FPS, o.Codec = cmp.Or(o.FPS, 30), cmp.Or(o.Codec, media.H264)
	c := &Demo{opts: o, out: make(chan media.EncodedFrame, 64)}
	var err error
	c.World, err = worlds.New(worlds.Options{
		World: o.World, Seed: o.Seed, Width: o.Width, Height: o.Height, FPS: o.FPS, Still: o.Still, Counter: o.Counter,
	})
	if err != nil {
		return nil, fmt.Errorf("make the generated world: %w", err)
	}
	c.enc, err = codec.NewEncoder(codec.EncoderOptions{
		Codec: o.Codec, Width: o.Width, Height: o.Height, FPS: o.FPS,
		BitRate: bitRate * o.Width * o.Height / (1280 * 720),
		OnFrame: func(f media.EncodedFrame) {
			c.note(f.PTS, time.Now())
			select {
			case c.out <- f:
				if o.OnSent != nil {
					o.OnSent(f.PTS)
				}
			default: // the room is too slow
			}
		},
		Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("make the camera's encoder: %w", err)
	}
	c.pub, err = publish.NewCameraPublisher(publish.CameraOptions{
		URL: o.URL, Keys: o.Keys, Room: o.Room, Identity: o.Identity, Name: "camera", LoopbackOnly: o.LoopbackOnly,
		OnKeyFrame: func() { c.key.Store(true) }, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("make the camera: %w", err)
	}
	return c, nil
}

// note records the time at which the world's first picture would have been sent without delay.
func (c *Demo) note(pts time.Duration, now time.Time) {
	if start, was := now.Add(-pts), c.start.Load(); was == nil || start.Before(*was) {
		c.start.Store(&start)
	}
}

// Time returns the world's time shown by the picture with the local arrival time, to the nearest picture. ok is
// false before the first picture.
func (c *Demo) Time(arrived time.Time) (at time.Duration, ok bool) {
	start := c.start.Load()
	if start == nil || arrived.Before(start.Add(-time.Millisecond)) {
		return 0, false
	}
	step := c.World.PTS(1)
	return arrived.Sub(*start).Round(step), true
}

// Run publishes until ctx ends.
func (c *Demo) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.enc.Run(ctx) })
	g.Go(func() error { return c.pub.Run(ctx, c.out) })
	g.Go(func() error {
		var sound func(from int64, pcm []int16)
		if c.opts.Crowd {
			sound = c.World.Sound
		}
		noise, err := newNoise(sound, c.pub)
		if err != nil {
			return err
		}
		return worlds.NewSource(c.World).Run(ctx, func(_ uint32, pts time.Duration, i420 []byte) error {
			if err := noise.until(pts); err != nil {
				return err
			}
			return c.encode(ctx, pts, i420)
		})
	})
	if err := rescue.UnlessCanceled(g.Wait()); err != nil {
		return fmt.Errorf("run the camera: %w", err)
	}
	return nil
}

func (c *Demo) encode(ctx context.Context, pts time.Duration, i420 []byte) error {
	err := c.enc.Encode(ctx, codec.Picture{Pix: i420, PTS: pts, Arrival: time.Now()}, c.key.Swap(false))
	if err != nil && ctx.Err() == nil {
		c.opts.Log.Debug().Err(err).Msg("picture not encoded")
	}
	return ctx.Err()
}

// noise sends generated sound in sync with pictures.
type noise struct {
	make func(from int64, pcm []int16)
	out  *publish.CameraPublisher
	enc  *opus.Encoder
	next int64 // sample
}

func newNoise(sounds func(from int64, pcm []int16), out *publish.CameraPublisher) (*noise, error) {
	n := &noise{make: sounds, out: out}
	if sounds == nil {
		return n, nil
	}
	var err error
	if n.enc, err = opus.NewEncoder(sound.Rate, 1, opus.AppAudio); err != nil {
		return nil, fmt.Errorf("make the encoder of the camera's sound: %w", err)
	}
	return n, nil
}

// until sends the sound up to a picture's time.
func (n *noise) until(pts time.Duration) error {
	const frame = sound.Rate / 50
	now := time.Now()
	for n.make != nil && n.next+frame <= int64(pts)*6/125000 {
		pcm, packet := make([]int16, frame), make([]byte, 1275)
		n.make(n.next, pcm)
		size, err := n.enc.Encode(pcm, packet)
		if err != nil {
			return fmt.Errorf("encode the camera's sound: %w", err)
		}
		arrival := now.Add(time.Duration(n.next)*125000/6 - pts)
		_, _ = n.out.WriteCaptured(packet[:size], uint32(n.next), n.next == 0, arrival, time.Time{}) // it counts and logs errors itself
		n.next += frame
	}
	return nil
}
