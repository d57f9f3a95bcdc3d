package edge

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/proxy"
)

// gateways is the listener where gateways ask; nil without listen.decide.
type gateways struct {
	server *fasthttp.Server
	ln     *handshake.Listener
}

// openGateways listens for gateways.
func (e *Edge) openGateways() (*gateways, error) {
	d := e.config.Listen.Decide
	if d == nil {
		return nil, nil
	}
	ln, err := net.Listen("tcp", d.Address)
	if err != nil {
		return nil, fmt.Errorf("listen.decide: %w", err)
	}
	count := e.metrics.gateways("http")
	s := &e.config.Server
	config := gateway.Config{Decider: &e.decider, From: d.Gateways, Legacy: e.config.LegacyHeaders, MaxHeaders: s.MaxHeaderBytes + questionBytes,
		Log: e.log, Asked: count, Panicked: e.metrics.panics.Inc}
	if d.TLS != nil && d.TLS.ClientCAFile != "" {
		config.Certificates = e.files.Decide
	}
	conns := handshake.Listen(ln, e.gatewayConns("decide", d, e.files.Decide, maxStrangers, count))
	server := &fasthttp.Server{
		Handler: gateway.New(config).Serve,
		ErrorHandler: func(ctx *fasthttp.RequestCtx, err error) {
			if proxy.Begun(ctx.Conn()) {
				count(gateway.Malformed, 0)
			}
			answerUnreadable(ctx, err)
		},
		Name:                         "weir",
		NoDefaultServerHeader:        true,
		Concurrency:                  2 * (s.MaxConnections + maxStrangers), // never reached: conns counts
		ReadBufferSize:               max(config.MaxHeaders, readableBytes),
		MaxRequestBodySize:           1, // 0 would be the default; a question has none
		DisablePreParseMultipartForm: true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		SecureErrorLogMessage:        true,
		Logger:                       quiet{},
	}
	return &gateways{server, conns}, nil
}

// questionBytes is the room for what gateways add to a client's headers, such as a second
// copy of the target, which the public listener bounds as part of the header.
const questionBytes = 8 << 10

// readableBytes is the longest question that is read and answered, even if with 431. If the
// connection were closed in the middle of a question, a gateway would see a node that does
// not answer, and might let the request pass. nginx sends at most 40 KiB with its usual
// buffers; GATEWAYS bounds the others.
const readableBytes = 64 << 10

// serve answers until shutdown.
func (g *gateways) serve(e *Edge) error {
	return g.server.Serve(timeouts(&e.config.Server).Listen(g.ln))
}

// shutdown finishes the questions already received.
func (g *gateways) shutdown(ctx context.Context) error {
	if g == nil {
		return nil
	}
	err := g.server.ShutdownWithContext(ctx)
	g.close()
	return err
}

func (g *gateways) close() {
	if g != nil {
		_ = g.ln.Close() // shutdown before Serve has begun does not close the listener
	}
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
