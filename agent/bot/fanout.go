package bot

import (
	"context"
	"iter"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/whep"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/delay"
	"touchline/media/sound"
)

// fanout passes the delayed picture to the room, to WHEP players and to readers
// that decode it, such as the page's MJPEG stream.
type fanout struct {
	out agent.VideoOutput
	// sound follows the picture; nil without the camera's sound.
	sound *sound.Line
	// players are WHEP players; may be nil.
	players *whep.Feed

	// askKeyFrame requests a key frame of the source, for a reader that has lost frames.
	askKeyFrame func()

	mu      sync.Mutex
	readers map[*fanoutReader]struct{}
}

// fanoutReader is one subscriber.
type fanoutReader struct {
	frames   chan media.EncodedFrame
	skipping bool // until the next key frame; guarded by fanout.mu
}

// WriteFrame implements agent.VideoOutput.
func (f *fanout) WriteFrame(frame delay.OutFrame) (time.Time, error) {
	if f.sound != nil {
		f.sound.Picture(frame.Arrival, frame.NTP, frame.Due)
	}
	if f.players != nil {
		f.players.WriteFrame(frame)
	}
	at, err := f.out.WriteFrame(frame)
	lost := false
	copied := frame.EncodedFrame
	copied.Arrival = frame.Due
	f.mu.Lock()
	for r := range f.readers {
		if r.skipping && !frame.KeyFrame {
			continue
		}
		select {
		case r.frames <- copied:
			r.skipping = false
		default: // a slow reader: frames after a gap cannot be decoded
			lost = lost || !r.skipping
			r.skipping = true
		}
	}
	f.mu.Unlock()
	if lost && f.askKeyFrame != nil {
		f.askKeyFrame()
	}
	return at, err
}

// subscribe requests a key frame. It returns the frames from there on, whose Arrival is the moment that they are shown in the
// room, and a function that ends the subscription.
func (f *fanout) subscribe() (<-chan media.EncodedFrame, func()) {
	r := &fanoutReader{frames: make(chan media.EncodedFrame, 64), skipping: true}
	f.mu.Lock()
	if f.readers == nil {
		f.readers = map[*fanoutReader]struct{}{}
	}
	f.readers[r] = struct{}{}
	f.mu.Unlock()
	if f.askKeyFrame != nil {
		f.askKeyFrame()
	}
	return r.frames, func() {
		f.mu.Lock()
		delete(f.readers, r)
		f.mu.Unlock()
	}
}

// watchSide is the longer edge of the pictures of /api/mjpeg, in pixels.
const watchSide = 640

// Delayed implements console.Pictures: a codec process decodes the delayed copy
// until ctx ends or the caller breaks off. It yields nothing when the delayed copy is off.
func (p pictures) Delayed(ctx context.Context) iter.Seq[media.VideoFrame] {
	return func(yield func(media.VideoFrame) bool) {
		if !p.b.opts.Settings.Media.Relay {
			return // there is no delayed copy
		}
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		seen := make(chan media.VideoFrame, 1)
		dec, err := codec.New(codec.Options{
			LongSide: watchSide, Log: p.b.log,
			OnPicture: func(f media.VideoFrame) {
				select {
				case seen <- f:
				default:
				}
			},
		})
		if err != nil {
			p.b.log.Warn().Err(err).Msg("the delayed picture cannot be decoded")
			return
		}
		wg.Go(func() { _ = rescue.Call(func() error { return dec.Run(ctx) }) }) // ends with ctx
		frames, stop := p.b.delayed.subscribe()
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case f := <-frames:
				_ = dec.Decode(f, true) // a frame that cannot be decoded is left out
			case f := <-seen:
				if !yield(f) {
					return
				}
			}
		}
	}
}

// pictures adapts the bot to console.Pictures.
type pictures struct{ b *Bot }

// Snapshot implements console.Pictures.
func (p pictures) Snapshot(ctx context.Context) (media.VideoFrame, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return p.b.Newest(ctx)
}
