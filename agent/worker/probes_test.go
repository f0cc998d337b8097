//go:build integration

package worker_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"touchline/agent/worker"
)

func TestRefusedKeys(t *testing.T) {
	h := newServer(t)
	w, err := worker.New(worker.Options{
		URL: h.url, APIKey: "key", APISecret: "another-secret-of-more-than-32-characters", Slots: 1, Runner: h.runner(), Log: logger(),
	})
	require.NoError(t, err)
	err = w.Run(t.Context())
	require.ErrorIs(t, err, worker.ErrRefused)
	require.NotContains(t, err.Error(), "another-secret")
}

func TestProbesAndMetrics(t *testing.T) {
	h := newServer(t)
	g := h.runner()
	w := h.worker(g)
	s := httptest.NewServer(w.Handler())
	defer s.Close()
	client := s.Client()
	defer client.CloseIdleConnections()
	get := func(path string) (int, string) {
		res, err := client.Get(s.URL + path)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}
	code, body := get("/")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "OK", body)
	h.ask("seen", "")
	require.Eventually(t, func() bool { return g.joined() == 1 }, soon, 20*time.Millisecond)
	code, body = get("/worker")
	require.Equal(t, http.StatusOK, code)
	var about map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &about))
	require.Equal(t, "JT_ROOM", about["worker_type"])
	require.Equal(t, agentName, about["agent_name"])
	require.EqualValues(t, 1, about["active_jobs"])
	require.InDelta(t, 0.07, about["worker_load"], 1e-6)
	require.EqualValues(t, 1, about["protocol_version"])
	code, _ = get("/other")
	require.Equal(t, http.StatusNotFound, code)

	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(w.Collector())
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	require.EqualValues(t, 1, values["lk_agents_active_job_count"])
	require.InDelta(t, 0.07, values["lk_agents_worker_load"], 1e-6)
	require.EqualValues(t, 1, values["touchline_worker_offers_total"])
	require.EqualValues(t, 1, values["touchline_worker_registered"])

	// A worker that was never registered is of no use yet.
	away, err := worker.New(worker.Options{URL: "ws://127.0.0.1:1", APIKey: "k", APISecret: "s", Slots: 1, Runner: g})
	require.NoError(t, err)
	rec := httptest.NewRecorder()
	away.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
}
