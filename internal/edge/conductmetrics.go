package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/policy"
)

// conductMetrics count what the behavior policy does. Nodes without a policy export none.
type conductMetrics struct {
	conductRequests, conductRises, conductSignals *prometheus.CounterVec
	policyInfo                                    *prometheus.GaugeVec
	policySourceUp                                prometheus.Gauge
	policyRejected, policyCacheErrors             prometheus.Counter

	// For the exchange with other nodes.
	conductNodes, conductAlone prometheus.Gauge
	conductTold                *prometheus.GaugeVec
	conductShared              *prometheus.CounterVec
}

func newConductMetrics() conductMetrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_" + name, Help: help}, labels)
	}
	return conductMetrics{
		conductRequests: counters("behavior_requests_total", "Requests of subjects above the mildest tier, by what the policy did, or in shadow mode would have done.", "tier", "effect", "mode"),
		conductRises:    counters("behavior_rises_total", "Times that a subject entered a severer tier.", "kind", "tier"),
		conductSignals:  counters("behavior_signals_total", "Signals that contributed to a subject's entering a severer tier.", "kind", "tier", "signal"),
		conductNodes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_behavior_nodes", Help: "Nodes of the region that judge clients together, this one included.",
		}),
		conductAlone: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_behavior_alone", Help: "1 while the region's store does not answer, so this node judges by what it sees itself.",
		}),
		conductTold: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_behavior_told", Help: "Subjects that this node reported to the others in the last second.",
		}, []string{"kind"}),
		conductShared: counters("behavior_region_rises_total", "Times that a subject entered a severer tier because of what several nodes counted.", "kind", "tier"),
		policyInfo: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_behavior_policy_info", Help: "1 for the version of the behavior policy that this node runs.",
		}, []string{"version", "mode"}),
		policyRejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_behavior_policy_rejected_total", Help: "Behavior policies refused; the previous one kept running.",
		}),
		policySourceUp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_behavior_policy_source_up", Help: "1 while the source of the behavior policy can be read: Consul, or the file.",
		}),
		policyCacheErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_behavior_policy_cache_errors_total", Help: "Failures to write the last good behavior policy to disk, or to use the one found there.",
		}),
	}
}

// policy exports which policy is active.
func (m *conductMetrics) policy(p *policy.Policy) {
	m.policyInfo.Reset()
	m.policyInfo.WithLabelValues(p.Version, p.Mode()).Set(1)
}

// conductCollector exports the tables of a node with a policy.
type conductCollector struct{ conduct *decide.Conduct }

var (
	conductSubjects  = prometheus.NewDesc("weir_behavior_subjects", "Subjects that this node keeps.", []string{"kind"}, nil)
	conductEvicted   = prometheus.NewDesc("weir_behavior_evicted_total", "Subjects evicted for new ones because the table was full.", []string{"kind"}, nil)
	conductUntracked = prometheus.NewDesc("weir_behavior_untracked_total", "Requests of new subjects for which no other could be evicted.", []string{"kind"}, nil)
	conductDelayed   = prometheus.NewDesc("weir_behavior_delayed", "Requests that wait now because of their tier.", nil, nil)
)

// Describe implements prometheus.Collector.
func (conductCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{conductSubjects, conductEvicted, conductUntracked, conductDelayed} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c conductCollector) Collect(to chan<- prometheus.Metric) {
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
