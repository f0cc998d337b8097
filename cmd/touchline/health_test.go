package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
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

// noRooms serves no room.
type noRooms struct{}

func (noRooms) Run(context.Context, worker.Job) error { return nil }

// TestConnectionsOfProbes: the server of probes bounds the connections of an address, and counts them.
func TestConnectionsOfProbes(t *testing.T) {
	w, err := worker.New(worker.Options{URL: "ws://127.0.0.1:1", APIKey: "key", APISecret: "secret", Slots: 1, Runner: noRooms{}})
	require.NoError(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- serveProbes(ctx, l, w, zerolog.Nop()) }()
	requireBounded(t, l.Addr().String())
	resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, string(text), `touchline_limit_refused_total{kind="proxy_connections",reason="address"} 6912`)
	cancel()
	require.NoError(t, <-over)
}

// requireBounded: of ten times as many connections as an address has places, a server answers its part, and another address still gets answers.
func requireBounded(t *testing.T, address string) {
	t.Helper()
	asks := func(from string) (answered bool) {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", address)
		if errors.Is(err, syscall.ECONNRESET) {
			return false
		}
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", address)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is refused at once")
			_ = conn.Close()
			return false
		}
		_ = resp.Body.Close()
		t.Cleanup(func() { _ = conn.Close() }) // it stays until then
		return true
	}
	n := 0
	for range 7680 {
		if asks("127.0.0.2") {
			n++
		}
	}
	require.Equal(t, 768, n)
	require.True(t, asks("127.0.0.3"))
}
