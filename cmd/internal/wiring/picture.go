package wiring

import (
	"context"
	"iter"
	"sync"
	"time"

	"touchline/agent"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/delay"
)

// tap passes the delayed picture on and shows it to those who watch without
// the room.
type tap struct {
	out agent.VideoOutput

	mu      sync.Mutex
	readers map[chan media.EncodedFrame]struct{}
}

// WriteFrame implements agent.VideoOutput.
func (t *tap) WriteFrame(f delay.OutFrame) (time.Time, error) {
	at, err := t.out.WriteFrame(f)
	t.mu.Lock()
	for r := range t.readers {
		select {
		case r <- f.EncodedFrame:
		default: // it decodes too slowly: the decoder waits for the next key frame
		}
	}
	t.mu.Unlock()
	return at, err
}

func (t *tap) subscribe() (<-chan media.EncodedFrame, func()) {
	c := make(chan media.EncodedFrame, 64)
	t.mu.Lock()
	if t.readers == nil {
		t.readers = map[chan media.EncodedFrame]struct{}{}
	}
	t.readers[c] = struct{}{}
	t.mu.Unlock()
	return c, func() {
		t.mu.Lock()
		delete(t.readers, c)
		t.mu.Unlock()
	}
}

// watchSide is the longer edge of pictures for plain players, in pixels.
const watchSide = 640

// Delayed implements console.Pictures: it decodes the delayed copy in a process
// of its own for as long as somebody watches.
func (p pictures) Delayed(ctx context.Context) iter.Seq[media.VideoFrame] {
	return func(yield func(media.VideoFrame) bool) {
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
		wg.Go(func() { _ = dec.Run(ctx) }) // ends with ctx
		frames, stop := p.b.delayed.subscribe()
		defer stop()
		p.b.Room.Watcher().RequestKeyFrame()
		for {
			select {
			case <-ctx.Done():
				return
			case f := <-frames:
				_ = dec.Decode(f, true) // what cannot be decoded is not shown
			case f := <-seen:
				if !yield(f) {
					return
				}
			}
		}
	}
}

// pictures is the bot as the console's source of pictures.
type pictures struct{ b *Bot }

// Snapshot implements console.Pictures.
func (p pictures) Snapshot(ctx context.Context) (media.VideoFrame, error) { return p.b.newest(ctx) }
