package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// At most maxConnections are open at once; at most maxFromOne of them from one
	// network. Beyond either, a new one replaces another.
	maxConnections = 1000
	maxFromOne     = 50
	// maxPerConnection is how many queries one connection may carry.
	maxPerConnection = 200
)

// timeouts bound a connection: idle is how long it may carry no query, io how long a query may
// take to arrive, or its answer to be sent.
type timeouts struct{ idle, io time.Duration }

var usualTimeouts = timeouts{idle: 5 * time.Second, io: 2 * time.Second}

// connections tracks the open ones.
type connections struct {
	mu      sync.Mutex
	open    map[*net.TCPConn]connection
	from    map[netip.Prefix]int
	stopped bool
}

// connection is who opened one, and when it last got an answer, or was opened.
type connection struct {
	network netip.Prefix
	since   time.Time
}

func newConnections() *connections {
	return &connections{open: map[*net.TCPConn]connection{}, from: map[netip.Prefix]int{}}
}

// enter adds conn. It reports false if the server stops.
func (c *connections) enter(conn *net.TCPConn, client netip.Addr, now time.Time) bool {
	bits := 56
	if client.Is4() {
		bits = 24
	}
	network, _ := client.Prefix(bits) // of that family
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return false
	case c.from[network] >= maxFromOne:
		c.replace(func(other netip.Prefix) bool { return other == network })
	case len(c.open) >= maxConnections:
		c.replace(func(netip.Prefix) bool { return true })
	}
	c.open[conn] = connection{network, now}
	c.from[network]++
	return true
}

// replace closes the connection that has been without an answer for longest, of those of these
// networks with the most connections. A few dozen networks, or a few dozen connections within
// one, could otherwise keep all others out.
func (c *connections) replace(of func(netip.Prefix) bool) {
	var victim *net.TCPConn
	var since time.Time
	most := 0
	for conn, o := range c.open {
		if n := c.from[o.network]; of(o.network) && (n > most || n == most && o.since.Before(since)) {
			victim, since, most = conn, o.since, n
		}
	}
	c.remove(victim)
	_ = victim.Close() // its goroutine ends
}

// remove forgets a connection, if it is known.
func (c *connections) remove(conn *net.TCPConn) {
	o, known := c.open[conn]
	if !known {
		return
	}
	delete(c.open, conn)
	if c.from[o.network]--; c.from[o.network] <= 0 {
		delete(c.from, o.network)
	}
}

func (c *connections) leave(conn *net.TCPConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(conn)
}

func (c *connections) answered(conn *net.TCPConn, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, known := c.open[conn]; known {
		c.open[conn] = connection{o.network, now}
	}
}

// stop makes all connections stop reading. Answers in progress are still sent.
func (c *connections) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for conn := range c.open {
		_ = conn.SetReadDeadline(time.Now()) // a connection that fails will end anyway
	}
}

func (c *connections) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// serveTCP accepts connections until the listener is closed, and waits for them.
func (s *Server) serveTCP(ctx context.Context, l *net.TCPListener, conns *connections) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := l.AcceptTCP()
		if err != nil && ctx.Err() == nil && temporary(err) {
			select { // until a file descriptor is free
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if err != nil {
			return err
		}
		client := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
		if !conns.enter(conn, client, time.Now()) {
			_ = conn.Close() // it can try again, or ask another name server
			continue
		}
		all.Go(func() {
			defer conns.leave(conn)
			defer conn.Close()
			s.converse(conn, client, conns)
		})
	}
}

// converse answers the queries of one connection in order.
func (s *Server) converse(conn *net.TCPConn, client netip.Addr, conns *connections) {
	var length [2]byte
	buffer := make([]byte, 512)
	for range maxPerConnection {
		if !s.await(conn, length[:], s.timeouts.idle, conns) {
			return
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if n < headerLen || n > maxQuery {
			return
		}
		if n > len(buffer) {
			buffer = make([]byte, maxQuery)
		}
		if !s.await(conn, buffer[:n], s.timeouts.io, conns) {
			return
		}
		answer, kind := s.answer(buffer[:n], client, false)
		if answer == nil {
			return
		}
		s.observe(kind)
		framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(answer)), uint16(len(answer)))
		if conn.SetWriteDeadline(time.Now().Add(s.timeouts.io)) != nil {
			return
		}
		if _, err := conn.Write(append(framed, answer...)); err != nil {
			return
		}
		conns.answered(conn, time.Now())
	}
}

// await fills buffer within limit, and reports whether it succeeded.
func (s *Server) await(conn *net.TCPConn, buffer []byte, limit time.Duration, conns *connections) bool {
	if conn.SetReadDeadline(time.Now().Add(limit)) != nil || conns.isStopped() {
		return false
	}
	_, err := io.ReadFull(conn, buffer)
	return err == nil
}

// temporary reports whether accepting may succeed later.
func temporary(err error) bool {
	return errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}
