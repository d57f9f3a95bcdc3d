package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/pkg/limiter/lease"
)

// leaseMetrics exports what happened to the leases of each rule.
type leaseMetrics struct{ leases *lease.Store }

var (
	leaseKeys = prometheus.NewDesc("weir_leases", "Keys for which this node holds a lease, by rule.", []string{"rule"}, nil)
	leaseHeld = prometheus.NewDesc("weir_lease_units_held", "Units of leases that this node may still spend, by rule.", []string{"rule"}, nil)
	leaseSum  = prometheus.NewDesc("weir_lease_units_total", "Units of leases, by rule and outcome.", []string{"rule", "fate"}, nil)
)

// Describe implements prometheus.Collector.
func (leaseMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- leaseKeys
	to <- leaseHeld
	to <- leaseSum
}

// Collect implements prometheus.Collector.
func (m leaseMetrics) Collect(to chan<- prometheus.Metric) {
	for _, u := range m.leases.Usages() {
		to <- prometheus.MustNewConstMetric(leaseKeys, prometheus.GaugeValue, float64(u.Leases), u.Rule)
		to <- prometheus.MustNewConstMetric(leaseHeld, prometheus.GaugeValue, float64(u.Held), u.Rule)
		for fate, units := range map[string]int64{"granted": u.Granted, "spent": u.Spent, "returned": u.Returned, "stranded": u.Stranded} {
			to <- prometheus.MustNewConstMetric(leaseSum, prometheus.CounterValue, float64(units), u.Rule, fate)
		}
	}
}
