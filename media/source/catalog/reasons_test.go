//go:build integration

package catalog_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/fakes"
	"touchline/media/source"
)

// documented returns the reasons of the table in docs/cameras.md.
func documented(t *testing.T) (reasons []string) {
	t.Helper()
	b, err := os.ReadFile("../../../docs/cameras.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(b), "| symptom | reason | remedy |\n|---|---|---|\n")
	require.True(t, found)
	for line := range strings.Lines(text) {
		columns := strings.Split(line, " | ")
		if len(columns) != 3 {
			break
		}
		reasons = append(reasons, strings.Trim(columns[1], "`"))
	}
	return reasons
}

// TestDocumentedReasons: each reason of the table in docs/cameras.md is the reason of a source.
func TestDocumentedReasons(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "ffmpeg", strings.Fields("-v error -nostdin -y -f lavfi -i testsrc2=s=320x180:r=25:d=1 -c:v libx264 -preset ultrafast "+
		"-pix_fmt yuv420p film.mp4 -f lavfi -i sine=d=1 -frames:v 1 still.png -map 1:a -map 0:v -c:v png -frames:v 1 -disposition:v attached_pic cover.mp3")...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		return path
	}
	film, err := os.ReadFile(filepath.Join(dir, "film.mp4"))
	require.NoError(t, err)
	s := httptest.NewServer(&fakes.Web{Dir: dir})
	defer s.Close()
	addresses := map[string]string{
		"the server answers with a page":                                  s.URL + "/page/shot.jpg",
		"the server answers with status 403":                              s.URL + "/status-403/index.m3u8",
		"the server answers with status 404":                              s.URL + "/status-404/index.m3u8",
		"the camera's stream has parts of type image/png; JPEG is needed": s.URL + "/parts-png/still.png",
		"moov atom not found; the file is incomplete":                     write("cut.mp4", film[:len(film)/2]),
		"does not exist; it is opened when it appears":                    filepath.Join(dir, "none.mp4"),
		"is empty": write("empty.mp4", nil),
		"it is no video or picture that ffmpeg can read": write("text.mkv", bytes.Repeat([]byte("no video\n"), 100)),
		"ffmpeg cannot read this kind of picture or video": write("anim.webp",
			append([]byte("RIFF\x40\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02\x00\x00\x00\x3f\x00\x00\x3f\x00\x00ANIM\x06\x00\x00\x00"), make([]byte, 40)...)),
		"a playlist on disk may name files only": write("list.m3u8",
			[]byte("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:1/x.ts\n#EXT-X-ENDLIST\n")),
		"there is no video in it, only the cover picture of its sound": filepath.Join(dir, "cover.mp3"),
		"its video track is encrypted (DRM)":                           write("drm.mp4", bytes.ReplaceAll(film, []byte("avc1"), []byte("encv"))),
		"is a folder; name a file in it":                               dir,
	}
	reasons := documented(t)
	require.Len(t, reasons, len(addresses))
	for _, reason := range reasons {
		t.Run(reason, func(t *testing.T) {
			require.Contains(t, addresses, reason)
			p, err := open(t, addresses[reason], source.AllowEverything())
			require.NoError(t, err)
			_, err = once(t, p)
			require.ErrorContains(t, err, reason)
		})
	}
}
