package upstreams

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-edge/weir/internal/edge/decide"
)

// healthCollector exports which upstreams get requests.
type healthCollector struct{ set *Set }

var healthyDesc = prometheus.NewDesc("weir_upstream_healthy",
	"1 while an upstream passes its health checks and is not resting after failures, 0 while others of its group get its requests.",
	[]string{"upstream", "address"}, nil)

// Describe implements prometheus.Collector.
func (c healthCollector) Describe(ch chan<- *prometheus.Desc) { ch <- healthyDesc }

// Collect implements prometheus.Collector.
func (c healthCollector) Collect(ch chan<- prometheus.Metric) {
	for _, g := range c.set.Groups {
		all := map[string]bool{} // an address may be listed twice
		for address, healthy := range g.Pool.Healthy {
			before, twice := all[address]
			all[address] = healthy && (before || !twice)
		}
		for address, healthy := range all {
			ch <- prometheus.MustNewConstMetric(healthyDesc, prometheus.GaugeValue, decide.OneIf(healthy), g.Name, address)
		}
	}
}

type metrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	unasked prometheus.Counter
}

func newMetrics(registry *prometheus.Registry) *metrics {
	auto := promauto.With(registry)
	return &metrics{
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_upstream_seconds", Help: "Time until an upstream's response headers, in seconds, by upstream group.", Buckets: prometheus.DefBuckets,
		}, []string{"upstream"}),
		errors:  auto.NewCounterVec(prometheus.CounterOpts{Name: "weir_upstream_errors_total", Help: "Attempts that an upstream did not answer, by kind and upstream group."}, []string{"kind", "upstream"}),
		unasked: auto.NewCounter(prometheus.CounterOpts{Name: "weir_upstream_unasked_total", Help: "Times an upstream sent bytes that no request asked for."}),
	}
}

// upgraded exports how many connections have switched to another protocol.
func (u *Set) upgraded(registry *prometheus.Registry) {
	promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_upgrades_active", Help: "Connections that have switched to another protocol, such as WebSocket.",
	}, func() float64 { return float64(u.Tunnels()) })
}
