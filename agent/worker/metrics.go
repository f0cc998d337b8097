package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"touchline/internal/metrics"
)

// counters are the counters of a worker. Two of the gauges in Collector have the names of LiveKit's own agents, so that
// dashboards and scalers for those agents work.
type counters struct {
	offers       *prometheus.CounterVec
	ended        *prometheus.CounterVec
	redispatches *prometheus.CounterVec
	unknown      prometheus.Counter
	joins        prometheus.Histogram
}

func newCounters() *counters {
	return &counters{
		offers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "touchline_worker_offers_total", Help: "Jobs offered by the server, by answer: accepted, refused, served (the agent was there).",
		}, []string{"answer"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "touchline_worker_jobs_ended_total",
			Help: "Jobs ended, by outcome: ended, terminated, drained, stopped, unwanted, failed, panicked.",
		}, []string{"outcome"}),
		redispatches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "touchline_worker_redispatches_total",
			Help: "Dispatches made by this worker: found (a room without its agent), handed_over (drain), restored (the server forgot).",
		}, []string{"reason"}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "touchline_worker_unknown_messages_total", Help: "Messages of the server that this worker does not know.",
		}),
		joins: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "touchline_worker_join_seconds", Help: "Time from a job's assignment until the agent is in the room.",
			Buckets: []float64{.05, .1, .2, .3, .5, .7, 1, 2, 5, 10},
		}),
	}
}

// Collector returns this worker's metrics. A registry should add the label nodename
// when several machines are scraped as one.
func (w *Worker) Collector() prometheus.Collector {
	gauge := func(name, help string, value func(s State) float64) prometheus.Collector {
		return metrics.Gauge(name, help, func() float64 { return value(w.State()) })
	}
	m := w.metrics
	return metrics.Bundle{
		m.offers, m.ended, m.redispatches, m.unknown, m.joins,
		gauge("lk_agents_active_job_count", "Running jobs.", func(s State) float64 { return float64(s.Jobs) }),
		gauge("lk_agents_worker_load", "Load as reported to the server; 0.7 is full.", func(s State) float64 { return s.Load }),
		gauge("touchline_worker_slots", "Maximum number of jobs.", func(s State) float64 { return float64(s.Slots) }),
		gauge("touchline_worker_registered", "1 while registered with the server.",
			func(s State) float64 { return metrics.Flag(s.Registered) }),
		gauge("touchline_worker_registrations", "Registrations since the start.",
			func(s State) float64 { return float64(s.Registrations) }),
		gauge("touchline_worker_draining", "1 while the worker takes no more jobs.",
			func(s State) float64 { return metrics.Flag(s.Draining) }),
	}
}
