package room

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/room/conn"
)

// TestRefusedRemovals: a server that refuses removals costs one warning, and one that does not answer ends the round.
func TestRefusedRemovals(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the context ends with the connection after that
		if hangs.Load() {
			cancel()
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	var log bytes.Buffer
	s, err := New(Options{
		URL: server.URL, Keys: conn.Keys{APIKey: "key", APISecret: "secret"}, Room: "match", Identity: "bot", Log: zerolog.New(&log),
	})
	require.NoError(t, err)
	for range 20 {
		require.True(t, s.remove(t.Context(), "ann", access.ErrExpired), "others may be removable")
	}
	require.Equal(t, 1, strings.Count(log.String(), "participant not removed"), log.String())
	removed, failed := s.Removals()
	require.Zero(t, removed)
	require.EqualValues(t, 20, failed)
	hangs.Store(true)
	require.False(t, s.remove(ctx, "ann", access.ErrExpired))
}
