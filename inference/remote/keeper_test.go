package remote_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/remote"
)

// TestKept runs the engine behind a Keeper, which retries until the server is up.
func TestKept(t *testing.T) {
	var up atomic.Bool
	s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, _ int) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		stream(w, delta("Grey"), stop)
	})
	cfg := remote.DefaultConfig()
	cfg.URL, cfg.Retries = s.URL, 0
	k, err := engine.New(
		func(context.Context, engine.Progress) (inference.Model, error) {
			return remote.New(cfg, 64, zerolog.Nop())
		},
		engine.Options{
			Name: "remote", RetryMin: 20 * time.Millisecond, RetryMax: 20 * time.Millisecond, Parallel: 4,
			Warm: func(ctx context.Context, m inference.Model, progress engine.Progress) error {
				return m.(*remote.Model).Warm(ctx, progress) //nolint:forcetypeassert // loaded above
			},
		})
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() { ran <- k.Run(t.Context()) }()
	se, err := k.NewSession()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return k.Status().Phase == inference.PhaseFailed }, 2*time.Minute, time.Millisecond)
	require.Contains(t, k.Status().Detail, "503 Service Unavailable")
	up.Store(true)
	require.Eventually(t, func() bool { return k.Status().Phase == inference.PhaseReady }, 2*time.Minute, time.Millisecond)
	text, err := ask(t.Context(), se, prompt)
	require.NoError(t, err)
	require.Equal(t, "Grey", text)
	require.Equal(t, "remote: m", k.Name())
	require.NoError(t, se.Close())
	require.NoError(t, k.Close())
	require.NoError(t, <-ran)
}

// TestBusyServer: a refusal for now halves the requests at once; the answer that follows keeps it there.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError} {
		s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, _ request, n int) {
			if n == 1 {
				w.WriteHeader(code)
				return
			}
			stream(w, delta("Grey"), stop)
		})
		cfg := remote.DefaultConfig()
		cfg.URL, cfg.Parallel = s.URL, 4
		m, err := remote.New(cfg, 64, zerolog.Nop())
		require.NoError(t, err)
		se, err := m.NewSession()
		require.NoError(t, err)
		text, err := ask(t.Context(), se, prompt)
		require.NoError(t, err)
		require.Equal(t, "Grey", text)
		want := 2
		if code == http.StatusInternalServerError {
			want = 4 // that is not too much to do
		}
		limit, running, waiting := m.Load()
		require.Equal(t, []int{want, 0, 0}, []int{limit, running, waiting}, code)
	}
}
