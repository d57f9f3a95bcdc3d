package edge

import (
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/httpconns"
)

// listenAdmin returns the admin listener. httpconns bounds the connections whose handshake is
// complete.
func (e *Edge) listenAdmin(ln net.Listener) net.Listener {
	if e.files.Admin == nil {
		return ln
	}
	return handshake.Listen(ln, handshake.Config{
		TLS: e.files.Admin.Config(), Callers: 2 * httpconns.Most, Pending: httpconns.Max,
		Knows:   func(netip.Addr, *tls.ConnectionState) (func(), bool) { return nil, true },
		Refused: func(handshake.Refusal) {}, Failed: e.metrics.handshakes("admin"),
	})
}

// handshakes returns the function that counts a listener's failed handshakes.
func (m *metrics) handshakes(listener string) func(handshake.Reason) {
	var failed [handshake.Reasons]prometheus.Counter
	for why := range handshake.Reasons { // start at 0, so that the first one is an increase
		failed[why] = m.handshakesFailed.WithLabelValues(listener, why.String())
	}
	return func(why handshake.Reason) { failed[why].Inc() }
}

var certificateExpiry = prometheus.NewDesc("weir_certificate_expiry_seconds",
	"When a listener's certificate expires, in Unix seconds.", []string{"listener", "file"}, nil)

// certificateMetrics are those of all listeners.
type certificateMetrics struct{ config.Certificates }

// Describe implements prometheus.Collector.
func (s certificateMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- certificateExpiry }

// Collect implements prometheus.Collector. A file that is named twice has one series.
func (s certificateMetrics) Collect(ch chan<- prometheus.Metric) {
	seen := map[string]bool{}
	s.Each(func(listener, file string, expires time.Time) {
		if key := listener + file; !seen[key] {
			seen[key] = true
			ch <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(expires.Unix()), listener, file)
		}
	})
}
