package listeners

import (
	"context"
	"errors"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/edge/authz"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/internal/edge/rls"
)

var errCalls = errors.New("shutdown.timeout has passed")

// rlsListener is the listener of Envoy's rate limit service and of its external authorization.
func rlsListener(c *Config, m *metrics) *listener {
	r, counts := c.Listen.RLS, newRLSMetrics(c.Registry)
	config := envoy.Config{
		Services: []envoy.Service{&rls.Service{
			Decider: c.Decider, Separate: r.Separate(), Headers: r.AnswerHeaders(), Legacy: c.LegacyHeaders,
			Done: func(o rls.Outcome, took time.Duration) {
				counts.calls[o].Inc()
				counts.seconds.Observe(took.Seconds())
			},
			Panicked: c.panicked("rate limit service panicked"),
		}},
		MaxMessage: rls.MaxMessage, Certified: r.Mutual(), From: r.Networks, Refused: func(why envoy.Refusal) { counts.refused[why].Inc() },
		Ready: c.Ready,
	}
	if r.Authorization {
		limit := c.Server.MaxHeaderBytes + AuthRequestBytes
		config.MaxMessage = authz.MaxMessage(limit)
		config.Services = append(config.Services, &authz.Service{
			Decider: c.Decider, Legacy: c.LegacyHeaders, MaxHeaders: limit, Answered: m.gateways("ext_authz"), Panicked: c.panicked("external authorization panicked"),
		})
	}
	if c.Certificates.RLS != nil {
		config.TLS, config.Failed = c.Certificates.RLS.Speaking("h2"), m.handshakes("rls")
	}
	var server *envoy.Server // it works from the beginning, so it is made once there is a port
	return &listener{
		name: "rls", answers: "calls of the rate limit service", address: r.Address, certificates: c.Certificates.RLS,
		opened: func(addr net.Addr) error {
			server = envoy.NewServer(config)
			c.Log.Info("serving Envoy's rate limit service", "rls", addr.String(), "authorization", r.Authorization)
			return nil
		},
		serve: func(ln net.Listener) error { return server.Serve(ln) },
		leave: func() { server.Leave() },
		drain: within(func(ctx context.Context) bool { return server.Drain(ctx) }),
		close: func() {
			if server != nil {
				server.Drain(context.Background()) // if it never served; otherwise it is drained
			}
		},
	}
}

// within returns an error for a server whose Drain reports whether all was answered in time.
func within(drain func(context.Context) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		if !drain(ctx) {
			return errCalls
		}
		return nil
	}
}

func (c *Config) panicked(message string) func(any) {
	return func(panicked any) {
		c.Log.Error(message, "panic", panicked, "stack", strings.TrimSpace(string(debug.Stack())))
		c.Panics.Inc()
	}
}
