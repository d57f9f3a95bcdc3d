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
	globalLag       = metric.ReadGauge("weir_global_lag_seconds", "Under global rules, the age of this node's knowledge of that region's counts, in seconds, for the keys that it owns; from the start if never heard from.", "from")
	globalOver      = metric.ReadGauge("weir_global_overshoot_ratio", "The largest excess of all regions over a key's limit in a window of the last 30 to 60 s, as a share of the limit, by rule, for the keys that the node owns.", "rule")
	globalOverMost  = metric.ReadGauge("weir_global_overshoot_bound_ratio", "The guaranteed maximum of weir_global_overshoot_ratio, at ten times the limit and the current lag.", "rule")
	globalKeys      = metric.ReadGauge("weir_global_keys", "Counters of global limits that the node keeps for its region (kept), and those of them that are sent to other regions (traveling).", "state")
	globalUncounted = metric.ReadCounter("weir_global_uncounted_total", "Units that other regions do not learn about, because the node counts too many keys.")
	globalParts     = metric.ReadGauge("weir_global_parts", "How many regions' parts of escrow limits this region may spend in windows that begin now: usually 1; more after it inherited; 0 without a majority.")
	globalHeld      = metric.ReadGauge("weir_global_rights", "Units in escrow that the region holds in the current windows, spent or not, by rule, for the keys that the node owns.", "rule")
	globalRights    = metric.ReadCounter("weir_global_rights_total", "Units in escrow that the node moved to other regions (out) and from them (in).", "direction")
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
