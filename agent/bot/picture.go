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

// tap passes the delayed picture on and shows it to those who watch without
// the room.
type tap struct {
	out agent.VideoOutput
	// sound follows the picture; nil without the camera's sound.
	sound *sound.Line
	// players watch without a LiveKit client; may be nil.
	players *whep.Feed

	// askKeyFrame asks the source for a key frame, for a reader that has lost something.
	askKeyFrame func()

	mu      sync.Mutex
	readers map[*tapReader]struct{}
}

// tapReader is one who watches without the room.
type tapReader struct {
	frames   chan media.EncodedFrame
	skipping bool // until the next key frame; guarded by tap.mu
}

// WriteFrame implements agent.VideoOutput.
func (t *tap) WriteFrame(f delay.OutFrame) (time.Time, error) {
	if t.sound != nil {
		t.sound.Picture(f.Arrival, f.NTP, f.Due)
	}
	if t.players != nil {
		t.players.WriteFrame(f)
	}
	at, err := t.out.WriteFrame(f)
	lost := false
	t.mu.Lock()
	for r := range t.readers {
		if r.skipping && !f.KeyFrame {
			continue
		}
		select {
		case r.frames <- f.EncodedFrame:
			r.skipping = false
		default: // it decodes too slowly, and what follows a gap cannot be decoded
			lost = lost || !r.skipping
			r.skipping = true
		}
	}
	t.mu.Unlock()
	if lost && t.askKeyFrame != nil {
		t.askKeyFrame()
	}
	return at, err
}

// subscribe begins with a key frame, which it asks for.
func (t *tap) subscribe() (<-chan media.EncodedFrame, func()) {
	r := &tapReader{frames: make(chan media.EncodedFrame, 64), skipping: true}
	t.mu.Lock()
	if t.readers == nil {
		t.readers = map[*tapReader]struct{}{}
	}
	t.readers[r] = struct{}{}
	t.mu.Unlock()
	if t.askKeyFrame != nil {
		t.askKeyFrame()
	}
	return r.frames, func() {
		t.mu.Lock()
		delete(t.readers, r)
		t.mu.Unlock()
	}
}

// watchSide is the longer edge of pictures for plain players, in pixels.
const watchSide = 640

// Delayed implements console.Pictures: it decodes the delayed copy in a process
// of its own for as long as somebody watches. It yields nothing when the
// delayed copy is off.
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
