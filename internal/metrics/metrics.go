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

// Func is a collector without a description: its metrics depend on the present parts, so Prometheus checks them at each collection.
type Func func(ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector.
func (Func) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f Func) Collect(ch chan<- prometheus.Metric) { f(ch) }

// Writer sends metrics to a collection.
type Writer struct {
	Out    chan<- prometheus.Metric
	Prefix string            // of all names
	Labels prometheus.Labels // of all metrics, besides their own
}

// Gauge sends a gauge, with at most one label: its name and its value.
func (w Writer) Gauge(name, help string, v float64, label ...string) {
	w.send(prometheus.GaugeValue, name, help, v, label)
}

// Counter is Gauge for a counter.
func (w Writer) Counter(name, help string, v float64, label ...string) {
	w.send(prometheus.CounterValue, name, help, v, label)
}

func (w Writer) send(kind prometheus.ValueType, name, help string, v float64, label []string) {
	names := label[:len(label)/2]
	desc := prometheus.NewDesc(w.Prefix+name, help, names, w.Labels)
	w.Out <- prometheus.MustNewConstMetric(desc, kind, v, label[len(names):]...)
}

// Counter returns a counter with the value of n.
func Counter(name, help string, n func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(n()) })
}

// Gauge returns a gauge with the value of v.
func Gauge(name, help string, v func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, v)
}

// Flag returns the value of a metric that is 1 for true and 0 for false.
func Flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
