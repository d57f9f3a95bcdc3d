package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	errBusy   = errors.New("all connections to the upstream are in use")
	errClosed = errors.New("the proxy is closed")
)

// upstream keeps the connections to one address.
type upstream struct {
	cfg    *Config
	epoch  time.Time
	addr   string
	tls    *tls.Config    // nil: plain
	http2  http2Transport // nil: HTTP/1.1
	health health
	busy   atomic.Int32 // exchanges in progress

	mu       sync.Mutex
	idle     []*conn // oldest first; the newest is used first, so a surplus ages out
	open     int
	closed   bool
	keepFrom time.Duration // connections made earlier are not kept: see unasked
}

// conn is one connection with its buffers. It belongs to one exchange at a time.
type conn struct {
	net.Conn
	up *upstream
	br *bufio.Reader
	bw *bufio.Writer

	raw       syscall.RawConn // of the TCP connection, for look; may be nil
	peek      func(uintptr)   // sets found; made once, since a closure costs an allocation
	found     idleState
	one       [1]byte   // look reads into this
	tls       *tls.Conn // nil: plain
	wire      *wire     // below tls
	deadline  time.Time // set for both directions; zero: unknown
	idleSince time.Duration

	pause    time.Duration // if above 0, every Read and Write gets a deadline this far ahead
	reused   bool
	sent     bool  // some of this exchange's request was written
	received bool  // some of its response was read
	failure  error // its last read or write error
}

// Read notes that the upstream has begun to answer.
func (c *conn) Read(b []byte) (int, error) {
	if c.pause > 0 {
		c.deadline = time.Time{}
		if err := c.SetReadDeadline(time.Now().Add(c.pause)); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	c.received = c.received || n > 0
	c.failure = err
	return n, err
}

// Write notes that the request is no longer unsent.
func (c *conn) Write(b []byte) (int, error) {
	if c.pause > 0 {
		c.deadline = time.Time{}
		if err := c.SetWriteDeadline(time.Now().Add(c.pause)); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Write(b)
	c.sent = c.sent || n > 0
	c.failure = err
	return n, err
}

// arm gives the following reads and writes at least d in total. Moving a deadline costs
// about as much as parsing a header, so arm sets it a sixteenth later than asked and
// moves it only when less than d remains.
func (c *conn) arm(now time.Time, d time.Duration) error {
	if left := c.deadline.Sub(now); left >= d && left <= d+d/16 {
		return nil
	}
	c.deadline = now.Add(d + d/16)
	return c.SetDeadline(c.deadline)
}

// get returns an idle connection, or a new one if none is idle or fresh is set. It
// discards connections that the upstream closed or wrote to while they were idle.
func (u *upstream) get(fresh bool) (*conn, error) {
	for {
		u.mu.Lock()
		if u.closed {
			u.mu.Unlock()
			return nil, errClosed
		}
		n := len(u.idle)
		if n == 0 || fresh {
			if u.open >= u.cfg.MaxConns {
				u.mu.Unlock()
				if fresh {
					fresh = false // an idle one is better than none
					continue
				}
				return nil, errBusy
			}
			u.open++
			u.mu.Unlock()
			break
		}
		c := u.idle[n-1]
		u.idle[n-1] = nil
		u.idle = u.idle[:n-1]
		u.mu.Unlock()
		if state := c.look(); state != idleQuiet {
			u.drop(c)
			if state == idleUnsolicited {
				u.unsolicited(time.Since(u.epoch))
			}
			continue
		}
		c.reused, c.sent, c.received, c.failure = true, false, false, nil
		u.busy.Add(1)
		return c, nil
	}

	c, err := u.dial()
	if err != nil {
		u.mu.Lock()
		u.open--
		u.mu.Unlock()
		return nil, err
	}
	u.busy.Add(1)
	return c, nil
}

func (u *upstream) dial() (*conn, error) {
	deadline := time.Now().Add(u.cfg.DialTimeout)
	d := net.Dialer{Deadline: deadline, KeepAlive: 30 * time.Second}
	nc, err := d.Dial("tcp", u.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, up: u}
	c.peek = func(fd uintptr) { c.found = peek(fd, c.one[:]) }
	if sc, ok := nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
	if u.tls != nil {
		if err := c.overTLS(nc, u.tls, deadline); err != nil {
			_ = nc.Close()
			return nil, err
		}
	}
	c.br = bufio.NewReaderSize(c, u.cfg.MaxResponseHeaderBytes)
	c.bw = bufio.NewWriterSize(c, 4<<10)
	return c, nil
}

// put ends an exchange. keep says that the response ended where its framing said and
// that the upstream keeps the connection. Bytes after the response would be taken for
// the next one, so they rule the connection out.
func (u *upstream) put(c *conn, keep bool, now time.Duration) {
	u.busy.Add(-1)
	c.pause = 0
	if keep && c.br.Buffered() > 0 {
		keep = false
		u.unsolicited(now)
	}
	if keep {
		c.idleSince = now
		u.mu.Lock()
		if !u.closed && now >= u.keepFrom {
			u.idle = append(u.idle, c)
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
	}
	u.drop(c)
}

// unsolicited notes that the upstream sent bytes that no request asked for. More may be on
// their way on its other connections, so none is reused during keepAliveBan.
func (u *upstream) unsolicited(now time.Duration) {
	u.mu.Lock()
	first := now >= u.keepFrom
	u.keepFrom = now + keepAliveBan
	idle := u.idle
	u.idle = nil
	u.mu.Unlock()
	for _, c := range idle {
		u.drop(c)
	}
	if o, ok := u.cfg.Observer.(UnsolicitedObserver); ok {
		o.Unsolicited(u.addr, first)
	}
}

// drop closes a connection that is neither idle nor counted as busy.
func (u *upstream) drop(c *conn) {
	_ = c.Conn.Close()
	u.mu.Lock()
	u.open--
	u.mu.Unlock()
}

// sweep closes connections that have been idle longer than IdleTimeout.
func (u *upstream) sweep(now time.Duration) {
	u.mu.Lock()
	n := 0
	for n < len(u.idle) && now-u.idle[n].idleSince > u.cfg.IdleTimeout {
		n++
	}
	old := append([]*conn(nil), u.idle[:n]...)
	kept := copy(u.idle, u.idle[n:])
	clear(u.idle[kept:])
	u.idle = u.idle[:kept]
	u.mu.Unlock()
	for _, c := range old {
		u.drop(c)
	}
}

func (u *upstream) close() {
	u.mu.Lock()
	idle := u.idle
	u.idle, u.closed = nil, true
	u.mu.Unlock()
	for _, c := range idle {
		u.drop(c)
	}
	if u.http2 != nil {
		u.http2.CloseIdleConnections()
	}
}
