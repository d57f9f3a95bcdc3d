package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/limiter/lease"
)

var (
	leaseKeys = metric.ReadGauge("weir_leases", "Keys on which this node holds a lease, by rule.", "rule")
	leaseHeld = metric.ReadGauge("weir_lease_units_held", "Units of leases that this node may still spend without asking Redis, by rule.", "rule")
	leaseSum  = metric.ReadCounter("weir_lease_units_total", "Units of leases, counted when they end, by rule and fate: granted, spent, returned, or stranded (neither spent nor returned, so they count until they leave the window).", "rule", "fate")
)

// exportLeases exports what happened to the leases of each rule.
func (m *metrics) exportLeases(leases *lease.Store) {
	m.registry.Collect(func(to chan<- prometheus.Metric) {
		for _, u := range leases.Usages() {
			leaseKeys.Send(to, float64(u.Leases), u.Rule)
			leaseHeld.Send(to, float64(u.Held), u.Rule)
			for fate, units := range map[string]int64{"granted": u.Granted, "spent": u.Spent, "returned": u.Returned, "stranded": u.Stranded} {
				leaseSum.Send(to, float64(units), u.Rule, fate)
			}
		}
	}, leaseKeys, leaseHeld, leaseSum)
}
