package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/codec"
)

// Decode measures what it costs to watch a browser's 720p30 camera with each
// codec, two pictures a second scaled to 448 pixels: this process and the codec
// process, less what only pacing the access units costs. Beside it stands what
// libavcodec alone takes for the same stream. It needs Chromium and ffmpeg.
func Decode(ctx context.Context, length time.Duration, log zerolog.Logger) ([]Row, error) {
	const fps = 30
	var rows []Row
	for _, c := range []struct {
		codec media.Codec
		mode  string  // of layers; LiveKit's clients send VP8 in three temporal ones
		most  float64 // % of a core
	}{{media.VP8, "", 3.5}, {media.VP8, "L1T3", 3.5}, {media.H264, "", 3.5}, {media.VP9, "", 5}, {media.AV1, "", 5.5}} {
		match, err := recordBrowser(ctx, c.codec, c.mode)
		if err != nil {
			return rows, fmt.Errorf("record a browser's camera as %v: %w", c.codec, err)
		}
		size, spare := 0, 0
		for _, f := range match.frames {
			size += len(f.Data)
			if f.Discardable {
				spare++
			}
		}
		got, err := decodeCost(ctx, match, fps, length, log)
		if err != nil {
			return rows, fmt.Errorf("decode %v: %w", c.codec, err)
		}
		alone, err := decoderAlone(ctx, c.codec, match, fps)
		if err != nil {
			return rows, err
		}
		name := strings.TrimSpace(c.codec.String() + " " + c.mode)
		rate := float64(8*size*fps) / float64(len(match.frames)) / 1e6
		rows = append(rows,
			Check(fmt.Sprintf("%s, %.1f Mbit/s: decode and sample", name, rate), 100*(got.whole-got.feed), c.most, "% of a core"),
			Note(name+": libavcodec alone, all pictures", fmt.Sprintf("%.2f %%", 100*alone)),
			Note(name+": of it in the codec process",
				fmt.Sprintf("%.2f %%; the feed alone, taken off: %.2f %%; pictures nobody needs: %d of %d",
					100*got.child, 100*got.feed, spare, len(match.frames))))
	}
	return rows, nil
}

// decodeResult in shares of a core.
type decodeResult struct{ whole, child, feed float64 }

func decodeCost(ctx context.Context, match *clip, fps int, length time.Duration, log zerolog.Logger) (decodeResult, error) {
	var res decodeResult
	var err error
	if res.feed, _, err = feedCost(ctx, match, fps, 0, length/2, func(media.EncodedFrame, bool) error { return nil }); err != nil {
		return res, err
	}
	var pictures atomic.Int64
	dec, err := codec.New(codec.Options{LongSide: 448, OnPicture: func(media.VideoFrame) { pictures.Add(1) }, Log: log})
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = dec.Run(ctx) }) // ends with ctx
	defer wg.Wait()
	defer cancel()
	// Its process answers before the clip begins, whose only key frame must not be lost.
	_, err = Until(ctx, 20*time.Second, "the codec process", func() bool {
		_, err := dec.Latest(ctx)
		return errors.Is(err, codec.ErrNoPicture)
	})
	if err != nil {
		return res, err
	}
	const warm = 3 * time.Second
	res.whole, res.child, err = feedCost(ctx, match, fps, warm, length, func(f media.EncodedFrame, sample bool) error {
		return dec.Decode(f, sample)
	})
	if err != nil {
		return res, err
	}
	if got, want := float64(pictures.Load()), 2*length.Seconds(); got < 0.9*want {
		return res, fmt.Errorf("expected about %g pictures, got %g", want, got)
	}
	return res, nil
}

// feedCost sends a clip in real time, every half second a picture to be
// sampled, and returns what this process and its children take once warm, and the children alone.
func feedCost(
	ctx context.Context, match *clip, fps int, warm, length time.Duration, send func(f media.EncodedFrame, sample bool) error,
) (whole, child float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames := make(chan media.EncodedFrame)
	var wg sync.WaitGroup
	wg.Go(func() { _ = match.play(ctx, fps, frames) }) // ends with ctx
	defer wg.Wait()
	defer cancel()
	pid := os.Getpid()
	var all, own Usage
	var start time.Time
	for n := 0; ; n++ {
		var f media.EncodedFrame
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case f = <-frames:
		}
		if start.IsZero() && f.PTS >= warm {
			start = time.Now()
			if all, err = UsageOf(pid); err != nil {
				return 0, 0, err
			}
			if own, err = usageOfOne(pid); err != nil {
				return 0, 0, err
			}
		}
		if f.PTS >= warm+length {
			break
		}
		f.Received, f.Epoch, f.SpatialLayers = time.Now(), 1, 1
		if err := send(f, n%(fps/2) == 0); err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(start).Seconds()
	allNow, err := UsageOf(pid)
	if err != nil {
		return 0, 0, err
	}
	ownNow, err := usageOfOne(pid)
	if err != nil {
		return 0, 0, err
	}
	whole = (allNow.CPU - all.CPU).Seconds() / took
	return whole, whole - (ownNow.CPU-own.CPU).Seconds()/took, nil
}

// file is the clip as ffmpeg reads it: Annex B for H264, IVF for the others
// (a head of 32 bytes, then each frame behind 12 that begin with its length).
func (c *clip) file(codec media.Codec) []byte {
	var out []byte
	if codec != media.H264 {
		out = append(out, "DKIF\x00\x00\x20\x00"...)
		out = append(out, map[media.Codec]string{media.VP8: "VP80", media.VP9: "VP90", media.AV1: "AV01"}[codec]...)
		out = binary.LittleEndian.AppendUint16(out, 1280)
		out = binary.LittleEndian.AppendUint16(out, 720)
		out = binary.LittleEndian.AppendUint32(out, 30) // a second
		out = binary.LittleEndian.AppendUint32(out, 1)
		out = binary.LittleEndian.AppendUint64(out, uint64(len(c.frames)))
	}
	for i, f := range c.frames {
		if codec != media.H264 {
			out = binary.LittleEndian.AppendUint32(out, uint32(len(f.Data))) //nolint:gosec // some kilobytes
			out = binary.LittleEndian.AppendUint64(out, uint64(i))           //nolint:gosec // small
		}
		out = append(out, f.Data...)
	}
	return out
}
