package listeners

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/logs"
)

// Clients bounds the open connections of all clients, and of each, so that no client
// can take the others' place. Only clients with open connections have an entry.
type Clients struct {
	config    *config.Server
	balancers []netip.Prefix        // whose connections begin with a PROXY header
	exempt    func(netip.Addr) bool // the proxies that speak for many clients
	log       *slog.Logger
	refused   *prometheus.CounterVec
	all       atomic.Int64 // without those that have switched to another protocol

	sampler, headerSampler logs.Sampler

	mu   sync.Mutex
	open map[netip.Prefix]int
}

// Open returns how many connections are open, and how many of them a client has.
func (c *Clients) Open(of netip.Prefix) (all int64, own int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.Load(), c.open[of]
}

// The reasons for refusing a connection: the field of server that bounds it, or of listen.
const tooMany, tooManyOfOne, badHeader = "max_connections", "max_connections_per_client", "proxy_protocol"

// changed is a fasthttp.Server's ConnState.
func (c *Clients) changed(_ net.Conn, state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew:
		c.all.Add(1)
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		c.all.Add(-1)
	}
}

// admit returns the connection if there is room for it, else nil.
func (c *Clients) admit(conn *net.TCPConn) net.Conn {
	peer := proxy.AddrOf(conn.RemoteAddr())
	counted := countedConn{TCPConn: conn, clients: c}
	switch {
	case c.all.Load() >= int64(c.config.MaxConnections):
		c.refuse(tooMany, peer)
		return nil
	case slices.ContainsFunc(c.balancers, func(p netip.Prefix) bool { return p.Contains(peer) }):
		return &balancedConn{countedConn: counted, header: newProxyHeader()}
	case c.config.MaxConnectionsPerClient == 0:
		return conn
	case !c.enter(&counted, peer):
		c.refuse(tooManyOfOne, peer)
		return nil
	}
	return &counted
}

// enter counts a connection, or reports that its client has too many.
func (c *Clients) enter(conn *countedConn, client netip.Addr) bool {
	if c.config.MaxConnectionsPerClient == 0 || c.exempt(client) {
		return true
	}
	bits := 32
	if client.Is6() {
		bits = 64 // what one subscriber has at least
	}
	network, _ := client.Prefix(bits) // of that family
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.closed {
		return true
	}
	if c.open[network] >= c.config.MaxConnectionsPerClient {
		return false
	}
	c.open[network]++
	conn.network = network
	return true
}

func (c *Clients) leave(conn *countedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if network := conn.network; network.IsValid() && !conn.closed {
		if c.open[network]--; c.open[network] == 0 {
			delete(c.open, network)
		}
	}
	conn.closed = true
}

// refuse counts and logs a connection for which there is no room.
func (c *Clients) refuse(limit string, client netip.Addr) {
	c.refused.WithLabelValues(limit).Inc()
	if skipped, ok := c.sampler.Sample(time.Now()); ok {
		c.log.Info("connection refused", "limit", "server."+limit, "client", client, "not_logged", skipped)
	}
}

// refuseHeader counts and logs a balancer's connection without a valid PROXY header.
func (c *Clients) refuseHeader(balancer net.Addr, fault error) {
	c.refused.WithLabelValues(badHeader).Inc()
	if skipped, ok := c.headerSampler.Sample(time.Now()); ok {
		c.log.Warn("PROXY header refused", "balancer", proxy.AddrOf(balancer), "error", fault, "not_logged", skipped)
	}
}

// clientListener is the public listener, beneath TLS: fasthttp itself would answer 503
// after the handshake, and accept no one else while it waits for that.
type clientListener struct {
	*net.TCPListener
	clients *Clients
}

// Accept returns the next connection for which there is room, and closes others.
func (l clientListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if admitted := l.clients.admit(conn); admitted != nil {
			return admitted, nil
		}
		_ = conn.Close()
	}
}

// countedConn is a connection that counts against its client until it is closed.
type countedConn struct {
	*net.TCPConn
	clients *Clients

	network netip.Prefix // the network it counts for, if valid; closed is guarded by clients.mu
	closed  bool
}

// Close closes the connection and makes room for another.
func (c *countedConn) Close() error {
	defer c.clients.leave(c)
	return c.TCPConn.Close()
}
