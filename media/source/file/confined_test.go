//go:build integration

package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/child"
)

// TestPlaylistReadsItsFolder: ffmpeg reads what a playlist names beside itself, and no other file.
func TestPlaylistReadsItsFolder(t *testing.T) {
	t.Parallel()
	if text, _ := child.Available(); strings.Contains(text, "no Landlock") {
		const what = "this kernel has no Landlock"
		require.Empty(t, os.Getenv("REQUIRE_CONFINEMENT"), what)
		t.Skip(what)
	}
	clip := make2s(t, "x.ts", x264...)
	for dir, plays := range map[string]bool{filepath.Dir(clip): true, t.TempDir(): false} {
		list := filepath.Join(dir, "x.m3u8")
		text := "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n" + clip + "\n#EXT-X-ENDLIST\n"
		require.NoError(t, os.WriteFile(list, []byte(text), 0o600))
		frames, _, err := play(t, list, 5, nil)
		if plays {
			require.Len(t, frames, 5)
			continue
		}
		require.Empty(t, frames)
		require.Error(t, err)
	}
}

// TestMemoryOfProgram: the kernel's limit of ffmpeg follows from the size of the picture, and that of ffprobe from the largest one.
func TestMemoryOfProgram(t *testing.T) {
	clip, wrappers := make2s(t, "x.mp4", x264...), t.TempDir()
	t.Setenv("PATH", wrappers+":"+os.Getenv("PATH"))
	for _, tt := range []struct {
		program string
		pixels  int
	}{{"ffmpeg", 320 * 180}, {"ffprobe", 4096 * 4096}} {
		script := filepath.Join(wrappers, tt.program)
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho limit $(ulimit -v) KiB >&2\nexit 1\n"), 0o755))
		_, _, err := play(t, clip, 1, nil)
		require.ErrorContains(t, err, fmt.Sprintf("limit %d KiB", 2<<20+tt.pixels/8), tt.program)
	}
}
