package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/lazy"
	"github.com/weir-edge/weir/internal/edge/turns"
)

const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

func outOfRoom(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Accept returns the next connection. When the process or the machine has no room for one,
// it waits: servers would take that error for the end of the listener, and a flood of
// connections would stop them.
func Accept(ln net.Listener) (net.Conn, error) {
	c, err := ln.Accept()
	for pause := minAcceptPause; err != nil && outOfRoom(err); pause = min(2*pause, maxAcceptPause) {
		time.Sleep(pause)
		c, err = ln.Accept()
	}
	return c, err
}

// Accept wraps the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := Accept(l.Listener)
	if err != nil {
		l.limits.close()
		l.end.Do(func() { close(l.ended) })
		return nil, err
	}
	var client interface {
		net.Conn
		ender
	}
	if tc, ok := c.(*tls.Conn); ok {
		client = &tlsClientConn{clientConn: clientConn{Conn: tc, readWrites: true}, tls: tc, failed: l.failed}
	} else if l.bothProtocols {
		first := &firstBytes{Conn: c}
		client = &prefaceConn{clientConn: clientConn{Conn: &lazy.Conn{Conn: first}}, first: first}
	} else {
		client = &clientConn{Conn: &lazy.Conn{Conn: c}}
	}
	own := client.self()
	own.listener, own.limits, own.due.readFor = l, l.limits, noStage
	l.mu.Lock()
	l.open[own] = struct{}{}
	l.mu.Unlock()
	return client, nil
}

func (l *Listener) Close() error {
	l.limits.close()
	return l.Listener.Close()
}

// ender is a connection of Listen.
type ender interface{ self() *clientConn }

// clientConn is used only by the one goroutine that serves it.
type clientConn struct {
	net.Conn
	ended bool
	turn  turns.Conn
	again bool // a request has been served since the last read
	lines lines
	fault error           // of lines
	raw   syscall.RawConn // see socket

	listener   *Listener
	phase      phase
	limits     *limits // nil: the server has its own
	readWrites bool    // see readBy
	due        deadlines
	peer       netip.Addr // see PeerOf

	tunnel atomic.Pointer[tunnel] // set once the connection has switched protocols
}

// Read remembers the end, and stops before a fault in the lines of a request.
func (c *clientConn) Read(b []byte) (int, error) {
	if c.fault != nil {
		return 0, c.fault
	}
	if c.limits != nil {
		if err := c.beforeRead(); err != nil {
			return 0, err
		}
	}
	stage := c.lines.stage()
	if stage > 0 && stage%2 == 0 {
		c.turn.Yield(&c.listener.turns)
	}
	c.again = false
	if stage%2 == 0 {
		c.phase.await(stage > 0)
	}
	n, err := c.Conn.Read(b)
	if stage%2 == 0 && !c.phase.arrived() {
		return 0, net.ErrClosed
	}
	c.ended = c.ended || err == io.EOF
	if n, c.fault = c.lines.follow(b[:n]); c.fault != nil {
		c.ended = true // fasthttp takes any error after the last chunk for the end
		if n == 0 {
			err = c.fault
		}
	}
	return n, err
}

func (c *clientConn) Write(b []byte) (int, error) {
	if c.limits != nil {
		if err := c.beforeWrite(); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

func (c *clientConn) self() *clientConn { return c }

// YieldAfterPipelined lets other connections go first if the request that was served arrived together with
// the one before it. Otherwise a client that always has another to read would be served for as long
// as the scheduler allows. Handlers call it last.
func YieldAfterPipelined(c net.Conn) {
	client, ok := c.(ender)
	if !ok {
		return
	}
	if s := client.self(); s.again {
		runtime.Gosched()
	} else {
		s.again = true
	}
}

// HasReceivedBytes reports whether any byte of a request has ever arrived on a connection of Listen.
func HasReceivedBytes(c net.Conn) bool {
	client, ok := c.(ender)
	return ok && (client.self().fault != nil || client.self().lines.beyond(0))
}

// PeerOf returns the address of the other end of a request's connection, without a zone, or
// none if it is not a TCP connection. A PROXY header has been read by then, so the address
// stays the same, and a connection of Listen remembers it.
func PeerOf(ctx *fasthttp.RequestCtx) netip.Addr {
	client, ok := ctx.Conn().(ender)
	if !ok {
		return AddrOf(ctx.RemoteAddr())
	}
	c := client.self()
	if !c.peer.IsValid() {
		c.peer = AddrOf(ctx.RemoteAddr())
	}
	return c.peer
}

// AddrOf returns the address of a TCP connection's end, without a zone; none of another's.
func AddrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		addr, _ := netip.AddrFromSlice(t.IP)
		return addr.Unmap()
	}
	return netip.Addr{}
}

// early reports whether the client has sent anything after its nth request, which must
// be the last so far.
func (c *clientConn) early(n uint64) bool { return c.fault != nil || c.lines.beyond(n) }

// Close closes the connection and a tunnel through it that has not begun.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.unlist()
	if t := c.tunnel.Load(); t != nil {
		t.abandon()
	}
	return err
}

// tlsClientConn has the two methods by which fasthttp recognizes TLS.
type tlsClientConn struct {
	clientConn
	tls    *tls.Conn
	failed func(*tls.Conn, error)
}

func (c *tlsClientConn) Handshake() error {
	c.handshake()
	err := c.tls.Handshake()
	c.phase.arrived()
	if err != nil && c.failed != nil {
		c.failed(c.tls, err)
	}
	return err
}

func (c *tlsClientConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
