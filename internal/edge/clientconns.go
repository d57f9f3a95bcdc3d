package edge

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
)

// clientConns bounds the open connections of all clients, and of each, so that one cannot
// take the place of others. Only clients with open connections have an entry.
type clientConns struct {
	config  *ServerConfig
	exempt  func(netip.Addr) bool // the proxies that speak for many clients
	log     *slog.Logger
	refused *prometheus.CounterVec
	sampler sampler
	all     atomic.Int64 // without those that have switched to another protocol

	mu   sync.Mutex
	open map[netip.Prefix]int
}

// Why a connection is refused: the field of server that bounds it.
const tooMany, tooManyOfOne = "max_connections", "max_connections_per_client"

// changed is a fasthttp.Server's ConnState.
func (c *clientConns) changed(_ net.Conn, state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew:
		c.all.Add(1)
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		c.all.Add(-1)
	}
}

// admit returns the connection if there is room for it, or why there is none.
func (c *clientConns) admit(conn *net.TCPConn, client netip.Addr) (admitted net.Conn, reason string) {
	switch {
	case c.all.Load() >= int64(c.config.MaxConnections):
		return nil, tooMany
	case c.config.MaxConnectionsPerClient == 0 || c.exempt(client):
		return conn, ""
	}
	network, ok := c.enter(client)
	if !ok {
		return nil, tooManyOfOne
	}
	return &countedConn{TCPConn: conn, leave: sync.OnceFunc(func() { c.leave(network) })}, ""
}

// enter counts a connection, or reports that its client has too many.
func (c *clientConns) enter(client netip.Addr) (network netip.Prefix, ok bool) {
	bits := 32
	if client.Is6() {
		bits = 64 // what one subscriber has at the least
	}
	network, _ = client.Prefix(bits) // of that family
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[network] >= c.config.MaxConnectionsPerClient {
		return network, false
	}
	c.open[network]++
	return network, true
}

func (c *clientConns) leave(network netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[network]--; c.open[network] == 0 {
		delete(c.open, network)
	}
}

// clientListener is the public listener, inside of TLS: fasthttp itself would answer 503 behind
// the handshake, and accept nobody else while it waits for that.
type clientListener struct {
	net.Listener
	clients *clientConns
}

// Accept returns the next connection for which there is room, and closes others.
func (l clientListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		conn, ok := c.(*net.TCPConn)
		if !ok {
			return c, err
		}
		client := addrOf(conn.RemoteAddr())
		admitted, reason := l.clients.admit(conn, client)
		if reason == "" {
			return admitted, nil
		}
		_ = conn.Close()
		l.clients.refused.WithLabelValues(reason).Inc()
		if skipped, ok := l.clients.sampler.sample(time.Now()); ok {
			l.clients.log.Info("connection refused", "limit", "server."+reason, "client", client, "not_logged", skipped)
		}
	}
}

// countedConn is a connection whose client has one less when it is closed.
type countedConn struct {
	*net.TCPConn
	leave func()
}

// Close closes the connection and makes room for another.
func (c *countedConn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}
