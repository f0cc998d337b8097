package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/window"
)

// decodeRuns is the number of runs per stream; the figure is their median.
const decodeRuns = 3

// keyFrameAlone is the bot's key frame interval in seconds while its picture has no viewer.
const keyFrameAlone = 4

// measureDecode measures the CPU of sampling two pictures a second, at 448 pixels, from a browser's 720p30 camera:
// this process and the codec process, less the cost of pacing the access units. Each codec runs three times: with a
// key frame a second (a room with viewers), every 4 s (without viewers), and with a single one, so that every
// picture has to be decoded. The cost of libavcodec alone for all pictures stands beside it.
//
// It needs Chromium and ffmpeg, unless the folder clips holds recordings of an earlier run; it saves them there.
func measureDecode(ctx context.Context, length time.Duration, clips string, log zerolog.Logger) ([]row, error) {
	const fps = 30
	var rows []row
	for _, c := range []struct {
		codec media.Codec
		mode  string  // scalability; LiveKit's clients send VP8 in three temporal layers
		most  float64 // % of a core
	}{{media.VP8, "", 3.5}, {media.VP8, "L1T3", 3.5}, {media.H264, "", 3.5}, {media.VP9, "", 5}, {media.AV1, "", 5.5}} {
		once, eachSecond, err := browserClips(ctx, clips, c.codec, c.mode)
		if err != nil {
			return rows, fmt.Errorf("record a browser's camera as %v: %w", c.codec, err)
		}
		name := strings.TrimSpace(c.codec.String() + " " + c.mode)
		for _, k := range []struct {
			clip *stage.Clip
			name string
		}{
			{eachSecond, name + ", a key frame each second"},
			{firstPictures(once, keyFrameAlone*fps), name + ", a key frame each 4 s"},
			{once, name + ", one key frame"},
		} {
			more, err := decodeClip(ctx, c.codec, k.clip, fps, length, k.name, c.most, log)
			rows = append(rows, more...)
			if err != nil {
				return rows, fmt.Errorf("decode %s: %w", k.name, err)
			}
		}
	}
	return rows, nil
}

// decodeClip measures one stream decodeRuns times.
func decodeClip(
	ctx context.Context, c media.Codec, clip *stage.Clip, fps int, length time.Duration, name string, most float64, log zerolog.Logger,
) ([]row, error) {
	feed, _, err := feedCost(ctx, clip, fps, 0, length, func(media.EncodedFrame) error { return nil })
	if err != nil {
		return nil, err
	}
	var costs, children []float64
	var got decodeResult
	for range decodeRuns {
		if got, err = decodeCost(ctx, clip, fps, length, log); err != nil {
			return nil, err
		}
		costs, children = append(costs, 100*(got.whole-feed)), append(children, 100*got.child)
	}
	alone, err := decoderAlone(ctx, c, clip, fps)
	beside := fmt.Sprintf("%.2f %%", 100*alone)
	if errors.Is(err, exec.ErrNotFound) {
		beside, err = "not measured: ffmpeg is not installed", nil
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(costs)
	slices.Sort(children)
	size := len(slices.Concat(clip.Units()...))
	rate := float64(8*size*fps) / float64(len(clip.Frames)) / 1e6
	return []row{
		atMost(fmt.Sprintf("%s, %.1f Mbit/s: decode and sample", name, rate), costs[decodeRuns/2], most, "% of a core"),
		note(name+": of it in the codec process", fmt.Sprintf("%.2f %%; runs from %.2f to %.2f %%; the feed, taken off: %.2f %%",
			children[decodeRuns/2], costs[0], costs[decodeRuns-1], 100*feed)),
		note(name+": libavcodec alone, all pictures", beside),
		note(name+": decoded", fmt.Sprintf("%.0f %% of the pictures, in %.1f bursts a second; a sample is there after %v (p95 %v)",
			100*got.decoded, got.bursts, got.median, got.p95)),
		note(name+": the browser sent", fmt.Sprintf("%.1f pictures a second; fewer than %d make a stream of more bits for each",
			recordedRate(clip), fps)),
	}, nil
}

// firstPictures cuts a clip to n pictures; in a loop it has a key frame every n pictures.
func firstPictures(c *stage.Clip, n int) *stage.Clip {
	return &stage.Clip{Frames: c.Frames[:min(n, len(c.Frames))]}
}

// recordedRate returns the pictures a second of the recording.
func recordedRate(c *stage.Clip) float64 {
	last := len(c.Frames) - 1
	return float64(last) / (c.Frames[last].PTS - c.Frames[0].PTS).Seconds()
}

// decodeResult is the cost of watching a stream, and its parts.
type decodeResult struct {
	whole, child float64       // shares of a core
	decoded      float64       // share of the pictures
	bursts       float64       // a second
	median, p95  time.Duration // of a sample, from its access unit to its picture
}

func decodeCost(ctx context.Context, match *stage.Clip, fps int, length time.Duration, log zerolog.Logger) (decodeResult, error) {
	var res decodeResult
	samples := newStopwatch()
	dec, err := codec.New(codec.Options{LongSide: 448, OnPicture: samples.picture, Log: log})
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = dec.Run(ctx) }) // ends with ctx
	defer wg.Wait()
	defer cancel()
	// The codec process must be up before the clip's only key frame.
	_, err = stage.Until(ctx, 20*time.Second, "the codec process", func() bool {
		_, err := dec.Latest(ctx)
		return errors.Is(err, codec.ErrNoPicture)
	})
	if err != nil {
		return res, err
	}
	const warm = 3 * time.Second
	var grid window.Grid
	var before codec.Stats
	res.whole, res.child, err = feedCost(ctx, match, fps, warm, length, func(f media.EncodedFrame) error {
		if f.PTS <= warm {
			before = dec.Stats()
		}
		sample := grid.Take(f, 2)
		if sample {
			samples.start(f.PTS)
		}
		return dec.Decode(f, sample)
	})
	if err != nil {
		return res, err
	}
	stats := dec.Stats()
	all, not := stats.Units-before.Units, stats.Skipped+stats.Dropped-before.Skipped-before.Dropped
	res.decoded = 1 - float64(not)/float64(all)
	res.bursts = float64(stats.Bursts-before.Bursts) / length.Seconds()
	took := samples.all()
	res.median, res.p95 = quantile.Of(took, 0.5).Round(100*time.Microsecond), quantile.Of(took, 0.95).Round(100*time.Microsecond)
	// Samples that wait for key frames are a little fewer.
	if got, want := float64(len(took)), 2*length.Seconds(); got < 0.9*want {
		return res, fmt.Errorf("%g pictures sampled, expected about %g", got, want)
	}
	return res, nil
}

// stopwatch times samples from their access unit to their picture.
type stopwatch struct {
	mu    sync.Mutex
	began map[time.Duration]time.Time
	took  []time.Duration
}

func newStopwatch() *stopwatch { return &stopwatch{began: map[time.Duration]time.Time{}} }

func (s *stopwatch) start(pts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began[pts] = time.Now()
}

func (s *stopwatch) picture(f media.VideoFrame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.began[f.PTS]; ok {
		s.took = append(s.took, time.Since(at))
		delete(s.began, f.PTS)
	}
}

func (s *stopwatch) all() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.took)
}

// feedCost sends a clip in real time and returns the CPU share of this process with its children after the warm-up,
// and of the children alone.
func feedCost(
	ctx context.Context, match *stage.Clip, fps int, warm, length time.Duration, send func(f media.EncodedFrame) error,
) (whole, child float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames := make(chan media.EncodedFrame)
	var wg sync.WaitGroup
	wg.Go(func() { _ = match.Play(ctx, fps, frames) }) // ends with ctx
	defer wg.Wait()
	defer cancel()
	read := func() (all, own usage, err error) {
		if all, err = usageOf(os.Getpid()); err == nil {
			own, err = usageOfOne(os.Getpid())
		}
		return all, own, err
	}
	var all, own usage
	var start time.Time
	for {
		var f media.EncodedFrame
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case f = <-frames:
		}
		if start.IsZero() && f.PTS >= warm {
			start = time.Now()
			if all, own, err = read(); err != nil {
				return 0, 0, err
			}
		}
		if f.PTS >= warm+length {
			break
		}
		f.Received, f.Epoch, f.SpatialLayers = time.Now(), 1, 1
		if err := send(f); err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(start).Seconds()
	allNow, ownNow, err := read()
	whole = (allNow.CPU - all.CPU).Seconds() / took
	return whole, whole - (ownNow.CPU-own.CPU).Seconds()/took, err
}

// clipFile encodes a clip for ffmpeg: Annex B for H264, IVF for the others
// (a head of 32 bytes, then each frame behind 12 that begin with its length).
func clipFile(c *stage.Clip, codec media.Codec) []byte {
	var out []byte
	if codec != media.H264 {
		out = append(out, "DKIF\x00\x00\x20\x00"...)
		out = append(out, map[media.Codec]string{media.VP8: "VP80", media.VP9: "VP90", media.AV1: "AV01"}[codec]...)
		out = binary.LittleEndian.AppendUint16(out, 1280)
		out = binary.LittleEndian.AppendUint16(out, 720)
		out = binary.LittleEndian.AppendUint32(out, 30) // a second
		out = binary.LittleEndian.AppendUint32(out, 1)
		out = binary.LittleEndian.AppendUint64(out, uint64(len(c.Frames)))
	}
	for i, f := range c.Frames {
		if codec != media.H264 {
			out = binary.LittleEndian.AppendUint32(out, uint32(len(f.Data))) //nolint:gosec // some kilobytes
			out = binary.LittleEndian.AppendUint64(out, uint64(i))           //nolint:gosec // small
		}
		out = append(out, f.Data...)
	}
	return out
}
