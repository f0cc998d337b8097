//go:build integration

package file_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
	"touchline/media/source/file"
)

// TestOtherServers: the server of a playlist's segments, or of a redirect, must be allowed and have a trusted certificate, like that of
// the playlist.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	clip := make2s(t, "x.ts", x264...)
	far := httptest.NewTLSServer(http.FileServer(http.Dir(filepath.Dir(clip))))
	t.Cleanup(far.Close)
	host := strings.TrimPrefix(far.URL, "https://")
	answer := func(w http.ResponseWriter, r *http.Request) {
		target := r.URL.Query().Get("to")
		if strings.HasSuffix(r.URL.Path, ".ts") {
			http.Redirect(w, r, target, http.StatusFound)
			return
		}
		_, _ = fmt.Fprintf(w, "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n%s\n#EXT-X-ENDLIST\n", target)
	}
	near, secure := httptest.NewServer(http.HandlerFunc(answer)), httptest.NewTLSServer(http.HandlerFunc(answer))
	t.Cleanup(near.Close)
	t.Cleanup(secure.Close)
	insecure := func(o *file.Options) { o.Insecure = true }
	loopback := func(o *file.Options) { o.Insecure, o.Allow = true, source.Allow{Loopback: true} }
	for _, tt := range []struct {
		name, address string
		change        func(*file.Options)
		err           string // "" if it plays
	}{
		{"a segment without trust", near.URL + "/x.m3u8?to=" + far.URL + "/x.ts", nil, "certificate"},
		{"a redirect without trust", near.URL + "/x.ts?to=" + far.URL + "/x.ts", nil, "certificate"},
		{"a segment", near.URL + "/x.m3u8?to=" + far.URL + "/x.ts", insecure, ""},
		{"a segment that is missing", near.URL + "/x.m3u8?to=" + far.URL + "/y.ts", insecure, "status 404"},
		{"a segment of a playlist with TLS", secure.URL + "/x.m3u8?to=" + far.URL + "/x.ts", insecure, ""},
		{"the playlist's scheme", secure.URL + "/x.m3u8?to=//" + host + "/x.ts", insecure, ""},
		{"the playlist's server", secure.URL + "/x.m3u8?to=" + secure.URL + "/y.ts%3Fto=" + far.URL + "/x.ts", insecure, ""},
		{"a redirect", secure.URL + "/x.ts?to=" + far.URL + "/x.ts", insecure, ""},
		{"a segment at an address that is not allowed", secure.URL + "/x.m3u8?to=https://169.254.169.254/x.ts", loopback, "may not be opened"},
		{"a redirect to an address that is not allowed", secure.URL + "/x.ts?to=https://169.254.169.254/x.ts", loopback, "may not be opened"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			frames, _, err := play(t, tt.address, 25, tt.change)
			if tt.err == "" {
				require.ErrorIs(t, err, errEnough)
				return
			}
			require.ErrorContains(t, err, tt.err)
			require.Empty(t, frames)
		})
	}
}
