package console_test

import (
	"math"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/agent/look"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector()) // registered by the caller
	hub := events.NewHub(events.Options{History: -1})
	d := newDesk()
	r := open(t, console.Options{Room: console.Room{Bot: d, Hub: hub, Viewers: func() int { return 3 }}, Registry: reg})
	for _, rec := range []look.Record{
		{
			Outcome: "spoken", Aligned: true, AlignmentError: -0.031, InferenceSec: 0.9, FirstWordSec: 0.5,
			FirstAudioSec: 0.7, ReadySec: 0.7, AudioSec: 2, Tokens: 12,
		},
		{Outcome: "spoken", Aligned: true, AlignmentError: 0.4, Late: true, InferenceSec: 1.4},
		{Outcome: "silent", InferenceSec: 0.3},
		{Outcome: "invented"},
		{Outcome: "failed", Aligned: true, AlignmentError: math.NaN(), InferenceSec: math.Inf(1), AudioSec: -1, Tokens: -5},
	} {
		hub.Record(rec)
	}
	r.events("/api/events")
	require.Equal(t, http.StatusNotFound, r.ask("GET", "/api/none/at/all", "").status)
	require.Equal(t, http.StatusNotFound, r.ask("GET", "/api/frames/123", "").status)
	body := string(r.ask("GET", "/metrics", "").body)
	for _, line := range []string{
		`touchline_cycles_total{outcome="spoken"} 2`,
		`touchline_cycles_total{outcome="silent"} 1`,
		`touchline_cycles_total{outcome="failed"} 1`,
		`touchline_cycles_total{outcome="other"} 1`,
		`touchline_alignment_error_seconds_count 2`,
		`touchline_alignment_error_seconds_bucket{le="0.04"} 1`,
		`touchline_comments_late_total 1`,
		`touchline_cycle_stage_seconds_count{stage="inference"} 3`,
		`touchline_cycle_stage_seconds_count{stage="first_word"} 1`,
		`touchline_cycle_stage_seconds_count{stage="first_audio"} 1`,
		`touchline_tokens_total 12`,
		`touchline_speech_seconds_total 2`,
		`touchline_alignment_last_seconds 0.031`,
		`touchline_alignment_p95_seconds 0.08`,
		`touchline_delay_seconds 2.4`,
		`touchline_model_loaded 1`,
		`touchline_agent_state{state="listening"} 1`,
		`touchline_agent_state{state="speaking"} 0`,
		`touchline_room_viewers 3`,
		`touchline_sse_readers{endpoint="events"} 1`,
		`touchline_sse_lost_items_total{endpoint="events"} 0`,
		`touchline_mjpeg_viewers 0`,
		`touchline_http_requests_total{route="/api/",status="404"} 1`,
		`touchline_http_requests_total{route="/api/frames/{id}",status="404"} 1`,
		`go_goroutines `, `process_open_fds `, `go_build_info{`,
	} {
		require.Contains(t, body, line)
	}
	require.NotContains(t, body, "NaN")

	// Nothing measured yet is no figure, rather than a good one.
	d.change(func(s *agent.Snapshot) { s.AlignmentLast, s.AlignmentP95 = -1, -1 })
	require.NotContains(t, string(r.ask("GET", "/metrics", "").body), "touchline_alignment_p95")

	_, err := console.New(console.Options{Config: console.Config{Listen: "localhost:0"}, Registry: reg})
	require.ErrorContains(t, err, "metrics", "two consoles on one registry are refused, not mixed up")
}
