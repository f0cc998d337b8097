//go:build integration

package file_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// slowly makes a file that is transcoded, with the time between its key frames in pictures, and an ffmpeg that reads all its pictures at a share of their rate.
func slowly(t *testing.T, rate, keys string) source.Address {
	t.Helper()
	dir := t.TempDir()
	ffmpeg(t, dir, append(append([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=30", "-f", "lavfi", "-i", "sine=d=30"}, x264...),
		"-g", keys, "-c:a", "aac", "plain.mp4")...)
	turn(t, dir, "plain.mp4", "90", "turned.mp4")
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in\n*' nokey '*|*' -h '*) exec " + maker() + " \"$@\" ;;\n" +
		"*) exec " + maker() + " -readrate " + rate + " \"$@\" ;;\nesac\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "ffmpeg"), []byte(script), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	a, err := source.ParseAddress(filepath.Join(dir, "turned.mp4"))
	require.NoError(t, err)
	return a
}

// TestStalledMachine: a file that shows nothing until its supervisor opens it again continues with its key frames.
func TestStalledMachine(t *testing.T) {
	a := slowly(t, "0.02", "25")
	clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}, Loop: true})
	require.NoError(t, err)
	s, err := source.NewSupervisor(source.Options{
		Puller: clip, Sink: source.Sink{Frame: func(media.EncodedFrame) {}}, Stall: time.Second, Now: time.Now, Random: rand.Float64, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	require.Eventually(t, func() bool {
		status := s.Status()
		return status.State == source.Live && strings.Contains(status.Advice, "only the key frames") && status.KeyFrames > 4
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// TestSlowMachine: a file that is transcoded too slowly shows its key frames alone, at their times and in step with the sound, and says so.
func TestSlowMachine(t *testing.T) {
	a := slowly(t, "0.3", "25")
	clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 45*time.Second)
	defer stop()
	var mu sync.Mutex
	var advice string
	var frames, later []media.EncodedFrame
	var sound []source.Opus
	sink := source.Sink{
		Advice: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			advice = text
		},
		Opus: func(o source.Opus) {
			mu.Lock()
			defer mu.Unlock()
			if len(later) > 0 {
				sound = append(sound, o)
			}
		},
		Frame: func(f media.EncodedFrame) {
			mu.Lock()
			defer mu.Unlock()
			frames = append(frames, f)
			if advice == "" {
				return
			}
			if later = append(later, f); len(later) == 6 {
				stop()
			}
		},
	}
	_ = clip.Pull(ctx, sink)
	require.Contains(t, advice, "too slow to read and transcode all pictures of 320 x 180 pixels: only the key frames")
	require.Len(t, later, 6)
	for i, f := range frames {
		require.Zero(t, f.Epoch)
		require.True(t, i == 0 || f.PTS > frames[i-1].PTS)
	}
	require.Greater(t, later[5].PTS-later[1].PTS, 3*time.Second, "a key frame a second")
	last := sound[len(sound)-1]
	require.InDelta(t, 0, last.Arrival.Sub(later[5].Arrival).Seconds(), 2)
}

// TestSlowMachineWithRareKeyFrames shows all pictures of a file whose key frames alone would be too few, and says that they are late.
func TestSlowMachineWithRareKeyFrames(t *testing.T) {
	clip, err := file.New(file.Options{Access: source.Access{Address: slowly(t, "0.3", "250"), Allow: source.AllowEverything(), Now: time.Now}})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 45*time.Second)
	defer stop()
	var advised atomic.Pointer[string]
	var later []media.EncodedFrame
	_ = clip.Pull(ctx, source.Sink{
		Advice: func(text string) { advised.Store(&text) },
		Frame: func(f media.EncodedFrame) {
			if advised.Load() == nil {
				return
			}
			if later = append(later, f); len(later) >= 20 {
				stop()
			}
		},
	})
	require.Contains(t, *advised.Load(), "too slow to read and transcode all pictures of 320 x 180 pixels: they are shown more slowly")
	require.GreaterOrEqual(t, len(later), 20)
	require.Less(t, later[19].PTS-later[0].PTS, 2*time.Second)
}
