package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/decide"
)

// healthCollector exports which upstreams get requests.
type healthCollector struct{ upstreams *upstreams }

var healthyDesc = prometheus.NewDesc("weir_upstream_healthy",
	"1 while an upstream passes its health checks and is not resting after failures, 0 while others of its group get its requests.",
	[]string{"upstream", "address"}, nil)

// Describe implements prometheus.Collector.
func (c healthCollector) Describe(ch chan<- *prometheus.Desc) { ch <- healthyDesc }

// Collect implements prometheus.Collector.
func (c healthCollector) Collect(ch chan<- prometheus.Metric) {
	for _, g := range c.upstreams.groups {
		all := map[string]bool{} // an address may be listed twice
		for address, healthy := range g.pool.Healthy {
			before, twice := all[address]
			all[address] = healthy && (before || !twice)
		}
		for address, healthy := range all {
			ch <- prometheus.MustNewConstMetric(healthyDesc, prometheus.GaugeValue, decide.OneIf(healthy), g.name, address)
		}
	}
}
