package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/worker"
	"touchline/configs"
)

func TestHealth(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/", r.URL.Path)
		http.Error(w, "not registered", status)
	}))
	defer s.Close()
	a := &app{cfg: configs.Default()}
	a.cfg.Agent.Worker.HTTP = s.Listener.Addr().String()
	require.NoError(t, (&healthCmd{}).Run(t.Context(), a))
	status = http.StatusServiceUnavailable
	require.ErrorContains(t, (&healthCmd{}).Run(t.Context(), a), "503 Service Unavailable: not registered")
	require.ErrorContains(t, (&healthCmd{URL: s.URL + "/"}).Run(t.Context(), a), "503")
	s.Close()
	require.ErrorContains(t, (&healthCmd{}).Run(t.Context(), a), "connection refused")
	a.cfg.Agent.Worker.HTTP = worker.HTTPOff
	require.ErrorContains(t, (&healthCmd{}).Run(t.Context(), a), "is off")
}

func TestProbeIsReachedFromItsOwnMachine(t *testing.T) {
	for listen, want := range map[string]string{
		":8081": "http://127.0.0.1:8081/", "0.0.0.0:1": "http://127.0.0.1:1/", "[::]:2": "http://127.0.0.1:2/",
		"192.0.2.1:3": "http://192.0.2.1:3/", "[::1]:4": "http://[::1]:4/", "worker:5": "http://worker:5/",
	} {
		got, err := probeURL(listen)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// TestProbesStayOnThisMachine: without an address in the settings, probes and metrics, which need no token, are on loopback; and no request
// or answer of such a server lasts for ever.
func TestProbesStayOnThisMachine(t *testing.T) {
	require.Equal(t, "127.0.0.1:8081", configs.Default().Agent.Worker.HTTP)
	s := boundedServer(http.NotFoundHandler())
	for _, bound := range []time.Duration{s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout} {
		require.Positive(t, bound)
	}
}
