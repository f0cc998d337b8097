package whip_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/signaling"
	"touchline/media/source/whip"
)

const seedOffer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n" +
	"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n" +
	"a=fingerprint:sha-256 AA:BB\r\na=setup:actpass\r\na=sendonly\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\na=msid:s a\r\n" +
	"m=video 9 UDP/TLS/RTP/SAVPF 96 97\r\nc=IN IP4 0.0.0.0\r\na=mid:1\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n" +
	"a=fingerprint:sha-256 AA:BB\r\na=setup:actpass\r\na=sendonly\r\na=rtcp-mux\r\na=rtpmap:96 H264/90000\r\n" +
	"a=fmtp:96 packetization-mode=1;profile-level-id=42e01f\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\na=msid:s v\r\n" +
	"a=candidate:1 1 udp 2130706431 192.168.1.2 5000 typ host\r\n"

func FuzzOffer(f *testing.F) {
	f.Add(seedOffer)
	f.Add(strings.ReplaceAll(seedOffer, "\r\n", "\n"))
	f.Add("v=0\r\n")
	files, err := filepath.Glob("testdata/*.sdp")
	require.NoError(f, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Fuzz(func(_ *testing.T, text string) { _ = whip.CheckOffer(text) })
}

func TestSeedIsAnOffer(t *testing.T) { require.NoError(t, whip.CheckOffer(seedOffer)) }

// FuzzRequest sends any request to a server that is not running.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/whip/match", "application/sdp", "Bearer "+goodKey, seedOffer)
	f.Add("PATCH", "/whip/a/b", "application/trickle-ice-sdpfrag", "", "a=ice-ufrag:x")
	srv, err := whip.New(whip.Options{
		Keys: []whip.StreamKey{{Key: goodKey, Identity: "x"}}, Now: time.Now, Bounds: signaling.Bounds{PerMinute: -1},
		Open: func(*whip.Session) (whip.Place, error) { panic("not running") },
	})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, method, path, kind, authorization, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://x/", strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL.Path, r.RemoteAddr = path, "192.0.2.1:1"
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Authorization", authorization)
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		if w.Code >= 300 && w.Code < 400 || w.Code == http.StatusInternalServerError {
			t.Errorf("status %d", w.Code)
		}
	})
}
