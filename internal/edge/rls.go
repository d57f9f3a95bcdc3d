package edge

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/authz"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/internal/edge/rls"
)

// rlsServer is the listener of Envoy's rate limit service; the zero value has none.
type rlsServer struct {
	listener net.Listener
	server   *envoy.Server
}

// openRLS listens, if the configuration says so.
func (e *Edge) openRLS() (s rlsServer, err error) {
	c := e.config.Listen.RLS
	if c == nil {
		return s, nil
	}
	if s.listener, err = net.Listen("tcp", c.Address); err != nil {
		return s, fmt.Errorf("listen.rls.address: %w", err)
	}
	m := newRLSMetrics(e.metrics.registry)
	service := &rls.Service{
		Decider: &e.decider, Separate: c.Separate(), Headers: c.AnswerHeaders(), Legacy: e.config.LegacyHeaders,
		Done: func(o rls.Outcome, took time.Duration) {
			m.calls[o].Inc()
			m.seconds.Observe(took.Seconds())
		},
		Panicked: e.envoyPanicked("rate limit service panicked"),
	}
	config := envoy.Config{
		Services: []envoy.Service{service}, MaxMessage: rls.MaxMessage, Certified: c.Mutual(), From: c.Networks, Refused: func(why envoy.Refusal) { m.refused[why].Inc() },
		Ready: func() bool { return e.rules.running.Load() != nil && !e.draining.Load() },
	}
	if c.Authorization {
		limit := e.config.Server.MaxHeaderBytes + questionBytes
		config.MaxMessage = authz.MaxMessage(limit)
		config.Services = append(config.Services, &authz.Service{
			Decider: &e.decider, Legacy: e.config.LegacyHeaders, MaxHeaders: limit, Asked: e.metrics.gateways("ext_authz"), Panicked: e.envoyPanicked("external authorization panicked"),
		})
	}
	if e.files.Certificates.RLS != nil {
		config.TLS, config.Failed = e.files.Certificates.RLS.Speaking("h2"), e.metrics.handshakes("rls")
	}
	s.server = envoy.NewServer(config)
	e.log.Info("serving Envoy's rate limit service", "rls", s.listener.Addr().String(), "authorization", c.Authorization)
	return s, nil
}

func (e *Edge) envoyPanicked(message string) func(any) {
	return func(panicked any) {
		e.log.Error(message, "panic", panicked, "stack", strings.TrimSpace(string(debug.Stack())))
		e.metrics.panics.Inc()
	}
}

// serve answers calls until drain.
func (s rlsServer) serve() error {
	if s.server == nil {
		return nil
	}
	return s.server.Serve(s.listener)
}

// leave sends clients elsewhere, and drain lets the last calls finish.
func (s rlsServer) leave() {
	if s.server != nil {
		s.server.Leave()
	}
}

func (s rlsServer) drain(ctx context.Context) bool {
	return s.server == nil || s.server.Drain(ctx)
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
		Name: "weir_rls_call_seconds", Help: "Time to answer a call of Envoy's rate limit service, in seconds.", Buckets: decisionBuckets,
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
