package peer

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

// Bounds of a listener.
const (
	maxConnections = 4096
	maxOfPeer      = 16 // connections of one certificate's identity from one address
	maxStrangers   = 64 // connections of one address that have not presented a certificate yet
	maxAllStranger = 512
)

var errTooManyConnections = errors.New("too many connections of this peer")

// gate counts connections, before and after they have been identified.
type gate struct {
	mu        sync.Mutex
	open      int
	strangers map[netip.Addr]int
	peers     map[string]int
	unknown   int // sum of strangers
}

func newGate() *gate { return &gate{strangers: map[netip.Addr]int{}, peers: map[string]int{}} }

// listener drops connections beyond the bounds.
type listener struct {
	net.Listener
	gate    *gate
	refused func()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if own := l.gate.enter(c); own != nil {
			return own, nil
		}
		l.refused()
		_ = c.Close()
	}
}

// conn is a connection that the gate counts.
type conn struct {
	net.Conn
	gate *gate
	addr netip.Addr
	peer string // "" until it is known
	done bool
}

func (g *gate) enter(c net.Conn) *conn {
	own := &conn{Conn: c, gate: g, addr: addrOf(c.RemoteAddr())}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= maxConnections || g.unknown >= maxAllStranger || g.strangers[own.addr] >= maxStrangers {
		return nil
	}
	g.open++
	g.unknown++
	g.strangers[own.addr]++
	return own
}

// identify moves the connection to its peer's count.
func (c *conn) identify(peer string) error {
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	key := peer + " " + c.addr.String()
	if c.done || c.peer != "" {
		return nil
	}
	if g.peers[key] >= maxOfPeer {
		return errTooManyConnections
	}
	g.leave(c)
	c.peer = key
	g.peers[key]++
	return nil
}

// leave removes a connection from the count that includes it.
func (g *gate) leave(c *conn) {
	if c.peer != "" {
		if g.peers[c.peer]--; g.peers[c.peer] == 0 {
			delete(g.peers, c.peer)
		}
		return
	}
	g.unknown--
	if g.strangers[c.addr]--; g.strangers[c.addr] == 0 {
		delete(g.strangers, c.addr)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.gate.mu.Lock()
	if !c.done {
		c.done = true
		c.gate.leave(c)
		c.gate.open--
	}
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// addrOf returns a peer's address; for IPv6, its /64.
func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	if ip.Is6() {
		ip = netip.PrefixFrom(ip.WithZone(""), 64).Masked().Addr()
	}
	return ip
}

// room tracks the memory that messages in progress may take, in total and per region, and
// how many messages a node may have in progress.
type room struct {
	mu     sync.Mutex
	all    int
	region map[string]int
	node   map[string]int
}

// Bounds of the messages in progress.
const (
	maxRoom       = 64 << 20
	maxRegionRoom = maxRoom / 2
	maxOfNode     = 8
)

func newRoom() *room { return &room{region: map[string]int{}, node: map[string]int{}} }

// begin counts a node's message; it reports false if there are too many.
func (r *room) begin(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node[node] >= maxOfNode {
		return false
	}
	r.node[node]++
	return true
}

func (r *room) end(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node[node]--; r.node[node] == 0 {
		delete(r.node, node)
	}
}

// take reserves memory for a region's message; it reports false if there is none.
func (r *room) take(region string, bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all+bytes > maxRoom || r.region[region]+bytes > maxRegionRoom {
		return false
	}
	r.all += bytes
	r.region[region] += bytes
	return true
}

func (r *room) give(region string, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all -= bytes
	if r.region[region] -= bytes; r.region[region] == 0 {
		delete(r.region, region)
	}
}
