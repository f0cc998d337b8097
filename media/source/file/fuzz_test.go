package file_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/source/file"
)

func FuzzProbe(f *testing.F) {
	f.Add([]byte(`{"streams":[{"codec_name":"h264","pix_fmt":"yuv420p","width":64,"height":64}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) { _ = file.ReadProbe(b) })
}

// playlists: a good one, a recursive one, and two with forbidden addresses.
func playlists() []string {
	return []string{
		"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nseg.ts\n#EXT-X-ENDLIST\n",
		"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlive.m3u8\n",
		"#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"file:///etc/passwd\"\n#EXTINF:1,\nhttp://127.0.0.2:1/x.ts\n#EXT-X-ENDLIST\n",
		"#EXTM3U\n#EXT-X-MAP:URI=\"concat:/etc/passwd\"\n#EXT-X-BYTERANGE:1@18446744073709551615\n#EXTINF:-1,\ndata:,x\n",
	}
}

// FuzzPlaylist follows every address in a playlist through the proxy, as ffmpeg does. Only the stream's server
// receives its password and key, and ffmpeg does not.
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
			to := p.Resolve(*asked)
			r, err := http.NewRequest(http.MethodGet, to.String(), http.NoBody)
			if err != nil {
				continue
			}
			if own := r.URL.Scheme == "https" && r.URL.Host == target.Host; !own && secret(r.URL.String()) {
				t.Errorf("%q leads to %v", line, r.URL)
			}
			if l := p.Location(&to, line); secret(l) {
				t.Errorf("a redirect from %v to %q becomes %s", &to, line, l)
			}
		}
	})
}
