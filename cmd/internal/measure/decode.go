package measure

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/codec"
	"touchline/media/toyworld"
)

// Decode measures what it costs to watch a 720p30 match with each codec, two
// pictures a second scaled to 448 pixels: this process and the codec process,
// less what only pacing the access units costs. It needs ffmpeg with libvpx and
// libaom for the codecs that a camera of ours cannot send.
func Decode(ctx context.Context, length time.Duration, log zerolog.Logger) ([]Row, error) {
	const fps, seed = 30, 3
	var rows []Row
	for _, c := range []struct {
		codec media.Codec
		most  float64 // % of a core
	}{{media.VP8, 3.5}, {media.H264, 3.5}, {media.VP9, 5}, {media.AV1, 5.5}} {
		make1 := makeClip
		if c.codec == media.VP9 || c.codec == media.AV1 {
			make1 = ffmpegClip
		}
		match, err := make1(ctx, c.codec, 1280, 720, fps, seed)
		if err != nil {
			return rows, fmt.Errorf("encode a match as %v: %w", c.codec, err)
		}
		size := 0
		for _, f := range match.frames {
			size += len(f.Data)
		}
		got, err := decodeCost(ctx, match, fps, length, log)
		if err != nil {
			return rows, fmt.Errorf("decode %v: %w", c.codec, err)
		}
		rate := float64(8*size*fps) / float64(len(match.frames)) / 1e6
		rows = append(rows,
			Check(fmt.Sprintf("%v, %.1f Mbit/s: decode and sample", c.codec, rate), 100*(got.whole-got.feed), c.most, "% of a core"),
			Note(fmt.Sprintf("%v: of it in the codec process", c.codec),
				fmt.Sprintf("%.2f %%; the feed alone, taken off: %.2f %%", 100*got.child, 100*got.feed)))
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
	const warm = 3 * time.Second
	res.whole, res.child, err = feedCost(ctx, match, fps, warm, length, func(f media.EncodedFrame, sample bool) error {
		err := dec.Decode(f, sample)
		if errors.Is(err, codec.ErrBehind) || f.PTS < warm { // its process is starting
			return nil
		}
		return err
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

// ffmpegClip encodes a generated match with the ffmpeg program, with a key frame each second.
func ffmpegClip(ctx context.Context, c media.Codec, width, height, fps int, seed uint64) (*clip, error) {
	const length = 10 // s
	world, err := toyworld.New(toyworld.Options{Seed: seed, Width: width, Height: height, FPS: fps})
	if err != nil {
		return nil, fmt.Errorf("make the match: %w", err)
	}
	encoder := []string{"-c:v", "libvpx-vp9", "-deadline", "realtime", "-auto-alt-ref", "0"}
	if c == media.AV1 {
		encoder = []string{"-c:v", "libaom-av1", "-usage", "realtime"}
	}
	args := append([]string{
		"-v", "error", "-nostdin", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", fmt.Sprintf("%dx%d", width, height),
		"-r", strconv.Itoa(fps), "-i", "-", "-g", strconv.Itoa(fps), "-b:v", "1.7M", "-maxrate", "1.7M", "-bufsize", "1M",
		"-cpu-used", "8", "-lag-in-frames", "0",
	}, encoder...)
	cmd := exec.CommandContext(ctx, "ffmpeg", append(args, "-f", "ivf", "-")...)
	raw, pipe := io.Pipe()
	cmd.Stdin = raw
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		for i := uint32(0); i < uint32(length*fps) && err == nil; i++ { //nolint:gosec // small
			_, err = pipe.Write(world.Frame(i))
		}
		pipe.CloseWithError(err)
	})
	err = cmd.Run()
	raw.Close()
	wg.Wait()
	if err != nil {
		return nil, fmt.Errorf("run ffmpeg: %w: %s (apt install ffmpeg)", err, bytes.TrimSpace(complaint.Bytes()))
	}
	match, err := readIVF(out.Bytes(), c)
	if err == nil && len(match.frames) < length*fps*9/10 {
		err = fmt.Errorf("expected about %d encoded pictures, got %d", length*fps, len(match.frames))
	}
	if err != nil {
		return nil, fmt.Errorf("read ffmpeg's output: %w", err)
	}
	for i := range match.frames {
		match.frames[i].KeyFrame = i%fps == 0
		if i%fps == 0 {
			match.frames[i].Width, match.frames[i].Height = width, height
		}
	}
	return match, nil
}

// readIVF takes an IVF file apart: a head that tells its own length, then each
// frame behind 12 bytes that begin with its length.
func readIVF(b []byte, c media.Codec) (*clip, error) {
	const head, frameHead = 32, 12
	if len(b) < head || !bytes.HasPrefix(b, []byte("DKIF")) {
		return nil, errors.New("expected an IVF file")
	}
	out := &clip{}
	for b = b[min(int(binary.LittleEndian.Uint16(b[6:])), len(b)):]; len(b) > 0; {
		if len(b) < frameHead {
			return nil, errors.New("expected a whole frame in the IVF file, it breaks off")
		}
		n := int(binary.LittleEndian.Uint32(b))
		if n > len(b)-frameHead {
			return nil, fmt.Errorf("expected %d bytes of a frame in the IVF file, got %d", n, len(b)-frameHead)
		}
		out.frames = append(out.frames, media.EncodedFrame{Codec: c, Data: b[frameHead : frameHead+n]})
		b = b[frameHead+n:]
	}
	return out, nil
}
