package worker_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/livekit/protocol/livekit"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"touchline/agent/worker"
)

// registrar accepts every worker.
func registrar(t *testing.T, registrations *atomic.Int32) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var up websocket.Upgrader
		conn, err := up.Upgrade(rw, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		registrations.Add(1)
		welcome, err := proto.Marshal(&livekit.ServerMessage{Message: &livekit.ServerMessage_Register{
			Register: &livekit.RegisterWorkerResponse{WorkerId: "AW_1"},
		}})
		if err != nil || conn.WriteMessage(websocket.BinaryMessage, welcome) != nil {
			return
		}
		for err == nil {
			_, _, err = conn.ReadMessage()
		}
	}))
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http", "ws", 1)
}

// TestReady: a worker whose engine loads is not registered, its probe fails, and the load of that is not counted; unloading the engine
// later changes nothing.
func TestReady(t *testing.T) {
	t.Parallel()
	var registrations atomic.Int32
	var loaded, measured atomic.Bool
	w, err := worker.New(worker.Options{
		URL: registrar(t, &registrations), APIKey: "k", APISecret: "s", Slots: 1, Runner: instant{}, WatchEvery: -1, Log: zerolog.Nop(),
		MachineLoad: func(time.Time) float64 {
			measured.Store(true)
			return 1
		},
		Ready: func() error {
			if loaded.Load() {
				return nil
			}
			return errors.New("engine big: loading (40 %)")
		},
	})
	require.NoError(t, err)
	probe := func() (int, string) {
		rec := httptest.NewRecorder()
		w.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
		return rec.Code, rec.Body.String()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	time.Sleep(3 * worker.ReadyEvery)
	code, body := probe()
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "loading (40 %)")
	require.Zero(t, registrations.Load())
	require.Zero(t, w.State().Load)
	require.False(t, measured.Load())

	loaded.Store(true)
	require.Eventually(t, func() bool { return w.State().Registered }, 2*time.Minute, 5*time.Millisecond)
	loaded.Store(false)
	code, body = probe()
	require.Equal(t, http.StatusOK, code, body)
	require.InDelta(t, 0.7, w.State().Load, 1e-6)
	cancel()
	require.NoError(t, <-ended)
}

// TestDrainBeforeReady: a drain before the engine is loaded ends the worker.
func TestDrainBeforeReady(t *testing.T) {
	t.Parallel()
	w, err := worker.New(worker.Options{
		URL: "ws://127.0.0.1:1", APIKey: "k", APISecret: "s", Slots: 1, Runner: instant{}, Log: zerolog.Nop(),
		Ready: func() error { return errors.New("loading") },
	})
	require.NoError(t, err)
	w.Drain()
	require.NoError(t, w.Run(t.Context()))
}

// TestServerClock: the age of a dispatch is measured by the clock of the server that made it.
func TestServerClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			rw.WriteHeader(http.StatusServiceUnavailable)
		}))
		require.InDelta(t, ahead.Minutes(), worker.Skew(t, s.URL).Minutes(), 2)
		s.Close()
	}
	now := time.Unix(1000, 5e8)
	for ahead, want := range map[time.Duration]time.Duration{0: 0, time.Second: 0, -time.Second: 0, time.Minute: time.Minute, -time.Minute: -time.Minute} {
		skew, ok := worker.SkewOf(http.Header{"Date": {now.Add(ahead).UTC().Format(http.TimeFormat)}}, now)
		require.True(t, ok)
		require.InDelta(t, want.Seconds(), skew.Seconds(), 0.5, ahead)
	}
}

// TestRefusedForTheClock: the error of a refusal names a clock that is wrong.
func TestRefusedForTheClock(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		rw.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	w, err := worker.New(worker.Options{
		URL: s.URL, APIKey: "k", APISecret: "s", Slots: 1, Runner: instant{}, WatchEvery: -1, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	err = w.Run(t.Context())
	require.ErrorIs(t, err, worker.ErrRefused)
	require.ErrorContains(t, err, "behind the server's")
}
