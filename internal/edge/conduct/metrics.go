package conduct

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-edge/weir/internal/edge/decide"
)

// metrics count what the behavior policy does. Nodes without a policy export none.
type metrics struct {
	requests, rises, signals *prometheus.CounterVec
	info                     *prometheus.GaugeVec
	sourceUp                 prometheus.Gauge
	rejected, cacheErrors    prometheus.Counter

	// For the exchange with other nodes.
	nodes, alone prometheus.Gauge
	told         *prometheus.GaugeVec
	shared       *prometheus.CounterVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	auto := promauto.With(registry)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: "weir_" + name, Help: help}, labels)
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_" + name, Help: help}, labels)
	}
	m := &metrics{
		requests:    counters("behavior_requests_total", "Requests of subjects above the mildest tier, by what the policy did, or in shadow mode would have done.", "tier", "effect", "mode"),
		rises:       counters("behavior_rises_total", "Times that a subject entered a severer tier.", "kind", "tier"),
		signals:     counters("behavior_signals_total", "Signals that contributed to a subject's entering a severer tier.", "kind", "tier", "signal"),
		nodes:       gauges("behavior_nodes", "Nodes of the region that judge clients together, this one included.").WithLabelValues(),
		alone:       gauges("behavior_alone", "1 while the region's store does not answer, so this node judges by what it sees itself.").WithLabelValues(),
		told:        gauges("behavior_told", "Subjects that this node reported to the others in the last second.", "kind"),
		shared:      counters("behavior_region_rises_total", "Times that a subject entered a severer tier because of what several nodes counted.", "kind", "tier"),
		info:        gauges("behavior_policy_info", "1 for the version of the behavior policy that this node runs.", "version", "mode"),
		rejected:    counters("behavior_policy_rejected_total", "Behavior policies refused; the previous one kept running.").WithLabelValues(),
		sourceUp:    gauges("behavior_policy_source_up", "1 while the source of the behavior policy can be read: Consul, or the file.").WithLabelValues(),
		cacheErrors: counters("behavior_policy_cache_errors_total", "Failures to write the last good behavior policy to disk, or to use the one found there.").WithLabelValues(),
	}
	m.nodes.Set(1)
	for _, kind := range []string{decide.KindClient, decide.KindRoute} {
		m.told.WithLabelValues(kind)
	}
	return m
}

// collector exports the tables of a node with a policy.
type collector struct{ conduct *decide.Conduct }

var (
	conductSubjects  = prometheus.NewDesc("weir_behavior_subjects", "Subjects that this node keeps.", []string{"kind"}, nil)
	conductEvicted   = prometheus.NewDesc("weir_behavior_evicted_total", "Subjects evicted for new ones because the table was full.", []string{"kind"}, nil)
	conductUntracked = prometheus.NewDesc("weir_behavior_untracked_total", "Requests of new subjects for which no other could be evicted.", []string{"kind"}, nil)
	conductDelayed   = prometheus.NewDesc("weir_behavior_delayed", "Requests that wait now because of their tier.", nil, nil)
)

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{conductSubjects, conductEvicted, conductUntracked, conductDelayed} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	clients, routes := c.conduct.Clients.Counts(), c.conduct.Routes.Counts()
	for i, kind := range []string{decide.KindClient, decide.KindRoute} {
		n := clients
		if i > 0 {
			n = routes
		}
		to <- prometheus.MustNewConstMetric(conductSubjects, prometheus.GaugeValue, float64(n.Subjects), kind)
		to <- prometheus.MustNewConstMetric(conductEvicted, prometheus.CounterValue, float64(n.Evicted), kind)
		to <- prometheus.MustNewConstMetric(conductUntracked, prometheus.CounterValue, float64(n.Untracked), kind)
	}
	to <- prometheus.MustNewConstMetric(conductDelayed, prometheus.GaugeValue, float64(c.conduct.Delayed()))
}
