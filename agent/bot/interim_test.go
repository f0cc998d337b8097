package bot_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/inference"
)

// TestInterimRecognizer: interim texts come from the fast server, final texts from the exact one. Without the fast one, the exact one has
// both.
func TestInterimRecognizer(t *testing.T) {
	t.Parallel()
	server := func(text string, status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"text":%q}`, text)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/v1"
	}
	for _, tt := range []struct {
		status  int
		interim string
	}{{http.StatusOK, "fast"}, {http.StatusUnauthorized, "exact"}} {
		cfg := inference.DefaultConfig().Recognizer
		cfg.Program, cfg.URL, cfg.Interim = inference.RecognizerRemote, server("exact", http.StatusOK), server("fast", tt.status)
		r, err := bot.NewRecognition(cfg, "", zerolog.Nop())
		require.NoError(t, err)
		_, translates := r.Recognizer.Recognizer.(inference.Translator)
		require.True(t, translates)
		u, err := r.Listen(t.Context(), inference.Hearing{})
		require.NoError(t, err)
		text, err := u.Hear(t.Context(), make([]float32, 16000))
		require.NoError(t, err)
		require.Equal(t, tt.interim, text.Text)
		text, err = u.Finish(t.Context(), make([]float32, 16000))
		require.NoError(t, err)
		require.Equal(t, "exact", text.Text)
		require.True(t, text.Final)
		require.NoError(t, u.Close())
		require.NoError(t, r.Close())
	}
}
