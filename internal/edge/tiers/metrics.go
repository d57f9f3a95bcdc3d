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
		requests:    r.Counters("weir_behavior_requests_total", "Requests above the mildest tier, by tier, mode and effect: passed, delayed, refused, or crowded (refused because 1,000 requests are already delayed). In shadow mode, the hypothetical effect.", "tier", "effect", "mode"),
		rises:       r.Counters("weir_behavior_rises_total", "Times a subject entered a severer tier, by kind (client, route) and tier.", "kind", "tier"),
		signals:     r.Counters("weir_behavior_signals_total", "Signals that contributed to a rise, by kind, tier and signal (burst, repetition, scan, denials, failures, presence); one rise may have several.", "kind", "tier", "signal"),
		nodes:       r.Gauge("weir_behavior_nodes", "Nodes of the region that evaluate clients together, this one included."),
		alone:       r.Gauge("weir_behavior_alone", "1 while Redis does not answer and the node sees its own traffic only."),
		reported:    r.Gauges("weir_behavior_reported", "Subjects that the node reported to others in the last second, by kind.", "kind"),
		shared:      r.Counters("weir_behavior_region_rises_total", "Rises because of several nodes' combined counts, not included in weir_behavior_rises_total, by kind and tier.", "kind", "tier"),
		info:        r.Gauges("weir_behavior_policy_info", "1 for the active behavior policy, with its mode: shadow, enforce. Nodes without a policy export none of these.", "version", "mode"),
		rejected:    r.Counter("weir_behavior_policy_rejected_total", "Behavior policies refused, each once."),
		sourceUp:    r.Gauge("weir_behavior_policy_source_up", "1 while the file of the behavior policy is readable, or Consul answers."),
		cacheErrors: r.Counter("weir_behavior_policy_cache_errors_total", "Failures to write or use policy.cache."),
	}
	m.nodes.Set(1)
	for _, kind := range []string{decide.KindClient, decide.KindRoute} {
		m.reported.WithLabelValues(kind)
	}
	return m
}

var (
	behaviorSubjects  = metric.ReadGauge("weir_behavior_subjects", "Subjects that the node keeps, by kind.", "kind")
	behaviorEvicted   = metric.ReadCounter("weir_behavior_evicted_total", "Subjects evicted for new ones because the table was full (policy.subjects), by kind.", "kind")
	behaviorUntracked = metric.ReadCounter("weir_behavior_untracked_total", "Requests of new subjects that are not kept, because every subject that could be evicted is being refused, by kind.", "kind")
	behaviorDelayed   = metric.ReadGauge("weir_behavior_delayed", "Requests now delayed because of their tier.")
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
