package listeners

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/h2"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/rls"
	"github.com/weir-edge/weir/internal/metric"
)

// metrics are those of all listeners.
type metrics struct {
	registry           metric.Registry
	connectionsRefused *prometheus.CounterVec
	handshakesFailed   *prometheus.CounterVec
	gatewayAnswers     *prometheus.CounterVec
	gatewaySeconds     *prometheus.HistogramVec
}

func newMetrics(r metric.Registry) *metrics {
	m := &metrics{
		registry:           r,
		connectionsRefused: r.Counters("weir_connections_refused_total", "Client connections refused by a field of server (max_connections, max_connections_per_client), or without a valid PROXY header (proxy_protocol).", "reason"),
		handshakesFailed:   r.Counters("weir_tls_handshakes_failed_total", "TLS handshakes that failed, by listener (public, admin, decide, spoe, rls, peer) and reason (timeout, closed, certificate, rejected, protocol).", "listener", "reason"),
		gatewayAnswers:     r.Counters("weir_gateway_answers_total", "Answers to gateways, by protocol (http, ext_authz, spoe) and answer (pass, limited, shed, failed, malformed, unauthenticated, blocked).", "protocol", "answer"),
		gatewaySeconds:     r.Histograms("weir_gateway_seconds", "Time from a gateway's request to the answer, in seconds, by protocol.", decide.SecondsBuckets, "protocol"),
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

var certificateExpiry = metric.ReadGauge("weir_certificate_expiry_seconds", "When a listener's certificate expires, in Unix seconds; absent without TLS.", "listener", "file")

// expiries exports when certificates expire. A file that is named twice has one series.
func (c *Config) expiries(to chan<- prometheus.Metric) {
	seen := map[string]bool{}
	c.Certificates.Each(func(listener, file string, expires time.Time) {
		if key := listener + file; !seen[key] {
			seen[key] = true
			certificateExpiry.Send(to, float64(expires.Unix()), listener, file)
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
	refused := m.registry.Counters("weir_http2_refused_total", "HTTP/2 connections closed for a flood of frames, by kind: resets, control_frames, window_updates, empty_data, closed_streams, continuations, protocol, slow_headers. streams: requests answered 503 because server.max_connections streams were open.", "reason")
	counts := map[h2.Reason]prometheus.Counter{}
	for r := range h2.Reasons { // start at 0, so that the first one is an increase
		counts[r] = refused.WithLabelValues(r.String())
	}
	return func(r h2.Reason) { counts[r].Inc() }
}

// http2Active exports open connections and requests.
func (m *metrics) http2Active(s *h2.Server) {
	m.registry.GaugeFunc("weir_http2_connections", "Open client connections that speak HTTP/2.", func() float64 { return float64(s.Connections()) })
	m.registry.GaugeFunc("weir_http2_streams", "HTTP/2 requests in progress.", func() float64 { return float64(s.Streams()) })
}

type rlsMetrics struct {
	calls   [len(rls.Outcomes)]prometheus.Counter
	seconds prometheus.Observer
	refused [envoy.Refusals]prometheus.Counter
}

func newRLSMetrics(r metric.Registry) *rlsMetrics {
	m := &rlsMetrics{seconds: r.Histogram("weir_rls_call_seconds", "Time to answer a call of Envoy's rate limit service, in seconds.", decide.SecondsBuckets)}
	calls := r.Counters("weir_rls_calls_total", "Calls of Envoy's rate limit service, by outcome: ok, over_limit, invalid (the caller's fault), unavailable (no rules yet), failed, canceled (ended before their message was read).", "outcome")
	for i, name := range rls.Outcomes {
		m.calls[i] = calls.WithLabelValues(name)
	}
	refused := r.Counters("weir_rls_connections_refused_total", "Connections to listen.rls closed, by reason: full, unauthenticated, memory, flood.", "reason")
	for why := range envoy.Refusals { // start at 0, so that the first one is an increase
		m.refused[why] = refused.WithLabelValues(why.String())
	}
	return m
}
