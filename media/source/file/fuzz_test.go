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
func tiny(f *testing.F, args ...string) []byte {
	f.Helper()
	all := append([]string{
		"-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=64x64:rate=25", "-frames:v", "3", "-threads", "1", "-pix_fmt", "yuv420p",
	}, args...)
	out, err := exec.CommandContext(f.Context(), "ffmpeg", append(all, "pipe:1")...).Output()
	require.NoError(f, err)
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

func FuzzProbe(f *testing.F) {
	f.Add([]byte(`{"streams":[{"codec_name":"h264","pix_fmt":"yuv420p","width":64,"height":64}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) { _ = file.ReadProbe(b) })
}

// FuzzPlaylist serves strangers' playlists, which ffmpeg reads: whatever they
// say, the clip comes to its end soon after it is called off.
func FuzzPlaylist(f *testing.F) {
	f.Add("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nseg.ts\n#EXT-X-ENDLIST\n")
	f.Add("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlive.m3u8\n")
	f.Add("#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"file:///etc/passwd\"\n#EXTINF:1,\nhttp://127.0.0.2:1/x.ts\n#EXT-X-ENDLIST\n")
	f.Add("#EXTM3U\n#EXT-X-MAP:URI=\"concat:/etc/passwd\"\n#EXT-X-BYTERANGE:1@18446744073709551615\n#EXTINF:-1,\ndata:,x\n")
	seed := tiny(f, "-c:v", "libx264", "-preset", "ultrafast", "-f", "mpegts")
	f.Fuzz(func(t *testing.T, list string) {
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
		if err != nil {
			t.Fatal(err)
		}
		clip, err := file.New(file.Options{Address: a, Allow: source.Allow{Loopback: true}, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := clip.Pull(ctx, source.Sink{Frame: func(media.EncodedFrame) {}}); err == nil {
			t.Error("a clip that ends without a reason")
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v to give up", took)
		}
	})
}
