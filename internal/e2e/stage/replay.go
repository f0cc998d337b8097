package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	opus "gopkg.in/hraban/opus.v2"

	"touchline/agent/room"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/toyworld"
)

// clip is some seconds of encoded match, to be sent over and over: a camera
// that costs this process next to nothing.
type clip struct{ frames []media.EncodedFrame }

// clipLength of a replayed camera.
const clipLength = 20 * time.Second

// makeClip encodes a generated match as fast as it goes, with a key frame each second.
func makeClip(ctx context.Context, c media.Codec, width, height, fps, bitRate int, seed uint64) (*clip, error) {
	world, err := toyworld.New(toyworld.Options{Seed: seed, Width: width, Height: height, FPS: fps})
	if err != nil {
		return nil, fmt.Errorf("make the match: %w", err)
	}
	var mu sync.Mutex
	out := &clip{}
	n := int(clipLength.Seconds()) * fps
	enc, err := codec.NewEncoder(codec.EncoderOptions{
		Codec: c, Width: width, Height: height, FPS: fps, BitRate: bitRate,
		OnFrame: func(f media.EncodedFrame) {
			mu.Lock()
			defer mu.Unlock()
			out.frames = append(out.frames, f)
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
		pic := codec.Picture{Pix: world.Frame(uint32(i)), PTS: world.PTS(uint32(i))} //nolint:gosec // small
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
		return len(out.frames)
	}
	for had := -1; had < count(); {
		had = count()
		if err := Wait(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if got := count(); got < n*9/10 || !out.frames[0].KeyFrame {
		return nil, fmt.Errorf("expected about %d encoded pictures that begin with a key frame, got %d", n, got)
	}
	return out, nil
}

// play sends the clip in real time, over and over.
func (c *clip) play(ctx context.Context, fps int, out chan<- media.EncodedFrame) error {
	start := time.Now()
	for n := 0; ; n++ {
		f := c.frames[n%len(c.frames)]
		f.PTS = time.Duration(n) * time.Second / time.Duration(fps)
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

// hum sends a second of encoded sound over and over.
func hum(ctx context.Context, out *room.CameraPublisher) error {
	enc, err := opus.NewEncoder(sampleRate, 1, opus.AppAudio)
	if err != nil {
		return fmt.Errorf("make the encoder of the camera's sound: %w", err)
	}
	const frame = sampleRate / 50
	var packets [50][]byte
	for i := range packets {
		pcm, packet := make([]int16, frame), make([]byte, 1275)
		Beeps(true)(int64(i*frame), pcm)
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
		_, _ = out.WriteOpus(packets[n%len(packets)], uint32(n*frame), n == 0) //nolint:gosec // wraps as timestamps do
	}
}

// addReplayedCamera publishes a clip in a room of the stage's server, with sound or without.
func (s *Stage) addReplayedCamera(roomName string, sound bool) error {
	const fps = 30
	c := s.opts.Codec
	if c == media.CodecUnknown {
		c = media.H264
	}
	if s.clip == nil {
		var err error
		if s.clip, err = makeClip(s.ctx, c, s.opts.Width, s.opts.Height, fps, 1_700_000, s.opts.Seed); err != nil {
			return err
		}
	}
	pub, err := room.NewCameraPublisher(room.CameraOptions{
		URL: s.url(), Keys: s.Keys, Room: roomName, Identity: "camera", LoopbackOnly: true, Log: s.opts.Log,
	})
	if err != nil {
		return fmt.Errorf("make the camera: %w", err)
	}
	frames := make(chan media.EncodedFrame, 8)
	s.run(func(ctx context.Context) error { return pub.Run(ctx, frames) })
	s.run(func(ctx context.Context) error { return s.clip.play(ctx, fps, frames) })
	if sound {
		s.run(func(ctx context.Context) error { return hum(ctx, pub) })
	}
	return nil
}
