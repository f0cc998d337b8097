//go:build integration

package catalog_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
)

// The response of an HTTP address selects the source.
func TestHTTPAddressesShowThemselves(t *testing.T) {
	encode := func(args ...string) []byte {
		all := append([]string{"-v", "error", "-f", "lavfi", "-i", "testsrc2=size=160x120:rate=25", "-t", "2"}, args...)
		out, err := exec.CommandContext(t.Context(), "ffmpeg", append(all, "pipe:1")...).Output()
		require.NoError(t, err)
		return out
	}
	video := encode("-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-f", "mpegts")
	pictures := encode("-c:v", "mjpeg", "-f", "mpjpeg")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/video" {
			w.Header().Set("Content-Type", "video/mp2t")
			_, _ = w.Write(video)
			return
		}
		w.Header().Set("Content-Type", "multipart/x-mixed-replace;boundary=ffmpeg")
		_, _ = w.Write(pictures)
	}))
	defer s.Close()
	enough := errors.New("enough")
	for path, want := range map[string]media.Codec{"/video": media.H264, "/pictures": codec.MJPEG} {
		p, err := open(t, s.URL+path, source.Allow{Loopback: true})
		require.NoError(t, err)
		for range 2 {
			ctx, stop := context.WithCancelCause(t.Context())
			err = p.Pull(ctx, source.Sink{Frame: func(f media.EncodedFrame) {
				require.Equal(t, want, f.Codec)
				stop(enough)
			}})
			require.ErrorIs(t, err, enough)
		}
	}
}
