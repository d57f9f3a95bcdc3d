package upstreams

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/metric"
)

var upstreamHealthy = metric.ReadGauge("weir_upstream_healthy",
	"1 while an upstream passes its health checks and does not rest after failures.", "upstream", "address")

// health exports which upstreams get requests.
func (u *Set) health(to chan<- prometheus.Metric) {
	for _, g := range u.Groups {
		all := map[string]bool{} // an address may be listed twice
		for address, healthy := range g.Pool.Healthy {
			before, twice := all[address]
			all[address] = healthy && (before || !twice)
		}
		for address, healthy := range all {
			upstreamHealthy.Send(to, metric.OneIf(healthy), g.Name, address)
		}
	}
}

type metrics struct {
	seconds     *prometheus.HistogramVec
	errors      *prometheus.CounterVec
	unsolicited prometheus.Counter
}

func newMetrics(r metric.Registry) *metrics {
	return &metrics{
		seconds:     r.Histograms("weir_upstream_seconds", "Time until an upstream's response header, in seconds, by upstream group.", prometheus.DefBuckets, "upstream"),
		errors:      r.Counters("weir_upstream_errors_total", "Failed attempts, by upstream group and kind: connect, timeout, broken, bad_response, unavailable, client (the client hung up or stalled), too_large, bad_request, unsupported.", "kind", "upstream"),
		unsolicited: r.Counter("weir_upstream_unasked_total", "Times an upstream sent bytes that belong to no request."),
	}
}
