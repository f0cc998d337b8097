//go:build integration

package file_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// beeps is a sound with a beep at every second, silent before the first.
var beeps = []string{"-f", "lavfi", "-i", "aevalsrc='if(gte(t,0.9)*lt(mod(t,1),0.1),0.6*sin(2*PI*1000*t),0)':s=48000:d=2"}

// opusDelay is the delay of encoder and decoder together, in samples.
const opusDelay = 312

// listened is the output of a clip.
type listened struct {
	frames  []media.EncodedFrame
	offsets []time.Duration // by how much each beep is later than its picture
	packets int
	gaps    int // packets that do not follow the one before
}

// inStep bounds the offset between sound and picture.
const inStep = 10 * time.Millisecond

func (l listened) inStep(t *testing.T) {
	t.Helper()
	t.Log("sound later than its picture by", l.offsets)
	for _, off := range l.offsets {
		require.Less(t, off.Abs(), inStep)
	}
}

// listen plays a clip to its end, or for most pictures, and detects the beeps. Each
// belongs to a picture whose number is a multiple of 25.
func listen(t *testing.T, path string, most int, change func(*file.Options)) listened {
	t.Helper()
	a, err := source.ParseAddress(path)
	require.NoError(t, err)
	o := file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}}
	if change != nil {
		change(&o)
	}
	clip, err := file.New(o)
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	ctx, enough := context.WithCancelCause(ctx)
	dec, err := opus.NewDecoder(48000, 2)
	require.NoError(t, err)
	var l listened
	var begins []time.Duration
	var next uint32
	quiet := 0
	pcm := make([]int16, 5760*2)
	err = clip.Pull(ctx, source.Sink{
		Frame: func(f media.EncodedFrame) {
			if l.frames = append(l.frames, f); len(l.frames) == most {
				enough(errEnough)
			}
		},
		Opus: func(o source.Opus) {
			n, err := dec.Decode(o.Payload, pcm)
			require.NoError(t, err)
			if l.packets++; l.packets > 1 && o.Timestamp != next {
				l.gaps++
			}
			next = o.Timestamp + uint32(n)
			for i := range n {
				switch v := pcm[2*i]; {
				case v > -3000 && v < 3000:
					quiet++
				default:
					if quiet > 48*300 || len(begins) == 0 {
						at := int64(o.Timestamp) + int64(i) - opusDelay
						begins = append(begins, time.Duration(at)*time.Second/48000)
					}
					quiet = 0
				}
			}
		},
	})
	if most > 0 {
		require.ErrorIs(t, err, errEnough)
	} else {
		require.ErrorIs(t, err, source.ErrEnded)
	}
	for _, b := range begins {
		best := time.Hour
		for i, f := range l.frames {
			if off := b - f.PTS; i%25 == 0 && off.Abs() < best.Abs() {
				best = off
			}
		}
		l.offsets = append(l.offsets, best.Round(100*time.Microsecond))
	}
	return l
}

var (
	vp8  = []string{"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-pix_fmt", "yuv420p", "-g", "25"}
	vp9  = []string{"-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-pix_fmt", "yuv420p", "-g", "25", "-lag-in-frames", "0"}
	av1  = []string{"-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-pix_fmt", "yuv420p", "-lag-in-frames", "0"}
	x265 = []string{"-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-x265-params", "bframes=0:log-level=none:pools=1"}
)

// with returns a clip's arguments: beeps, audio codec, video codec.
func with(sound []string, video []string) []string {
	return slices.Concat(beeps, sound, video, []string{"-t", "2"})
}

// TestSoundGoesOnWithItsPicture plays a loop, and from the middle, also from between
// two key frames, where earlier pictures come first.
func TestSoundGoesOnWithItsPicture(t *testing.T) {
	for _, video := range [][]string{vp8, x264} {
		path := make2s(t, "clip.mkv", with([]string{"-c:a", "libvorbis"}, video)...)
		t.Run(video[1]+" again", func(t *testing.T) {
			t.Parallel()
			l := listen(t, path, 140, func(o *file.Options) { o.Loop = true })
			require.GreaterOrEqual(t, len(l.offsets), 2)
			l.inStep(t)
		})
		t.Run(video[1]+" from the middle", func(t *testing.T) {
			t.Parallel()
			l := listen(t, path, 0, func(o *file.Options) { o.Start = 520 * time.Millisecond })
			require.Len(t, l.offsets, 1)
			l.inStep(t)
			// The last key frame before it is the first of all.
			require.InDelta(t, 50, len(l.frames), 1)
			require.InDelta(t, 75, l.packets, 4)
		})
	}
}

// TestLatePicture: sound that begins long before the picture does not keep ffmpeg from it.
func TestLatePicture(t *testing.T) {
	dir := t.TempDir()
	ffmpeg(t, dir, append(append([]string{"-itsoffset", "8", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=3", "-f", "lavfi", "-i", "anoisesrc=d=11"}, x264...),
		"-fps_mode", "vfr", "-c:a", "aac", "late.mp4")...)
	a, err := source.ParseAddress(filepath.Join(dir, "late.mp4"))
	require.NoError(t, err)
	clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var frames, sounds atomic.Int64
	_ = clip.Pull(ctx, source.Sink{
		Frame: func(media.EncodedFrame) { frames.Add(1) },
		Opus: func(source.Opus) {
			if sounds.Add(1) > 50 {
				stop()
			}
		},
	})
	require.Positive(t, frames.Load())
	require.Greater(t, sounds.Load(), int64(50))
}
