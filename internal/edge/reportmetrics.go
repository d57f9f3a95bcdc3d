package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/limiter/report"
)

var (
	reportedKeys  = metric.ReadGauge("weir_reported_keys", "Keys whose counts this node knows, by rule.", "rule")
	reportedUnits = metric.ReadCounter("weir_reported_units_total", "Units that this node admitted and reported, by rule and result of the report.", "rule", "fate")
	overshoot     = metric.ReadGauge("weir_overshoot_ratio", "The largest fraction by which all nodes together exceeded a limit in the last 30 to 60 s, by rule.", "rule")
	overshootMost = metric.ReadGauge("weir_overshoot_bound_ratio", "The fraction by which they may exceed it, at the rate of requests seen.", "rule")
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
