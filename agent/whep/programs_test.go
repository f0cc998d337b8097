package whep_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOffersOfPlayers answers recorded offers of players.
func TestOffersOfPlayers(t *testing.T) {
	files, err := filepath.Glob("testdata/offers/*.sdp")
	require.NoError(t, err)
	require.Len(t, files, 5)
	s := newStage(t, nil)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			offer, err := os.ReadFile(path)
			require.NoError(t, err)
			resp, answer := s.request(t, http.MethodPost, "/whep/match", string(offer), "Content-Type", "application/sdp", "Authorization", "Bearer good")
			require.Equal(t, http.StatusCreated, resp.StatusCode, answer)
			require.Equal(t, strings.Count(string(offer), "\nm=audio")+strings.Count(string(offer), "\nm=video"), strings.Count(answer, "a=sendonly"))
			require.Contains(t, answer, "H264/90000")
		})
	}
}
