package edge

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/pkg/certs"
)

// secure wraps a listener that has certificates.
func secure(ln net.Listener, s *certs.Server) net.Listener {
	if s == nil {
		return ln
	}
	return tls.NewListener(ln, s.Config())
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
