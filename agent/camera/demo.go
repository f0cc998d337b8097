package camera

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/agent/room"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/sound"
	"touchline/media/toyworld"
)

// DemoOptions of a Demo.
type DemoOptions struct {
	URL      string
	Keys     room.Keys
	Room     string
	Identity string
	// Width, Height and FPS of the picture; 1280, 720 and 30 when 0.
	Width, Height, FPS int
	// Codec to encode with; H264 when unset.
	Codec media.Codec
	// File is a clip to play, looped, by ffmpeg; "" generates a football match from Seed.
	File string
	Seed uint64
	// LoopbackOnly keeps media sockets on 127.0.0.1, for a server in this process.
	LoopbackOnly bool
	// OnSent is called with the PTS of each picture that is published; may be nil.
	OnSent func(pts time.Duration)
	// Crowd adds the sound of the match.
	Crowd bool
	// Sound replaces the crowd's 48 kHz mono sound. It fills pcm from sample number from on, counted from PTS 0; may be nil.
	Sound func(from int64, pcm []int16)
	// Still generates a match without motion.
	Still bool
	Log   zerolog.Logger
}

// Demo publishes a generated match or a clip as a participant.
type Demo struct {
	opts  DemoOptions
	World *toyworld.World // nil for a clip
	enc   *codec.Encoder
	pub   *room.CameraPublisher
	out   chan media.EncodedFrame
	key   atomic.Bool // the next picture must be a key frame
}

// bitRate of the built-in camera at 1280x720, in bit/s.
const bitRate = 1_700_000

// NewDemo checks the options; nothing runs yet.
func NewDemo(o DemoOptions) (*Demo, error) {
	if o.Width == 0 {
		o.Width, o.Height = 1280, 720
	}
	if o.FPS == 0 {
		o.FPS = 30
	}
	if o.Codec == media.CodecUnknown {
		o.Codec = media.H264
	}
	c := &Demo{opts: o, out: make(chan media.EncodedFrame, 64)}
	var err error
	if o.File == "" {
		c.World, err = toyworld.New(toyworld.Options{Seed: o.Seed, Width: o.Width, Height: o.Height, FPS: o.FPS, Still: o.Still})
		if err != nil {
			return nil, fmt.Errorf("make the match: %w", err)
		}
		if o.Crowd && o.Sound == nil {
			c.opts.Sound = c.World.Sound
		}
	} else if _, err = exec.LookPath("ffmpeg"); err != nil {
		return nil, errors.New("playing a clip needs ffmpeg, which is not installed; install it, for example by apt-get install ffmpeg")
	}
	c.enc, err = codec.NewEncoder(codec.EncoderOptions{
		Codec: o.Codec, Width: o.Width, Height: o.Height, FPS: o.FPS,
		BitRate: bitRate * o.Width * o.Height / (1280 * 720),
		OnFrame: func(f media.EncodedFrame) {
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
	c.pub, err = room.NewCameraPublisher(room.CameraOptions{
		URL: o.URL, Keys: o.Keys, Room: o.Room, Identity: o.Identity, Name: "camera", LoopbackOnly: o.LoopbackOnly,
		OnKeyFrame: func() { c.key.Store(true) }, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("make the camera: %w", err)
	}
	return c, nil
}

// Run publishes until ctx ends.
func (c *Demo) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.enc.Run(ctx) })
	g.Go(func() error { return c.pub.Run(ctx, c.out) })
	g.Go(func() error {
		if c.World != nil {
			noise, err := newNoise(c.opts.Sound, c.pub)
			if err != nil {
				return err
			}
			return toyworld.NewSource(c.World).Run(ctx, func(_ uint32, pts time.Duration, i420 []byte) error {
				if err := noise.until(pts); err != nil {
					return err
				}
				return c.encode(ctx, pts, i420)
			})
		}
		return c.play(ctx)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
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
	out  *room.CameraPublisher
	enc  *opus.Encoder
	next int64 // sample
}

func newNoise(sounds func(from int64, pcm []int16), out *room.CameraPublisher) (*noise, error) {
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

// play encodes the clip, which ffmpeg decodes in real time and in a loop.
func (c *Demo) play(ctx context.Context) error {
	o := c.opts
	size := fmt.Sprintf("%d:%d", o.Width, o.Height)
	cmd := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-nostdin", "-re", "-stream_loop", "-1",
		"-protocol_whitelist", "file,pipe", "-i", o.File, "-an",
		"-vf", fmt.Sprintf("fps=%d,scale=%s:force_original_aspect_ratio=decrease,pad=%s:(ow-iw)/2:(oh-ih)/2", o.FPS, size, size),
		"-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1")
	complaints := &tail{}
	cmd.Stderr = complaints
	cmd.WaitDelay = time.Second
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start ffmpeg: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start ffmpeg: %w", err)
	}
	in := bufio.NewReaderSize(pipe, 1<<20)
	picture := make([]byte, o.Width*o.Height*3/2)
	for n := 0; err == nil; n++ {
		if _, err = io.ReadFull(in, picture); err == nil {
			err = c.encode(ctx, media.TicksToDuration(int64(n), int64(o.FPS)), picture)
		}
	}
	werr := cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("play %s: %w: %s", o.File, errors.Join(err, werr), complaints.text)
}

// tail keeps the end of a program's standard error.
type tail struct{ text []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const most = 500
	t.text = append(t.text, p...)
	if n := len(t.text) - most; n > 0 {
		t.text = t.text[n:]
	}
	return len(p), nil
}
