package edge

import (
	"crypto/tls"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/h2"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/proxy"
)

// listenHTTP returns the public listener for fasthttp.
func (e *Edge) listenHTTP(ln net.Listener) net.Listener {
	c, s, within := &e.config.Listen.HTTP2, e.files.Public, timeouts(&e.config.Server)
	switch {
	case s == nil && c.H2C:
		return within.ListenClear(ln)
	case s == nil:
		return within.Listen(ln)
	}
	config := s.Config()
	if c.TLS {
		config = s.Speaking(h2.Protocol, "http/1.1")
	}
	count := e.metrics.handshakes("public")
	return within.ListenTLS(ln, config, func(c *tls.Conn, err error) {
		if why, ok := handshake.ReasonOf(c, err); ok {
			count(why)
		}
	})
}

// openHTTP2 makes server hand over the connections that speak HTTP/2.
func (e *Edge) openHTTP2(server *fasthttp.Server) error {
	s := &e.config.Server
	refused := e.metrics.http2Refused()
	var err error
	e.http2, err = h2.New(h2.Config{
		Serve: e.serve, Malformed: e.malformed, Refused: refused,
		MaxStreams: e.config.Listen.HTTP2.MaxStreams, MaxStreamsAll: s.MaxConnections, MaxHeaderBytes: s.MaxHeaderBytes,
		ReadTimeout: s.ReadTimeout, WriteTimeout: s.WriteTimeout, IdleTimeout: s.IdleTimeout,
		StreamTimeout: 2*e.config.Upstream.Timeout + s.WriteTimeout,
	})
	if err != nil {
		return err
	}
	e.metrics.http2Active(e.http2)
	server.NextProto(h2.Protocol, func(c net.Conn) error {
		bare, prefaced := proxy.Bare(c)
		e.http2.ServeConn(bare, prefaced)
		return nil
	})
	return nil
}

// malformed answers an HTTP/2 request that has no form in HTTP/1.1, or for which there is
// no room.
func (e *Edge) malformed(ctx *fasthttp.RequestCtx, err error) {
	status := fasthttp.StatusServiceUnavailable
	if h2.IsFull(err) {
		ctx.SetStatusCode(status)
		ctx.Response.Header.SetContentTypeBytes(problemJSON)
		ctx.Response.Header.SetCanonical(headerRetryAfter, []byte("1"))
		ctx.Response.SetBodyRaw(decide.Problem(status, "Too many requests are open", ""))
	} else {
		status = answerUnreadable(ctx, err)
	}
	e.metrics.requests[status/100].Inc()
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
