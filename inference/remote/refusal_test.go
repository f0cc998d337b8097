package remote_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference/remote"
)

// TestWaitForTheNextAttempt: neither the timeout nor the caller waits for as long as a busy server asks.
func TestWaitForTheNextAttempt(t *testing.T) {
	busy := func(w http.ResponseWriter, _ request, _ int) {
		w.Header().Set("Retry-After", "3000")
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}
	t.Run("timeout", func(t *testing.T) {
		bubble(t, func(c *remote.Config) { c.Model, c.FirstTokenTimeout = "m", 200*time.Millisecond }, func(w http.ResponseWriter, n int) {
			busy(w, request{}, n)
		}, func(t *testing.T, _ *server, m *remote.Model) {
			t.Helper()
			_, err := ask(t.Context(), session(t, m), prompt)
			require.ErrorIs(t, err, remote.ErrTimeout)
			require.ErrorContains(t, err, "first_token_timeout")
			require.ErrorContains(t, err, "503 Service Unavailable: busy", "the reason")
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		s := serve(t, list("vllm", "m"), busy)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cfg := remote.DefaultConfig()
		cfg.URL, cfg.Model, cfg.FirstTokenTimeout = s.URL, "m", time.Hour
		waits := zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, message string) {
			if message == "retrying the model server" {
				cancel()
			}
		}))
		m, err := remote.New(cfg, 64, waits)
		require.NoError(t, err)
		defer m.Close()
		_, err = ask(ctx, session(t, m), prompt)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, s.count())
	})
}

// TestServerText: a server's message is printable and bounded in errors.
func TestServerText(t *testing.T) {
	s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, _ int) {
		http.Error(w, "\x1b[31mno\r\npictures"+strings.Repeat(" ⚽", 5000), http.StatusBadRequest)
	})
	_, err := ask(t.Context(), session(t, open(t, s.URL)), prompt)
	require.ErrorIs(t, err, remote.ErrRefused)
	require.ErrorContains(t, err, "400 Bad Request:  [31mno  pictures ⚽ ⚽")
	require.True(t, strings.HasSuffix(err.Error(), "…"), err)
	require.Less(t, len(err.Error()), 2000)
}
