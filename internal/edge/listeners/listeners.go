// Package listeners has the ports of a node, which all open, serve, drain, close and reload
// their certificates alike.
package listeners

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/bind"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/h2"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/certs"
)

// Config is what the listeners need of their node.
type Config struct {
	*config.Config
	Certificates config.Certificates
	Log          *slog.Logger
	Registry     metric.Registry
	Decider      *decide.Decider
	Panics       prometheus.Counter
	Ready        func() bool // there are rules, and the node is not draining

	Public *fasthttp.Server // for HTTP/1.1
	// Malformed answers an HTTP/2 request that has no form in HTTP/1.1, or for which there is no
	// room. Unreadable answers a gateway's request that could not be parsed.
	Malformed  func(*fasthttp.RequestCtx, error)
	Unreadable func(*fasthttp.RequestCtx, error)
	Admin      http.Handler
}

// timeouts are those of clients and gateways.
func (c *Config) timeouts() proxy.Timeouts {
	s := &c.Server
	return proxy.Timeouts{Idle: s.IdleTimeout, Read: s.ReadTimeout, Write: s.WriteTimeout}
}

// listener is one port.
type listener struct {
	name         string // its field of listen, and its label
	answers      string // what it answers, for the log
	address      string
	certificates *certs.Server                   // nil without TLS
	over         func(net.Listener) net.Listener // what is put over the port; nil: nothing
	opened       func(net.Addr) error            // nil: nothing
	serve        func(net.Listener) error        // until it is drained or closed
	leave        func()                          // asks callers to go elsewhere; nil: they cannot
	drain        func(ctx context.Context) error // finishes what it has begun to answer; nil: nothing
	close        func()                          // ends what serve has left; nil: nothing

	port  net.Listener // nil until it is open
	fault logs.Fault   // of its certificates
}

// Set is the listeners of a node.
type Set struct {
	Clients *Clients
	HTTP2   *h2.Server
	Peers   *Peers // nil without listen.peer

	config  Config
	metrics *metrics
	list    []*listener
}

// New prepares the listeners that the configuration names.
func New(c Config) (*Set, error) {
	m := newMetrics(c.Registry)
	c.Registry.Collect(c.expiries, certificateExpiry)
	s := &Set{config: c, metrics: m}
	public, err := s.public(&c, m)
	if err != nil {
		return nil, err
	}
	s.list = append(s.list, public, admin(&c, m))
	if c.Listen.Decide != nil {
		s.list = append(s.list, decideListener(&c, m))
	}
	if c.Listen.RLS != nil {
		s.list = append(s.list, rlsListener(&c, m))
	}
	if c.Listen.Peer != nil {
		peer, err := s.peer(&c, m)
		if err != nil {
			return nil, err
		}
		s.list = append(s.list, peer)
	}
	return s, nil
}

// Gateways returns what counts answers to gateways of a protocol.
func (s *Set) Gateways(protocol string) func(gateway.Answer, time.Duration) {
	return s.metrics.gateways(protocol)
}

// GatewayConns bounds the connections of another listener for gateways.
func (s *Set) GatewayConns(listener string, d *config.Decide, certificates *certs.Server, unauthenticated int, count func(gateway.Answer, time.Duration)) handshake.Config {
	return s.metrics.gatewayConns(&s.config, listener, d, certificates, unauthenticated, count)
}

// Open begins to listen on all ports, or on none.
func (s *Set) Open() error {
	for _, l := range s.list {
		if err := l.open(); err != nil {
			s.Close()
			return fmt.Errorf("listen.%s: %w", l.name, err)
		}
	}
	return nil
}

func (l *listener) open() (err error) {
	if l.port, err = bind.TCP(l.address); err != nil {
		return err
	}
	if l.over != nil {
		l.port = l.over(l.port)
	}
	if l.opened != nil {
		return l.opened(l.port.Addr())
	}
	return nil
}

// Addr returns the address of an open listener, by its field of listen.
func (s *Set) Addr(name string) net.Addr {
	for _, l := range s.list {
		if l.name == name {
			return l.port.Addr()
		}
	}
	return nil
}

// Serve answers on all ports. The channel gets the error of each that fails.
func (s *Set) Serve(wg *sync.WaitGroup) <-chan error {
	failed := make(chan error, len(s.list))
	for _, l := range s.list {
		wg.Go(func() {
			if err := l.serve(l.port); err != nil {
				failed <- err
			}
		})
	}
	return failed
}

// Leave asks callers that can to go elsewhere.
func (s *Set) Leave() {
	for _, l := range s.list {
		if l.leave != nil {
			l.leave()
		}
	}
}

// Drain finishes what the listeners have begun to answer, until ctx ends. The admin side goes
// on.
func (s *Set) Drain(ctx context.Context) {
	var rest sync.WaitGroup
	defer rest.Wait()
	for _, l := range s.list {
		if l.drain == nil {
			continue
		}
		rest.Go(func() {
			if err := l.drain(ctx); err != nil {
				s.config.Log.Warn(l.answers+" cut off", "error", err)
			} else if l.name == "public" {
				s.config.Log.Info("drained")
			}
		})
	}
}

// Close closes all ports. A server that is shut down before it serves does not close its own.
func (s *Set) Close() {
	for _, l := range s.list {
		if l.close != nil {
			l.close()
		}
		if l.port != nil {
			_ = l.port.Close()
		}
	}
}

// Reload reads the certificates that have changed.
func (s *Set) Reload() {
	for _, l := range s.list {
		if l.certificates != nil {
			l.fault.Report(s.config.Log, "reload certificate", l.certificates.Reload())
		}
	}
}
