package listeners

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/h2"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/rls"
)

// metrics are those of all listeners.
type metrics struct {
	registry           *prometheus.Registry
	connectionsRefused *prometheus.CounterVec
	handshakesFailed   *prometheus.CounterVec
	gatewayAnswers     *prometheus.CounterVec
	gatewaySeconds     *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	auto := promauto.With(registry)
	m := &metrics{
		registry: registry,
		connectionsRefused: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_connections_refused_total", Help: "Client connections refused, by the field of server or listen that bounds them.",
		}, []string{"reason"}),
		handshakesFailed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_tls_handshakes_failed_total", Help: "TLS handshakes that failed, by listener and reason.",
		}, []string{"listener", "reason"}),
		gatewayAnswers: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_gateway_answers_total", Help: "Answers to gateways that asked whether a request may pass, by protocol.",
		}, []string{"protocol", "answer"}),
		gatewaySeconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_gateway_seconds", Help: "Time from a gateway's question to the answer, in seconds, by protocol.", Buckets: decide.SecondsBuckets,
		}, []string{"protocol"}),
	}
	for _, reason := range [...]string{tooMany, tooManyOfOne, badHeader} { // start at 0, so that the first refusal is an increase
		m.connectionsRefused.WithLabelValues(reason)
	}
	return m
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

// gateways returns the function that counts answers to gateways of a protocol.
func (m *metrics) gateways(protocol string) func(gateway.Answer, time.Duration) {
	var answers [gateway.Answers]prometheus.Counter
	for a := range gateway.Answers { // start at 0, so that the first one is an increase
		answers[a] = m.gatewayAnswers.WithLabelValues(protocol, a.String())
	}
	seconds := m.gatewaySeconds.WithLabelValues(protocol)
	return func(a gateway.Answer, took time.Duration) {
		answers[a].Inc()
		if took > 0 {
			seconds.Observe(took.Seconds())
		}
	}
}

// http2Refused returns the function that counts refused connections and streams.
func (m *metrics) http2Refused() func(h2.Reason) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_http2_refused_total", Help: "HTTP/2 connections closed because of a flood of frames, and streams refused, by reason.",
	}, []string{"reason"})
	m.registry.MustRegister(refused)
	counts := map[h2.Reason]prometheus.Counter{}
	for r := range h2.Reasons { // start at 0, so that the first one is an increase
		counts[r] = refused.WithLabelValues(r.String())
	}
	return func(r h2.Reason) { counts[r].Inc() }
}

// http2Active exports open connections and requests.
func (m *metrics) http2Active(s *h2.Server) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_http2_connections", Help: "Open connections that speak HTTP/2."},
			func() float64 { return float64(s.Connections()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_http2_streams", Help: "HTTP/2 requests in progress."},
			func() float64 { return float64(s.Streams()) }))
}

type rlsMetrics struct {
	calls   [len(rls.Outcomes)]prometheus.Counter
	seconds prometheus.Histogram
	refused [envoy.Refusals]prometheus.Counter
}

func newRLSMetrics(registry *prometheus.Registry) *rlsMetrics {
	m := &rlsMetrics{}
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_rls_calls_total", Help: "Calls of Envoy's rate limit service, by outcome.",
	}, []string{"outcome"})
	for i, name := range rls.Outcomes {
		m.calls[i] = calls.WithLabelValues(name)
	}
	m.seconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "weir_rls_call_seconds", Help: "Time to answer a call of Envoy's rate limit service, in seconds.", Buckets: decide.SecondsBuckets,
	})
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_rls_connections_refused_total", Help: "Connections to listen.rls closed because of a bound, by reason.",
	}, []string{"reason"})
	for why := range envoy.Refusals { // start at 0, so that the first one is an increase
		m.refused[why] = refused.WithLabelValues(why.String())
	}
	registry.MustRegister(calls, m.seconds, refused)
	return m
}
