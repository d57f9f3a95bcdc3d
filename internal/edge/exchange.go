package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/exchange"
	"github.com/weir-edge/weir/internal/metric"
)

// openExchange lets this region share limits with others, if it can reach them: it exchanges
// what the chain counts.
func (e *Edge) openExchange() {
	p := e.listeners.Peers
	if p == nil {
		return
	}
	counters := e.chain.Counters
	e.exchange = exchange.New(exchange.Config{
		Region: e.config.Node.Region, Node: e.config.Node.ID,
		Directory: p.Directory, Caller: p.Links, Store: counters, Tallies: e.chain.Tallies,
		Limit: e.rules.LimitOf, Needed: e.rules.Shared, Reset: e.chain.Reset.Reset, Incarnation: e.born,
		Escrow: exchange.Escrow{Checks: e.chain.Escrows, Mover: counters, Terms: counters, Needed: func() bool { return len(e.rules.Divided()) > 0 }},
	})
	e.admin.Exchange, e.admin.Regions = e.exchange, p.Directory.Regions
	p.Server.Handle(exchange.TopicTotals, e.exchange.Totals)
	p.Server.Handle(exchange.TopicCounts, e.exchange.Counts)
	p.Server.Handle(exchange.TopicReset, e.exchange.Resets)
	p.Server.Handle(exchange.TopicShort, e.exchange.Short)
	p.Server.Handle(exchange.TopicRights, e.exchange.Rights)
	p.Server.Handle(exchange.TopicTerms, e.exchange.Terms)
	e.metrics.registry.Collect(e.collectExchange, globalLag, globalOver, globalOverMost, globalKeys, globalUncounted, globalParts, globalHeld, globalRights)
}

var (
	globalLag       = metric.ReadGauge("weir_global_lag_seconds", "How old the knowledge of another region's counts may be, by region, for the keys that this node owns.", "from")
	globalOver      = metric.ReadGauge("weir_global_overshoot_ratio", "The largest fraction by which all regions together exceeded a global limit in the last 30 to 60 s, by rule, for the keys that this node owns.", "rule")
	globalOverMost  = metric.ReadGauge("weir_global_overshoot_bound_ratio", "The fraction by which they may exceed it, at ten times the limit and the present lag.", "rule")
	globalKeys      = metric.ReadGauge("weir_global_keys", "Counters of global limits that this node keeps, and how many of them other regions must know.", "state")
	globalUncounted = metric.ReadCounter("weir_global_uncounted_total", "Units under global limits that are not reported to other regions, because this node counts too many keys.")
	globalParts     = metric.ReadGauge("weir_global_parts", "Regions' parts of limits in escrow that this region may spend of windows that begin now: usually 1, more if it inherited those of a dead region, 0 if no majority has promised it its own.")
	globalHeld      = metric.ReadGauge("weir_global_rights", "Units of limits in escrow that this region holds in the present windows, spent or not, by rule, of the keys that this node owns.", "rule")
	globalRights    = metric.ReadCounter("weir_global_rights_total", "Units of limits in escrow that this node has moved from or to another region.", "direction")
)

// collectExchange exports what this node knows of other regions.
func (e *Edge) collectExchange(to chan<- prometheus.Metric) {
	for region, lag := range e.exchange.Lags() {
		globalLag.Send(to, lag.Seconds(), region)
	}
	for _, u := range e.exchange.Usages() {
		globalOver.Send(to, u.Overshoot, u.Rule)
		globalOverMost.Send(to, u.Bound, u.Rule)
	}
	kept, travel, refused := e.exchange.Keys()
	globalKeys.Send(to, float64(kept), "kept")
	globalKeys.Send(to, float64(travel), "traveling")
	globalUncounted.Send(to, float64(e.chain.Tallies.Uncounted()+refused))
	if divided := e.rules.Divided(); len(divided) > 0 {
		globalParts.Send(to, float64(e.exchange.Parts()))
		held := e.exchange.RightsHeld()
		for _, rule := range divided {
			globalHeld.Send(to, float64(held[rule]), rule)
		}
	}
	gave, received := e.exchange.RightsMoved()
	globalRights.Send(to, float64(gave), "out")
	globalRights.Send(to, float64(received), "in")
}
