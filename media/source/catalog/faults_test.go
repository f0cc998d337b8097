//go:build integration

package catalog_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/fakes"
	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/catalog"
)

// films makes the files of the servers.
func films(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range []string{
		"-f lavfi -i testsrc2=s=320x180:r=25:d=6 -f lavfi -i sine=d=6 -c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 -c:a aac " +
			"-f hls -hls_time 2 -hls_list_size 0 -hls_segment_filename seg%d.ts index.m3u8",
		"-f lavfi -i testsrc2=s=640x360:r=25:d=6 -c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 " +
			"-f hls -hls_time 2 -hls_list_size 0 -hls_segment_filename seg10%d.ts large.m3u8",
		"-f lavfi -i testsrc2=s=1920x1080:r=25:d=4 -c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 " +
			"-f hls -hls_time 2 -hls_list_size 0 -hls_segment_filename seg20%d.ts huge.m3u8",
		"-f lavfi -i sine=d=6 -c:a aac -f hls -hls_time 2 -hls_list_size 0 -hls_segment_filename seg30%d.ts sound.m3u8",
		"-f lavfi -i testsrc2=s=320x180:r=25:d=6 -f lavfi -i sine=d=6 -c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 -c:a aac film.mp4",
		"-i film.mp4 -c copy -f hls -hls_time 2 -hls_list_size 0 -hls_segment_type fmp4 -hls_flags single_file -hls_segment_filename one.mp4 one.m3u8",
		"-f lavfi -i testsrc2=s=320x180 -frames:v 1 still.png", "-i still.png still.webp", "-i still.png still.jpg", "-i still.png still.bmp",
	} {
		cmd := exec.CommandContext(t.Context(), "ffmpeg", append([]string{"-v", "error", "-nostdin", "-y"}, strings.Fields(args)...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	variant := func(bandwidth, size, list string) string {
		return "#EXT-X-STREAM-INF:BANDWIDTH=" + bandwidth + size + "\n" + list + "\n"
	}
	small, large := variant("300000", ",RESOLUTION=320x180", "index.m3u8"), variant("800000", ",RESOLUTION=640x360", "large.m3u8")
	master := "#EXTM3U\n" + small + large + variant("4000000", ",RESOLUTION=1920x1080", "huge.m3u8")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "master.m3u8"), []byte(master), 0o600))
	sound := "#EXTM3U\n" + variant("64000", "", "sound.m3u8") + small + large
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sound-first.m3u8"), []byte(sound), 0o600))
	list, err := os.ReadFile(filepath.Join(dir, "index.m3u8"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mark.m3u8"), append([]byte("\xef\xbb\xbf"), list...), 0o600))
	key := "#EXT-X-KEY:METHOD=AES-128,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n#EXTINF"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "drm.m3u8"), []byte(strings.Replace(string(list), "#EXTINF", key, 1)), 0o600))
	return dir
}

// children returns the number of the process's child processes.
func children(t *testing.T) int {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	n := 0
	for _, l := range lists {
		b, _ := os.ReadFile(l) // the thread may have ended
		n += len(strings.Fields(string(b)))
	}
	return n
}

// once opens a source once, up to its first pictures.
func once(t *testing.T, p source.Puller) (f media.EncodedFrame, err error) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	limit := time.AfterFunc(30*time.Second, func() { stop(errors.New("no end in 30 s")) })
	defer limit.Stop()
	err = p.Pull(ctx, source.Sink{Frame: func(got media.EncodedFrame) {
		if f.Data == nil {
			f = got
		}
		stop(nil)
	}})
	require.Zero(t, children(t), "a program is left")
	if f.Data != nil {
		err = nil
	}
	return f, err
}

// TestFaultsOfServers opens each address until it has a picture or the reason why there is none.
func TestFaultsOfServers(t *testing.T) {
	dir := films(t)
	other := &fakes.Web{Dir: dir}
	second := httptest.NewServer(other)
	defer second.Close()
	server := &fakes.Web{Dir: dir, Other: second.URL}
	s := httptest.NewServer(server)
	defer s.Close()
	for _, tt := range []struct {
		path   string
		height int    // of the picture
		reason string // of none
	}{
		{"/plain/index.m3u8", 180, ""},
		{"/text/index.m3u8", 180, ""},
		{"/cookie/index.m3u8", 180, ""},
		{"/gzip/index.m3u8", 180, ""},
		{"/names-image/index.m3u8", 180, ""},
		{"/names-js/index.m3u8", 180, ""},
		{"/names-none/index.m3u8", 180, ""},
		{"/plain/master.m3u8", 360, ""},
		{"/plain/sound-first.m3u8", 360, ""},
		{"/redirect/index.m3u8", 180, ""},
		{"/no-range/film.mp4", 180, ""},
		{"/plain/one.m3u8", 180, ""},
		{"/no-range/one.m3u8", 180, ""},
		{"/plain/mark.m3u8", 180, ""},
		{"/plain/drm.m3u8", 0, "its pictures are encrypted, and ffmpeg cannot get the key (DRM)"},
		{"/plain/still.png", 180, ""},
		{"/plain/still.webp", 180, ""},
		{"/plain/still.jpg", 180, ""},
		{"/plain/still.bmp", 180, ""},
		{"/xml/shot.jpg", 0, "open the address in a browser (application/xml)"},
		{"/page/index.m3u8", 0, "the server answers with a page, maybe its login or an error; open the address in a browser (text/html)"},
		{"/json/shot.jpg", 0, "the server answers with a page, maybe its login or an error; open the address in a browser (application/json)"},
		{"/page-segment/index.m3u8", 0, "open the address in a browser (text/html) (seg"},
		{"/forbidden/index.m3u8", 0, "the server answers with status 403 (seg"},
		{"/status-404/index.m3u8", 0, "the server answers with status 404 (index.m3u8); check the path of the address"},
		{"/status-403/shot.jpg", 0, "the server answers with status 403 (shot.jpg); the address may have expired"},
		{"/parts-png/still.png", 0, "the camera's stream has parts of type image/png; JPEG is needed"},
	} {
		t.Run(tt.path[1:], func(t *testing.T) {
			p, err := open(t, s.URL+tt.path, source.Allow{Loopback: true})
			require.NoError(t, err)
			f, err := once(t, p)
			if tt.reason != "" {
				require.ErrorContains(t, err, tt.reason)
				require.NotContains(t, err.Error(), "stream.invalid")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.height, f.Height)
		})
	}
	t.Run("a page at first", func(t *testing.T) {
		p, err := open(t, s.URL+"/page-first/still.jpg", source.Allow{Loopback: true})
		require.NoError(t, err)
		for range 2 {
			_, err = once(t, p)
			require.ErrorIs(t, err, source.ErrPage)
		}
		_, err = once(t, p)
		require.NoError(t, err)
	})
	t.Run("a header", func(t *testing.T) {
		for _, path := range []string{"/redirect/film.mp4", "/redirect/still.jpg"} {
			a, err := source.ParseAddress(s.URL + path)
			require.NoError(t, err)
			p, err := catalog.Open(catalog.Options{
				Access: source.Access{Address: a, Allow: source.Allow{Loopback: true}, Now: time.Now, Header: http.Header{"X-Key": {"secret"}}},
			})
			require.NoError(t, err)
			_, err = once(t, p)
			require.NoError(t, err)
			require.Equal(t, "secret", server.Header().Get("X-Key"))
			require.Empty(t, other.Header().Get("X-Key"))
		}
	})
}
