package file_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
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

func FuzzProbe(f *testing.F) {
	f.Add([]byte(`{"streams":[{"codec_name":"h264","pix_fmt":"yuv420p","width":64,"height":64}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) { _ = file.ReadProbe(b) })
}

// playlists of strangers: a good one, one that names itself, and two that want what they are not to get.
func playlists() []string {
	return []string{
		"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nseg.ts\n#EXT-X-ENDLIST\n",
		"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlive.m3u8\n",
		"#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"file:///etc/passwd\"\n#EXTINF:1,\nhttp://127.0.0.2:1/x.ts\n#EXT-X-ENDLIST\n",
		"#EXTM3U\n#EXT-X-MAP:URI=\"concat:/etc/passwd\"\n#EXT-X-BYTERANGE:1@18446744073709551615\n#EXTINF:-1,\ndata:,x\n",
	}
}

// Whatever a playlist says, ffmpeg reads it, and the clip comes to its end soon after it is called off.
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
			clip, err := file.New(file.Options{Address: a, Allow: source.Allow{Loopback: true}, Now: time.Now})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			require.Error(t, clip.Pull(ctx, source.Sink{Frame: func(media.EncodedFrame) {}}), "a clip that ends without a reason")
			require.Less(t, time.Since(began), 10*time.Second, "to give up")
		})
	}
}

// FuzzPlaylist follows every address in a playlist, as ffmpeg would, through what is ours of the way: the
// proxy. The stream's password and key go to its own server only, and ffmpeg never learns them.
func FuzzPlaylist(f *testing.F) {
	for _, list := range playlists() {
		f.Add(list)
	}
	f.Add("http://stream.invalid/live/list.m3u8\nhttp://stream.invalid:80@evil/live/list.m3u8\n//cam.example@evil/\n?\n#\n")
	target, err := url.Parse("https://user:pa55word@cam.example:8443/live/list.m3u8?key=s3cret")
	require.NoError(f, err)
	p := file.NewProxy(target)
	base, err := url.Parse(p.URL())
	require.NoError(f, err)
	secret := func(s string) bool { return strings.Contains(s, "pa55word") || strings.Contains(s, "s3cret") }
	f.Fuzz(func(t *testing.T, list string) {
		if secret(list) {
			return // it knows them already
		}
		for line := range strings.SplitSeq(list, "\n") {
			if _, uri, ok := strings.Cut(line, `URI="`); ok {
				line, _, _ = strings.Cut(uri, `"`)
			}
			asked, err := base.Parse(line)
			if err != nil || asked.Scheme != "http" {
				continue // nothing else comes to the proxy as a request
			}
			to := p.Meant(*asked)
			r, err := http.NewRequest(http.MethodGet, to.String(), http.NoBody)
			if err != nil {
				continue
			}
			if own := r.URL.Scheme == "https" && r.URL.Host == target.Host; !own && secret(r.URL.String()) {
				t.Errorf("%q leads to %v", line, r.URL)
			}
			if l := p.Location(&to, line); secret(l) {
				t.Errorf("a redirect from %v to %q is told as %s", &to, line, l)
			}
		}
	})
}
