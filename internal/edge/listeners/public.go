package listeners

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"

	"github.com/weir-edge/weir/internal/edge/h2"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/proxy"
)

// public is the listener for clients.
func (s *Set) public(c *Config, m *metrics) (*listener, error) {
	server := c.Public
	s.Clients = &Clients{
		config: &c.Server, balancers: c.Listen.Balancers, exempt: c.Decider.Trusts,
		log: c.Log, refused: m.connectionsRefused, open: map[netip.Prefix]int{},
	}
	server.ConnState = s.Clients.changed
	var err error
	s.HTTP2, err = h2.New(h2.Config{
		Serve: server.Handler, Malformed: c.Malformed, Refused: m.http2Refused(),
		MaxStreams: c.Listen.HTTP2.MaxStreams, MaxStreamsAll: c.Server.MaxConnections, MaxHeaderBytes: c.Server.MaxHeaderBytes,
		ReadTimeout: c.Server.ReadTimeout, WriteTimeout: c.Server.WriteTimeout, IdleTimeout: c.Server.IdleTimeout,
		StreamTimeout: 2*c.Upstream.Timeout + c.Server.WriteTimeout,
	})
	if err != nil {
		return nil, err
	}
	m.http2Active(s.HTTP2)
	server.NextProto(h2.Protocol, func(conn net.Conn) error {
		bare, prefaced := proxy.UnwrapForNextProto(conn)
		s.HTTP2.ServeConn(bare, prefaced, c.Decider.Trusts(proxy.AddrOf(bare.RemoteAddr())))
		return nil
	})
	var ln *proxy.Listener
	return &listener{
		name: "public", answers: "requests", address: c.Listen.Public, certificates: c.Certificates.Public,
		over: func(port net.Listener) net.Listener {
			ln = c.overPublic(clientListener{port.(*net.TCPListener), s.Clients}, m)
			return ln
		},
		serve: server.Serve,
		leave: func() { ln.Leave() },
		drain: func(ctx context.Context) error {
			drained := make(chan struct{})
			go func() { s.HTTP2.Drain(); close(drained) }()
			err := ln.Drain(ctx)
			s.HTTP2.Close()
			<-drained
			return err
		},
	}, nil
}

// overPublic is what fasthttp accepts connections from.
func (c *Config) overPublic(ln net.Listener, m *metrics) *proxy.Listener {
	certificates, within := c.Certificates.Public, c.timeouts()
	switch {
	case certificates == nil && c.Listen.HTTP2.H2C:
		return within.ListenClear(ln)
	case certificates == nil:
		return within.Listen(ln)
	}
	config := certificates.Config()
	if c.Listen.HTTP2.TLS {
		config = certificates.Speaking(h2.Protocol, "http/1.1")
	}
	count := m.handshakes("public")
	return within.ListenTLS(ln, config, func(c *tls.Conn, err error) {
		if why, ok := handshake.ReasonOf(c, err); ok {
			count(why)
		}
	})
}
