//go:build integration

package file_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// tiny is a clip of three small pictures.
func tiny(tb testing.TB, args ...string) []byte {
	tb.Helper()
	all := append([]string{
		"-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=64x64:rate=25", "-frames:v", "3", "-threads", "1", "-pix_fmt", "yuv420p",
	}, args...)
	out, err := exec.CommandContext(tb.Context(), "ffmpeg", append(all, "pipe:1")...).Output()
	require.NoError(tb, err)
	return out
}

func FuzzTS(f *testing.F) {
	seed := tiny(f, "-c:v", "libx264", "-preset", "ultrafast", "-f", "mpegts")
	n, _ := file.ReadTS(seed, media.H264)
	require.Equal(f, 3, n)
	f.Add(seed)
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = file.ReadTS(b, media.H264) })
}

func FuzzIVF(f *testing.F) {
	seed := tiny(f, "-c:v", "libvpx", "-deadline", "realtime", "-f", "ivf")
	n, _ := file.ReadIVF(seed, media.VP8)
	require.Equal(f, 3, n)
	f.Add(seed, false)
	f.Fuzz(func(_ *testing.T, b []byte, av1 bool) {
		codec := media.VP9
		if av1 {
			codec = media.AV1
		}
		_, _ = file.ReadIVF(b, codec)
	})
}

// ffmpeg reads any playlist, and the clip ends soon after it is cancelled.
func TestStrangersPlaylists(t *testing.T) {
	t.Parallel()
	seed := tiny(t, "-c:v", "libx264", "-preset", "ultrafast", "-f", "mpegts")
	for _, list := range playlists() {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, ".m3u8") {
					w.Header().Set("Content-Type", "application/vnd.apple.mpegurl")
					_, _ = w.Write([]byte(list))
					return
				}
				_, _ = w.Write(seed)
			}))
			defer s.Close()
			a, err := source.ParseAddress(s.URL + "/live.m3u8")
			require.NoError(t, err)
			clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.Allow{Loopback: true}, Now: time.Now}})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.Error(t, clip.Pull(ctx, source.Sink{Frame: func(media.EncodedFrame) {}}), "a clip that ends without a reason")
		})
	}
}
