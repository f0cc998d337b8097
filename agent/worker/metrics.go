package worker

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are a worker's figures. The first two have the names that LiveKit's
// own agents use, so that dashboards and scalers made for those work here.
type metrics struct {
	w            *Worker
	offers       *prometheus.CounterVec
	ended        *prometheus.CounterVec
	redispatches *prometheus.CounterVec
	unknown      prometheus.Counter
	joins        prometheus.Histogram
}

func newMetrics(w *Worker) *metrics {
	return &metrics{
		w: w,
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

func (m *metrics) parts() []prometheus.Collector {
	return []prometheus.Collector{m.offers, m.ended, m.redispatches, m.unknown, m.joins}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, p := range m.parts() {
		p.Describe(ch)
	}
	for _, g := range m.gauges() {
		ch <- g.desc
	}
}

type gauge struct {
	desc  *prometheus.Desc
	value float64
}

func (m *metrics) gauges() []gauge {
	s := m.w.State()
	of := func(name, help string, v float64) gauge {
		return gauge{prometheus.NewDesc(name, help, nil, nil), v}
	}
	return []gauge{
		of("lk_agents_active_job_count", "Running jobs.", float64(s.Jobs)),
		of("lk_agents_worker_load", "Load as reported to the server; 0.7 is full.", s.Load),
		of("touchline_worker_slots", "Maximum number of jobs.", float64(s.Slots)),
		of("touchline_worker_registered", "1 while registered with the server.", one(s.Registered)),
		of("touchline_worker_registrations", "Registrations since the start.", float64(s.Registrations)),
		of("touchline_worker_draining", "1 while the worker takes no more jobs.", one(s.Draining)),
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, p := range m.parts() {
		p.Collect(ch)
	}
	for _, g := range m.gauges() {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value)
	}
}

// Collector is this worker's metrics. A registry should add the label nodename
// when several machines are scraped as one.
func (w *Worker) Collector() prometheus.Collector { return w.metrics }
