package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/pkg/limiter/report"
)

// reportMetrics exports what this node reports of each rule, and by how much all nodes
// exceed it.
type reportMetrics struct{ reports *report.Store }

var (
	reportedKeys  = prometheus.NewDesc("weir_reported_keys", "Keys of which this node knows the counts, by rule.", []string{"rule"}, nil)
	reportedUnits = prometheus.NewDesc("weir_reported_units_total", "Units that this node admitted and reported, by rule and by what became of the report.", []string{"rule", "fate"}, nil)
	overshoot     = prometheus.NewDesc("weir_overshoot_ratio", "The largest part by which all nodes exceeded a limit in the last 30 to 60 s, by rule.", []string{"rule"}, nil)
	overshootMost = prometheus.NewDesc("weir_overshoot_bound_ratio", "The part by which they may, at the rate at which they were asked.", []string{"rule"}, nil)
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
