// Package handshake accepts the connections of listeners for gateways, nodes and operators. It
// completes TLS handshakes before it returns connections, bounds those whose caller is still
// unknown, so that they do not use up the connections reserved for callers, and reports handshakes that fail.
package handshake

import (
	"cmp"
	"container/list"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/httpconns"
)

// within is how long a handshake may take: a lost packet is sent again after a second, and then
// after two more.
const within = 5 * time.Second

// Config is what a Listener needs.
type Config struct {
	// TLS is nil without TLS. Then From alone identifies callers.
	TLS  *tls.Config
	From []netip.Prefix // the callers' networks; nil: any
	// Identify reports whether a complete handshake identifies a caller. Without it, From suffices.
	// leave, if not nil, is called when the connection of a caller is closed.
	Identify func(from netip.Addr, state *tls.ConnectionState) (leave func(), known bool)
	// Callers and Unauthenticated are how many connections may be open. Those in a handshake that is to
	// identify the caller count as neither.
	Callers, Unauthenticated int
	Refused                  func(Refusal) // called for each connection that is closed because of these bounds
	Failed                   func(Reason)  // called after each handshake that fails; may be nil

	Within  time.Duration // for a handshake; 0: the usual
	Pending int           // how many may be in a handshake that is to identify the caller; 0: as many as usual
}

// Refusal says why a connection was closed immediately.
type Refusal uint8

// The refusals.
const (
	Full            Refusal = iota // as many callers as there may be are connected
	Unauthenticated                // not a caller, or not known yet, and there is no place for another
)

// Listener accepts connections whose handshakes are complete.
type Listener struct {
	net.Listener
	config Config
	begin  sync.Once
	ready  chan net.Conn
	done   chan struct{} // closed when the listener has failed
	err    error         // why; set before done is closed

	mu     sync.Mutex
	open   [groups]int
	waits  waiting
	closed bool
}

// Listen returns a listener on top of ln, which it closes.
func Listen(ln net.Listener, c Config) *Listener {
	c.Within, c.Pending = cmp.Or(c.Within, within), cmp.Or(c.Pending, maxPending)
	if c.Failed == nil {
		c.Failed = func(Reason) {}
	}
	waits := waiting{all: list.New(), same: map[netip.Addr]*list.List{}, crowded: map[netip.Addr]struct{}{}}
	return &Listener{Listener: ln, config: c, ready: make(chan net.Conn), done: make(chan struct{}), waits: waits}
}

// SyscallConn returns the socket beneath, if there is one.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	if c, ok := l.Listener.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Accept implements net.Listener. With TLS, it returns a *tls.Conn.
func (l *Listener) Accept() (net.Conn, error) {
	l.begin.Do(func() { go l.run() })
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		return nil, l.err
	}
}

// run accepts until the listener beneath fails or is closed, and then ends pending handshakes.
func (l *Listener) run() {
	for {
		accepted, err := proxy.Accept(l.Listener)
		if err != nil {
			l.end(err)
			return
		}
		c := &conn{Conn: accepted, listener: l, addr: httpconns.Subscriber(proxy.AddrOf(accepted.RemoteAddr()))}
		switch refusal, ok := l.enter(c); {
		case !ok:
			l.config.Refused(refusal)
			_ = accepted.Close()
		case l.config.TLS == nil:
			l.deliver(c)
		default:
			go l.shake(c)
		}
	}
}

// Open returns how many connections are open, and how many of those are still unknown.
func (l *Listener) Open() (all, unknown int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[pending] + l.open[caller] + l.open[unauthenticated], l.open[pending]
}

func (l *Listener) end(err error) {
	l.err = err
	close(l.done)
	l.mu.Lock()
	l.closed = true
	var pending []*conn
	for c := l.waits.oldest(); c != nil; c = l.waits.oldest() {
		l.waits.remove(c)
		pending = append(pending, c)
	}
	l.mu.Unlock()
	for _, c := range pending {
		_ = c.Conn.Close()
	}
}

// deliver gives a connection to Accept.
func (l *Listener) deliver(c net.Conn) {
	select {
	case l.ready <- c:
	case <-l.done:
		_ = c.Close()
	}
}

// shake completes the handshake of a connection.
func (l *Listener) shake(c *conn) {
	_ = c.SetDeadline(time.Now().Add(l.config.Within))
	t := tls.Server(c, l.config.TLS)
	if err := t.Handshake(); err != nil {
		l.failed(c, t, err)
		_ = c.Close()
		return
	}
	state := t.ConnectionState()
	if len(l.config.TLS.NextProtos) > 0 && state.NegotiatedProtocol == "" {
		l.config.Failed(Protocol)
		_ = c.Close()
		return
	}
	var leave func()
	known := true
	if l.config.Identify != nil {
		leave, known = l.config.Identify(c.addr, &state)
	}
	if !l.identified(c, known, leave) {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	l.deliver(t)
}

// failed reports a handshake that failed because of the other end.
func (l *Listener) failed(c *conn, t *tls.Conn, err error) {
	l.mu.Lock()
	ours := c.closed || l.closed
	l.mu.Unlock()
	if why, ok := ReasonOf(t, err); ok && !ours {
		l.config.Failed(why)
	}
	explain(err)
}

// enter counts a connection, or says why there is no room for it. Of connections that wait to be
// identified, it closes one to make room.
func (l *Listener) enter(c *conn) (Refusal, bool) {
	l.mu.Lock()
	switch {
	case !decide.Within(l.config.From, proxy.AddrOf(c.RemoteAddr())):
		c.group = unauthenticated
	case l.open[caller] >= l.config.Callers:
		l.mu.Unlock()
		return Full, false
	case l.config.Identify == nil:
		c.group = caller
	default:
		c.group = pending
	}
	if c.group == unauthenticated && l.open[unauthenticated] >= l.config.Unauthenticated {
		l.mu.Unlock()
		return Unauthenticated, false
	}
	var victim *conn
	if c.group == pending {
		if l.open[pending] >= l.config.Pending {
			if victim = l.waits.victim(); victim != nil {
				l.forget(victim) // now: its handshake may end before it is closed
			}
		}
		l.waits.add(c)
	}
	l.open[c.group]++
	l.mu.Unlock()
	if victim != nil {
		l.config.Refused(Unauthenticated)
		_ = victim.end(true)
	}
	return 0, true
}

// forget no longer counts a connection. It reports false if it was forgotten before. The caller
// holds l.mu.
func (l *Listener) forget(c *conn) bool {
	if c.closed {
		return false
	}
	c.closed = true
	l.waits.remove(c)
	l.open[c.group]--
	return true
}

// identified moves a connection whose handshake is complete to its place. It reports false if there
// is none.
func (l *Listener) identified(c *conn, known bool, leave func()) bool {
	to, most, refusal := caller, l.config.Callers, Full
	if !known {
		to, most, refusal = unauthenticated, l.config.Unauthenticated, Unauthenticated
	}
	l.mu.Lock()
	closed, full := c.closed, false
	if !closed {
		c.leave = leave
	}
	if c.group == pending && !closed { // others are known by their addresses
		if full = l.open[to] >= most; !full {
			l.waits.remove(c)
			l.open[pending]--
			c.group = to
			l.open[to]++
		}
	}
	l.mu.Unlock()
	if full {
		l.config.Refused(refusal)
	}
	if closed && leave != nil {
		leave()
	}
	return !closed && !full
}
