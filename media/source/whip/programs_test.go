package whip_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Offers of programs: the one of GStreamer was taken down, those of OBS and
// ffmpeg are written as their sources write them.
func TestOffersOfPrograms(t *testing.T) {
	files, err := filepath.Glob("testdata/*.sdp")
	require.NoError(t, err)
	require.Len(t, files, 3)
	srv := start(t, nil)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			offer, err := os.ReadFile(path)
			require.NoError(t, err)
			resp, answer := srv.request(t, http.MethodPost, "/whip/match", string(offer), bearer...)
			require.Equal(t, http.StatusCreated, resp.StatusCode, answer)
			require.Equal(t, 2, strings.Count(answer, "a=recvonly"))
			require.Contains(t, answer, "H264/90000")
			require.Contains(t, strings.ToLower(answer), "opus/48000/2")
			require.Less(t, len(answer), 8192)
			require.Contains(t, answer, "a=setup:active", "we begin with DTLS, which all of them bear")
		})
	}
}
