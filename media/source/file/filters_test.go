//go:build integration

package file_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// TestWithoutToneMapping: an ffmpeg without the filter zscale plays a high dynamic range as it is, with the reason.
func TestWithoutToneMapping(t *testing.T) {
	dir := t.TempDir()
	ffmpeg(t, dir, append(hdr("arib-std-b67"), "hlg.mp4")...)
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in\n*' filter=zscale') echo \"Unknown filter 'zscale'.\" ;;\n*) exec " + maker() + " \"$@\" ;;\nesac\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "ffmpeg"), []byte(script), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	a, err := source.ParseAddress(filepath.Join(dir, "hlg.mp4"))
	require.NoError(t, err)
	clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var frames []media.EncodedFrame
	var advice string
	_ = clip.Pull(ctx, source.Sink{
		Advice: func(text string) { advice = text },
		Frame: func(f media.EncodedFrame) {
			frames = append(frames, f)
			stop()
		},
	})
	require.NotEmpty(t, frames)
	require.Contains(t, advice, "ffmpeg has no filter zscale or tonemap")
}
