// Package metrics puts several of a part's Prometheus metrics into one
// collector. Their values are read when they are asked for; it keeps none.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Bundle is several collectors as one.
type Bundle []prometheus.Collector

// Describe implements prometheus.Collector.
func (b Bundle) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range b {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (b Bundle) Collect(ch chan<- prometheus.Metric) {
	for _, c := range b {
		c.Collect(ch)
	}
}

// Counter is a count that is kept elsewhere.
func Counter(name, help string, n func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(n()) })
}

// Gauge is a value that is kept elsewhere.
func Gauge(name, help string, v func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, v)
}
