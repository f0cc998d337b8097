package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	opus "gopkg.in/hraban/opus.v2"

	"touchline/agent/room/publish"
	"touchline/internal/ticks"
	"touchline/media"
	"touchline/media/codec"
	"touchline/worlds"
)

// Clip is some seconds of encoded pictures, sent in a loop: a camera that needs hardly any CPU.
type Clip struct {
	Frames []media.EncodedFrame
	FPS    int
}

// ClipLength is the length of a Clip made by MakeClip.
const ClipLength = 20 * time.Second

// MakeClip encodes a generated match as fast as possible, with a key frame each second.
func MakeClip(ctx context.Context, c media.Codec, width, height, fps, bitRate int, seed uint64) (*Clip, error) {
	world, err := worlds.New(worlds.Options{Seed: seed, Width: width, Height: height, FPS: fps, Counter: true})
	if err != nil {
		return nil, fmt.Errorf("make the match: %w", err)
	}
	var mu sync.Mutex
	out := &Clip{FPS: fps}
	n := int(ClipLength.Seconds()) * fps
	enc, err := codec.NewEncoder(codec.EncoderOptions{
		Codec: c, Width: width, Height: height, FPS: fps, BitRate: bitRate,
		OnFrame: func(f media.EncodedFrame) {
			mu.Lock()
			defer mu.Unlock()
			out.Frames = append(out.Frames, f)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the encoder: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = enc.Run(ctx) }) // ends with ctx
	defer wg.Wait()
	defer cancel()
	for i := range n {
		pic := codec.Picture{Pix: world.Frame(uint32(i)), PTS: world.PTS(uint32(i))}
		for {
			if err = enc.Encode(ctx, pic, i%fps == 0); err == nil || ctx.Err() != nil {
				break
			}
			if err := Wait(ctx, 20*time.Millisecond); err != nil { // the process is starting
				return nil, err
			}
		}
	}
	// The last pictures are still being encoded.
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(out.Frames)
	}
	for had := -1; had < count(); {
		had = count()
		if err := Wait(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if got := count(); got < n*9/10 || !out.Frames[0].KeyFrame {
		return nil, fmt.Errorf("%d encoded pictures of about %d, or no key frame first", got, n)
	}
	return out, nil
}

// Units returns the clip's access units.
func (c *Clip) Units() [][]byte {
	units := make([][]byte, len(c.Frames))
	for i, f := range c.Frames {
		units[i] = f.Data
	}
	return units
}

// Play sends the clip in real time, in a loop, until ctx ends.
func (c *Clip) Play(ctx context.Context, out chan<- media.EncodedFrame) error {
	start := time.Now()
	for n := 0; ; n++ {
		f := c.Frames[n%len(c.Frames)]
		f.PTS = ticks.Duration(int64(n), int64(c.FPS))
		f.Arrival = start.Add(f.PTS)
		if err := Wait(ctx, time.Until(f.Arrival)); err != nil {
			return err
		}
		select {
		case out <- f:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hum sends a second of encoded sound in a loop.
func hum(ctx context.Context, out *publish.CameraPublisher) error {
	enc, err := opus.NewEncoder(sampleRate, 1, opus.AppAudio)
	if err != nil {
		return fmt.Errorf("make the encoder of the camera's sound: %w", err)
	}
	const frame = sampleRate / 50
	var packets [50][]byte
	for i := range packets {
		pcm, packet := make([]int16, frame), make([]byte, 1275)
		testSound(int64(i*frame), pcm)
		n, err := enc.Encode(pcm, packet)
		if err != nil {
			return fmt.Errorf("encode the camera's sound: %w", err)
		}
		packets[i] = packet[:n]
	}
	start := time.Now()
	for n := 0; ; n++ {
		if err := Wait(ctx, time.Until(start.Add(time.Duration(n)*20*time.Millisecond))); err != nil {
			return err
		}
		_, _ = out.WriteOpus(packets[n%len(packets)], uint32(n*frame), n == 0) // wraps as timestamps do
	}
}

// AddReplayedCamera publishes the clip of the options in a room of the stage's server, optionally with sound. Without one
// it encodes a match.
func (s *Stage) AddReplayedCamera(roomName string, sound bool) error {
	const fps = 30
	c := s.opts.Codec
	if c == media.CodecUnknown {
		c = media.H264
	}
	if s.clip == nil {
		var err error
		if s.clip, err = MakeClip(s.ctx, c, s.opts.Width, s.opts.Height, fps, 1_700_000, s.opts.Seed); err != nil {
			return err
		}
	}
	pub, err := publish.NewCameraPublisher(publish.CameraOptions{
		URL: s.URL(), Keys: s.Keys, Room: roomName, Identity: "camera", LoopbackOnly: true, Log: s.Log,
	})
	if err != nil {
		return fmt.Errorf("make the camera: %w", err)
	}
	frames := make(chan media.EncodedFrame, 8)
	s.Run(func(ctx context.Context) error { return pub.Run(ctx, frames) })
	s.Run(func(ctx context.Context) error { return s.clip.Play(ctx, frames) })
	if sound {
		s.Run(func(ctx context.Context) error { return hum(ctx, pub) })
	}
	return nil
}
