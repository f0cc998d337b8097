//go:build integration

package file_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// broken makes files that cannot be played.
func broken(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	ffmpeg(t, dir, append(append([]string{"-f", "lavfi", "-i", corners, "-f", "lavfi", "-i", "sine=d=3"}, x264...), "good.mp4")...)
	ffmpeg(t, dir, "-f", "lavfi", "-i", "color=blue:s=200x200", "-frames:v", "1", "cover.jpg")
	ffmpeg(t, dir, "-f", "lavfi", "-i", "sine=d=1", "sound.mp3")
	for _, name := range []string{"cover.mp3", "cover.flac", "cover.m4a"} {
		ffmpeg(t, dir, "-i", "sound.mp3", "-i", "cover.jpg", "-map", "0:a", "-map", "1:v", "-c:v", "mjpeg", "-disposition:v", "attached_pic", name)
	}
	good, err := os.ReadFile(filepath.Join(dir, "good.mp4"))
	require.NoError(t, err)
	write("zero.mp4", nil)
	write("cut.mp4", good[:len(good)/2])
	write("text.mp4", bytes.Repeat([]byte("no video\n"), 200))
	noise := make([]byte, 20000)
	_, _ = rand.Read(noise)
	write("noise.mp4", noise)
	write("remote.m3u8", []byte("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:1/x.ts\n#EXT-X-ENDLIST\n"))
	write("anim.webp", append([]byte("RIFF\x40\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02\x00\x00\x00\x3f\x00\x00\x3f\x00\x00ANIM\x06\x00\x00\x00"), make([]byte, 40)...))
	write("photo.heic", append([]byte("\x00\x00\x00\x14ftypheic\x00\x00\x00\x00mif1\x00\x00\x00\x40mdat"), make([]byte, 56)...))
	write("encrypted.mp4", bytes.ReplaceAll(good, []byte("avc1"), []byte("encv")))
	return dir
}

// TestReasonsOfFiles: each names what is wrong with the file, in words that help, without its folder.
func TestReasonsOfFiles(t *testing.T) {
	dir := broken(t)
	for name, tt := range map[string]struct {
		reason    string
		permanent bool
	}{
		"none.mp4":      {"file none.mp4 does not exist; it is opened when it appears", false},
		"zero.mp4":      {"file zero.mp4 is empty", false},
		"cut.mp4":       {"moov atom not found; the file is incomplete: its index is missing", false},
		"text.mp4":      {"it is no video or picture that ffmpeg can read", true},
		"noise.mp4":     {"it is no video or picture that ffmpeg can read", true},
		"remote.m3u8":   {"a playlist on disk may name files only; give the address itself", true},
		"sound.mp3":     {"there is no video in it", true},
		"cover.mp3":     {"there is no video in it, only the cover picture of its sound", true},
		"cover.flac":    {"there is no video in it, only the cover picture of its sound", true},
		"cover.m4a":     {"there is no video in it, only the cover picture of its sound", true},
		"anim.webp":     {"ffmpeg cannot read this kind of picture or video", true},
		"photo.heic":    {"it is no video or picture that ffmpeg can read", true},
		"encrypted.mp4": {"its video track is encrypted (DRM)", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := play(t, filepath.Join(dir, name), 1, nil)
			require.ErrorContains(t, err, tt.reason)
			require.Equal(t, tt.permanent, source.IsPermanent(err), err)
			require.NotContains(t, err.Error(), dir)
			require.NotContains(t, err.Error(), "file:")
		})
	}
}

// TestFileThatComesBack: a file that goes away, and one that is replaced, are played on.
func TestFileThatComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ffmpeg(t, dir, append([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=1"}, append(x264, "small.mp4")...)...)
	ffmpeg(t, dir, append([]string{"-f", "lavfi", "-i", "testsrc2=s=640x360:r=25:d=1"}, append(x264, "large.mp4")...)...)
	path := filepath.Join(dir, "film.mp4")
	a, err := source.ParseAddress(path)
	require.NoError(t, err)
	clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}, Loop: true})
	require.NoError(t, err)
	sizes := make(chan int, 1000)
	var states []string
	reason := make(chan string, 100)
	s, err := source.NewSupervisor(source.Options{
		Puller: clip, Now: time.Now, Random: func() float64 { return 0.5 },
		Sink: source.Sink{Frame: func(f media.EncodedFrame) {
			select {
			case sizes <- f.Width:
			default:
			}
		}},
		OnStatus: func(st source.Status) {
			states = append(states, st.State.String())
			if st.Reason != "" {
				reason <- st.Reason
			}
		},
	})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	await := func(width int) {
		t.Helper()
		for {
			select {
			case w := <-sizes:
				if w == width {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no picture of %d columns", width)
			}
		}
	}
	require.Contains(t, <-reason, "does not exist")
	require.NoError(t, os.Rename(filepath.Join(dir, "small.mp4"), path))
	await(320)
	require.NoError(t, os.Rename(filepath.Join(dir, "large.mp4"), path))
	await(640)
	require.NoError(t, os.Rename(path, filepath.Join(dir, "away.mp4")))
	await(640)
	stop()
	require.NoError(t, <-done)
	require.NotContains(t, strings.Join(states, " "), "failed")
}
