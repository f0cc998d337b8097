// Package metrics combines Prometheus metrics into one collector. It stores no
// values; each collection reads them.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Bundle combines several collectors.
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

// Counter returns a counter with the value of n.
func Counter(name, help string, n func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(n()) })
}

// Gauge returns a gauge with the value of v.
func Gauge(name, help string, v func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, v)
}
