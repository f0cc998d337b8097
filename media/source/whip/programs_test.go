package whip_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Offers of programs: recorded from ffmpeg 9, GStreamer (webrtcbin and whipclientsink),
// simple-whip-client, aiortc and Firefox; written after the source code for OBS and ffmpeg 8.
func TestOffersOfPrograms(t *testing.T) {
	files, err := filepath.Glob("testdata/*.sdp")
	require.NoError(t, err)
	require.Len(t, files, 8)
	srv := start(t, nil)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			offer, err := os.ReadFile(path)
			require.NoError(t, err)
			resp, answer := srv.request(t, http.MethodPost, "/whip/match", string(offer), bearer...)
			require.Equal(t, http.StatusCreated, resp.StatusCode, answer)
			require.Equal(t, strings.Count(string(offer), "\nm="), strings.Count(answer, "a=recvonly"))
			for _, codec := range []string{"h264/90000", "vp8/90000", "opus/48000/2"} {
				require.Equal(t, strings.Contains(strings.ToLower(string(offer)), codec), strings.Contains(strings.ToLower(answer), codec), codec)
			}
			require.Less(t, len(answer), 8192)
			require.Contains(t, answer, "a=setup:active", "the server begins DTLS, which all of them support")
		})
	}
}
