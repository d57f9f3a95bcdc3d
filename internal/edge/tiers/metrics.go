package tiers

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/metric"
)

// metrics count what the behavior policy does. Nodes without a policy export none.
type metrics struct {
	requests, rises, signals *prometheus.CounterVec
	info                     *prometheus.GaugeVec
	sourceUp                 prometheus.Gauge
	rejected, cacheErrors    prometheus.Counter

	// For the exchange with other nodes.
	nodes, alone prometheus.Gauge
	reported     *prometheus.GaugeVec
	shared       *prometheus.CounterVec
}

func newMetrics(r metric.Registry) *metrics {
	m := &metrics{
		requests:    r.Counters("weir_behavior_requests_total", "Requests of subjects above the mildest tier, by what the policy did, or in shadow mode would have done.", "tier", "effect", "mode"),
		rises:       r.Counters("weir_behavior_rises_total", "Times that a subject entered a severer tier.", "kind", "tier"),
		signals:     r.Counters("weir_behavior_signals_total", "Signals that contributed to a subject's entering a severer tier.", "kind", "tier", "signal"),
		nodes:       r.Gauge("weir_behavior_nodes", "Nodes of the region that judge clients together, this one included."),
		alone:       r.Gauge("weir_behavior_alone", "1 while the region's store does not answer, so this node judges by what it sees itself."),
		reported:    r.Gauges("weir_behavior_told", "Subjects that this node reported to the others in the last second.", "kind"),
		shared:      r.Counters("weir_behavior_region_rises_total", "Times that a subject entered a severer tier because of what several nodes counted.", "kind", "tier"),
		info:        r.Gauges("weir_behavior_policy_info", "1 for the version of the behavior policy that this node runs.", "version", "mode"),
		rejected:    r.Counter("weir_behavior_policy_rejected_total", "Behavior policies refused; the previous one kept running."),
		sourceUp:    r.Gauge("weir_behavior_policy_source_up", "1 while the source of the behavior policy can be read: Consul, or the file."),
		cacheErrors: r.Counter("weir_behavior_policy_cache_errors_total", "Failures to write the last good behavior policy to disk, or to use the one found there."),
	}
	m.nodes.Set(1)
	for _, kind := range []string{decide.KindClient, decide.KindRoute} {
		m.reported.WithLabelValues(kind)
	}
	return m
}

var (
	behaviorSubjects  = metric.ReadGauge("weir_behavior_subjects", "Subjects that this node keeps.", "kind")
	behaviorEvicted   = metric.ReadCounter("weir_behavior_evicted_total", "Subjects evicted for new ones because the table was full.", "kind")
	behaviorUntracked = metric.ReadCounter("weir_behavior_untracked_total", "Requests of new subjects for which no other could be evicted.", "kind")
	behaviorDelayed   = metric.ReadGauge("weir_behavior_delayed", "Requests that wait now because of their tier.")
)

// collect exports the tables of a node with a policy.
func (k *Evaluator) collect(to chan<- prometheus.Metric) {
	clients, routes := k.Clients.Counts(), k.Routes.Counts()
	for i, kind := range []string{decide.KindClient, decide.KindRoute} {
		n := clients
		if i > 0 {
			n = routes
		}
		behaviorSubjects.Send(to, float64(n.Subjects), kind)
		behaviorEvicted.Send(to, float64(n.Evicted), kind)
		behaviorUntracked.Send(to, float64(n.Untracked), kind)
	}
	behaviorDelayed.Send(to, float64(k.Delayed()))
}
