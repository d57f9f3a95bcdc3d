package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/limiter/report"
)

var (
	reportedKeys  = metric.ReadGauge("weir_reported_keys", "Keys whose counts this node knows, by rule with consistency: reported.", "rule")
	reportedUnits = metric.ReadCounter("weir_reported_units_total", "Units reported, by rule and fate: counted, or lost (the report got no answer, so its units may pass in addition).", "rule", "fate")
	overshoot     = metric.ReadGauge("weir_overshoot_ratio", "The largest excess over a key's limit (a bucket's burst) in the last 30 to 60 s, as a share of it, by rule. Not measured where tiers share a counter.", "rule")
	overshootMost = metric.ReadGauge("weir_overshoot_bound_ratio", "The guaranteed maximum of weir_overshoot_ratio, at the rate of the rule's busiest key.", "rule")
)

// exportReports exports what this node reports for each rule, and by how much all nodes
// exceed it.
func (m *metrics) exportReports(reports *report.Store) {
	m.registry.Collect(func(to chan<- prometheus.Metric) {
		for _, u := range reports.Usages() {
			reportedKeys.Send(to, float64(u.Keys), u.Rule)
			overshoot.Send(to, u.Overshoot, u.Rule)
			overshootMost.Send(to, u.Bound, u.Rule)
			for fate, units := range map[string]int64{"counted": u.Counted, "lost": u.Lost} {
				reportedUnits.Send(to, float64(units), u.Rule, fate)
			}
		}
	}, reportedKeys, reportedUnits, overshoot, overshootMost)
}
