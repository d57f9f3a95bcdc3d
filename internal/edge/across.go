package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/across"
	"github.com/weir-edge/weir/pkg/limiter/tally"
)

// openAcross lets this region share limits with others, if it can reach them: it exchanges
// what the chain counts.
func (e *Edge) openAcross() {
	p := e.listeners.Peers
	if p == nil {
		return
	}
	counters := e.chain.Counters
	e.across = across.New(across.Config{
		Region: e.config.Node.Region, Node: e.config.Node.ID,
		Directory: p.Directory, Caller: p.Links, Store: counters, Tallies: e.chain.Tallies,
		Limit: e.rules.LimitOf, Needed: e.rules.Shared, Reset: e.chain.Reset.Reset, Incarnation: e.born,
		Escrow: across.Escrow{Checks: e.chain.Escrows, Mover: counters, Registrar: counters, Needed: func() bool { return len(e.rules.Divided()) > 0 }},
	})
	e.admin.Across, e.admin.Regions = e.across, p.Directory.Regions
	p.Server.Handle(across.TopicTotals, e.across.Totals)
	p.Server.Handle(across.TopicCounts, e.across.Counts)
	p.Server.Handle(across.TopicReset, e.across.Resets)
	p.Server.Handle(across.TopicShort, e.across.Short)
	p.Server.Handle(across.TopicRights, e.across.Rights)
	p.Server.Handle(across.TopicTerms, e.across.Terms)
	e.metrics.registry.MustRegister(acrossMetrics{e.across, e.chain.Tallies, e.rules.Divided})
}

// acrossMetrics exports what this node knows of other regions.
type acrossMetrics struct {
	exchange *across.Exchange
	tallies  *tally.Store
	divided  func() []string // rules in escrow
}

var (
	globalLag       = prometheus.NewDesc("weir_global_lag_seconds", "How old the knowledge of another region's counts may be, by region, for the keys that this node owns.", []string{"from"}, nil)
	globalOver      = prometheus.NewDesc("weir_global_overshoot_ratio", "The largest fraction by which all regions together exceeded a global limit in the last 30 to 60 s, by rule, for the keys that this node owns.", []string{"rule"}, nil)
	globalOverMost  = prometheus.NewDesc("weir_global_overshoot_bound_ratio", "The fraction by which they may exceed it, at ten times the limit and the present lag.", []string{"rule"}, nil)
	globalKeys      = prometheus.NewDesc("weir_global_keys", "Counters of global limits that this node keeps, and how many of them other regions must know.", []string{"state"}, nil)
	globalUncounted = prometheus.NewDesc("weir_global_uncounted_total", "Units under global limits that are not reported to other regions, because this node counts too many keys.", nil, nil)
	globalParts     = prometheus.NewDesc("weir_global_parts", "Regions' parts of limits in escrow that this region may spend of windows that begin now: usually 1, more if it inherited those of a dead region, 0 if no majority has promised it its own.", nil, nil)
	globalHeld      = prometheus.NewDesc("weir_global_rights", "Units of limits in escrow that this region holds in the present windows, spent or not, by rule, of the keys that this node owns.", []string{"rule"}, nil)
	globalRights    = prometheus.NewDesc("weir_global_rights_total", "Units of limits in escrow that this node has moved from or to another region.", []string{"direction"}, nil)
)

// Describe implements prometheus.Collector.
func (acrossMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- globalLag
	to <- globalOver
	to <- globalOverMost
	to <- globalKeys
	to <- globalUncounted
	to <- globalParts
	to <- globalHeld
	to <- globalRights
}

// Collect implements prometheus.Collector.
func (m acrossMetrics) Collect(to chan<- prometheus.Metric) {
	for region, lag := range m.exchange.Lags() {
		to <- prometheus.MustNewConstMetric(globalLag, prometheus.GaugeValue, lag.Seconds(), region)
	}
	for _, u := range m.exchange.Usages() {
		to <- prometheus.MustNewConstMetric(globalOver, prometheus.GaugeValue, u.Overshoot, u.Rule)
		to <- prometheus.MustNewConstMetric(globalOverMost, prometheus.GaugeValue, u.Bound, u.Rule)
	}
	kept, travel, refused := m.exchange.Keys()
	to <- prometheus.MustNewConstMetric(globalKeys, prometheus.GaugeValue, float64(kept), "kept")
	to <- prometheus.MustNewConstMetric(globalKeys, prometheus.GaugeValue, float64(travel), "traveling")
	to <- prometheus.MustNewConstMetric(globalUncounted, prometheus.CounterValue, float64(m.tallies.Uncounted()+refused))
	if divided := m.divided(); len(divided) > 0 {
		to <- prometheus.MustNewConstMetric(globalParts, prometheus.GaugeValue, float64(m.exchange.Parts()))
		held := m.exchange.RightsHeld()
		for _, rule := range divided {
			to <- prometheus.MustNewConstMetric(globalHeld, prometheus.GaugeValue, float64(held[rule]), rule)
		}
	}
	gave, received := m.exchange.RightsMoved()
	to <- prometheus.MustNewConstMetric(globalRights, prometheus.CounterValue, float64(gave), "out")
	to <- prometheus.MustNewConstMetric(globalRights, prometheus.CounterValue, float64(received), "in")
}
