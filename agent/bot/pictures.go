package bot

import (
	"context"
	"iter"
	"sync"
	"time"

	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/delay"
	"touchline/media/fanout"
)

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
			LongSide: watchSide, Memory: p.b.opts.Memory, Log: p.b.log,
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
		wg.Go(func() { _ = rescue.Call(func() error { p.decode(ctx, dec); return nil }) })
		for {
			select {
			case <-ctx.Done():
				return
			case f := <-seen:
				if !yield(f) {
					return
				}
			}
		}
	}
}

// decode gives the delayed copy to a decoder, from the next key frame on, until ctx ends. The Arrival of a picture is then the
// moment at which the room shows it.
func (p pictures) decode(ctx context.Context, dec *codec.Decoder) {
	o := fanout.ReaderOptions{Fresh: true, Log: p.b.log.With().Str("reader", "mjpeg").Logger()}
	p.b.delayed.Read(ctx.Done(), o, func(frames []delay.OutFrame) bool {
		dec.SetMasks(p.b.Regions.Masks())
		for _, f := range frames {
			f.Arrival = f.Due
			_ = dec.Decode(f.EncodedFrame, true) // a frame that cannot be decoded is left out
		}
		return true
	})
}

// pictures adapts the bot to console.Pictures.
type pictures struct{ b *Bot }

// Snapshot implements console.Pictures.
func (p pictures) Snapshot(ctx context.Context) (media.VideoFrame, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return p.b.Newest(ctx)
}
