package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/pkg/limiter/report"
)

// reportMetrics exports what this node reports for each rule, and by how much all nodes
// exceed it.
type reportMetrics struct{ reports *report.Store }

var (
	reportedKeys  = prometheus.NewDesc("weir_reported_keys", "Keys whose counts this node knows, by rule.", []string{"rule"}, nil)
	reportedUnits = prometheus.NewDesc("weir_reported_units_total", "Units that this node admitted and reported, by rule and result of the report.", []string{"rule", "fate"}, nil)
	overshoot     = prometheus.NewDesc("weir_overshoot_ratio", "The largest fraction by which all nodes together exceeded a limit in the last 30 to 60 s, by rule.", []string{"rule"}, nil)
	overshootMost = prometheus.NewDesc("weir_overshoot_bound_ratio", "The fraction by which they may exceed it, at the rate of requests seen.", []string{"rule"}, nil)
)

// Describe implements prometheus.Collector.
func (reportMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- reportedKeys
	to <- reportedUnits
	to <- overshoot
	to <- overshootMost
}

// Collect implements prometheus.Collector.
func (m reportMetrics) Collect(to chan<- prometheus.Metric) {
	for _, u := range m.reports.Usages() {
		to <- prometheus.MustNewConstMetric(reportedKeys, prometheus.GaugeValue, float64(u.Keys), u.Rule)
		to <- prometheus.MustNewConstMetric(overshoot, prometheus.GaugeValue, u.Overshoot, u.Rule)
		to <- prometheus.MustNewConstMetric(overshootMost, prometheus.GaugeValue, u.Bound, u.Rule)
		for fate, units := range map[string]int64{"counted": u.Counted, "lost": u.Lost} {
			to <- prometheus.MustNewConstMetric(reportedUnits, prometheus.CounterValue, float64(units), u.Rule, fate)
		}
	}
}
