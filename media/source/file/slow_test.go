//go:build integration

package file_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// TestSlowMachine: a file that is transcoded too slowly shows its key frames alone, at their times and in step with the sound, and says so.
func TestSlowMachine(t *testing.T) {
	dir := t.TempDir()
	ffmpeg(t, dir, append(append([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=30", "-f", "lavfi", "-i", "sine=d=30"}, x264...),
		"-c:a", "aac", "plain.mp4")...)
	ffmpeg(t, dir, "-i", "plain.mp4", "-c", "copy", "-metadata:s:v", "rotate=90", "turned.mp4")
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in\n*' nokey '*|*' -h '*) exec " + maker() + " \"$@\" ;;\n*) exec " + maker() + " -readrate 0.3 \"$@\" ;;\nesac\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "ffmpeg"), []byte(script), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	a, err := source.ParseAddress(filepath.Join(dir, "turned.mp4"))
	require.NoError(t, err)
	clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 45*time.Second)
	defer stop()
	var mu sync.Mutex
	var advice string
	var frames, later []media.EncodedFrame
	var sound []source.Opus
	_ = clip.Pull(ctx, source.Sink{
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
	})
	require.Contains(t, advice, "too slow to transcode all its pictures of 320 x 180 pixels: only the key frames")
	require.Len(t, later, 6)
	for i, f := range frames {
		require.Zero(t, f.Epoch)
		require.True(t, i == 0 || f.PTS > frames[i-1].PTS)
	}
	require.Greater(t, later[5].PTS-later[1].PTS, 3*time.Second, "a key frame a second")
	last := sound[len(sound)-1]
	require.InDelta(t, 0, last.Arrival.Sub(later[5].Arrival).Seconds(), 2)
}
