package envoy

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/peer"

	"github.com/weir-edge/weir/internal/edge/proxy"
)

// listener returns connections that closeUnread can close.
type listener struct {
	net.Listener
	server *Server
}

func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, server: l.server}
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	l.server.conns[c] = struct{}{}
	return c, nil
}

// closeUnread closes the connections whose write has waited too long for the caller to read.
func (v *Server) closeUnread() {
	oldest := v.ticks.Load() - int64(v.config.writeTime/healthInterval)
	v.mu.Lock()
	var unread []*conn
	for c := range v.conns {
		if begun := c.begun.Load(); begun > 0 && begun < oldest {
			unread = append(unread, c)
		}
	}
	v.mu.Unlock()
	for _, c := range unread {
		_ = c.Close()
	}
}

// conn is one of the server's connections until it is closed. Deadlines would bound its writes,
// too, but cost more.
type conn struct {
	net.Conn
	server  *Server
	begun   atomic.Int64 // the tick at which the write in progress began; 0: there is none
	writing sync.Mutex   // held during a write
	ahead   int          // bytes that were read during one write
}

// Read implements net.Conn. During a write it takes maxAhead bytes and then waits, because gRPC
// keeps what it must answer or account for.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.begun.Load() == 0 {
		c.ahead = 0
		return n, err
	}
	if c.ahead += n; c.ahead > maxAhead {
		c.writing.Lock()
		c.ahead = 0
		c.writing.Unlock()
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.begun.Store(c.server.ticks.Load())
	defer c.begun.Store(0)
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}

// Peer returns the address of a call's other end.
func Peer(ctx context.Context) netip.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return proxy.AddrOf(p.Addr)
	}
	return netip.Addr{}
}
