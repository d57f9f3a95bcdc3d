// Package metric makes and registers the metrics that a process exports.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Registry registers the metrics that it makes.
type Registry struct{ *prometheus.Registry }

// New returns a registry with the metrics of Go and of the process.
func New() Registry {
	r := Registry{prometheus.NewRegistry()}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return r
}

func (r Registry) Counter(name, help string) prometheus.Counter {
	return r.Counters(name, help).WithLabelValues()
}

// Counters makes a counter for each set of labels.
func (r Registry) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (r Registry) Gauge(name, help string) prometheus.Gauge {
	return r.Gauges(name, help).WithLabelValues()
}

// Gauges makes a gauge for each set of labels.
func (r Registry) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// GaugeFunc makes a gauge whose value is read when metrics are collected.
func (r Registry) GaugeFunc(name, help string, value func() float64) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func (r Registry) Histogram(name, help string, buckets []float64) prometheus.Observer {
	return r.Histograms(name, help, buckets).WithLabelValues()
}

// Histograms makes a histogram for each set of labels.
func (r Registry) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Read is a metric whose series are read when metrics are collected, so that those of what is gone
// disappear.
type Read struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func ReadCounter(name, help string, labels ...string) Read {
	return Read{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func ReadGauge(name, help string, labels ...string) Read {
	return Read{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func (m Read) Send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

func (r Registry) Collect(collect func(to chan<- prometheus.Metric), all ...Read) {
	r.MustRegister(collector{collect, all})
}

type collector struct {
	collect func(chan<- prometheus.Metric)
	all     []Read
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.all {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c.collect(to) }

// OneIf is the value of a gauge that is 1 while something holds.
func OneIf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
