package listeners

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/certs"
)

// maxUnauthenticated is how many unauthenticated connections to listen.decide may be open: enough to
// tell a gateway that is missing in from, or has no certificate, what to do.
const maxUnauthenticated = 64

// AuthRequestBytes is the room for what gateways add to a client's headers, such as a second
// copy of the target, which the public listener bounds as part of the header.
const AuthRequestBytes = 8 << 10

// readableBytes is the longest request that is read and answered, even if with 431. If the
// connection were closed in the middle of a request, a gateway would see a node that does
// not answer, and might let the request pass. nginx sends at most 40 KiB with its usual
// buffers; GATEWAYS bounds the others.
const readableBytes = 64 << 10

// decideListener is the listener where gateways ask over HTTP.
func decideListener(c *Config, m *metrics) *listener {
	d, count := c.Listen.Decide, m.gateways("http")
	cfg := gateway.Config{Decider: c.Decider, From: d.Gateways, Legacy: c.LegacyHeaders, MaxHeaders: c.Server.MaxHeaderBytes + AuthRequestBytes,
		Log: c.Log, Answered: count, Panicked: c.Panics.Inc}
	if d.TLS != nil && d.TLS.ClientCAFile != "" {
		cfg.Certificates = c.Certificates.Decide
	}
	handler := gateway.New(cfg)
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			handler.Serve(ctx)
			proxy.CloseUnlessReusable(ctx, true)
		},
		ErrorHandler: func(ctx *fasthttp.RequestCtx, err error) {
			if proxy.HasReceivedBytes(ctx.Conn()) {
				count(gateway.Malformed, 0)
			}
			c.Unreadable(ctx, err)
		},
		Name:                         "weir",
		NoDefaultServerHeader:        true,
		Concurrency:                  2 * (c.Server.MaxConnections + maxUnauthenticated), // never reached: gatewayConns counts
		ReadBufferSize:               max(cfg.MaxHeaders, readableBytes),
		MaxRequestBodySize:           1, // 0 would be the default; an authorization request has none
		DisablePreParseMultipartForm: true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		Logger:                       Quiet{},
	}
	var ln *proxy.Listener
	return &listener{
		name: "decide", answers: "requests of gateways", address: d.Address, certificates: c.Certificates.Decide,
		over: func(port net.Listener) net.Listener {
			ln = c.timeouts().Listen(handshake.Listen(port, m.gatewayConns(c, "decide", d, c.Certificates.Decide, maxUnauthenticated, count)))
			return ln
		},
		serve: server.Serve,
		leave: func() { ln.Leave() },
		drain: func(ctx context.Context) error { return ln.Drain(ctx) },
	}
}

// gatewayConns bounds connections, so that unauthenticated ones do not use up those reserved for
// gateways that from and client_ca_file describe.
func (m *metrics) gatewayConns(c *Config, listener string, d *config.Decide, s *certs.Server, unauthenticated int, count func(gateway.Answer, time.Duration)) handshake.Config {
	h := handshake.Config{
		From: d.Gateways, Callers: c.Server.MaxConnections, Unauthenticated: unauthenticated,
		Refused: func(why handshake.Refusal) {
			if why == handshake.Unauthenticated {
				count(gateway.Unauthenticated, 0)
			} else {
				count(gateway.Failed, 0)
			}
		},
	}
	if s == nil {
		return h
	}
	h.TLS, h.Failed = s.Config(), m.handshakes(listener)
	if d.TLS.ClientCAFile != "" {
		h.Identify = func(_ netip.Addr, state *tls.ConnectionState) (func(), bool) { return nil, s.Vouches(state) }
	}
	return h
}

// Quiet drops fasthttp's log line for every client that disconnects.
type Quiet struct{}

// Printf implements fasthttp.Logger.
func (Quiet) Printf(string, ...any) {}
