package proxy

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/lazy"
)

// Timeouts bound how long a client may take. The connections of their listeners enforce them:
// a fasthttp.Server that has them, too, reads the clock and sets a deadline three times for
// each request, which costs as much as refusing it, so it must have none of its own. A field
// that is zero is no bound; without any, the server's are enforced.
type Timeouts struct {
	Idle  time.Duration // from an answer to the beginning of the next request
	Read  time.Duration // for the handshake; for the first request to begin; from the first pause in a request to its end
	Write time.Duration // for an answer
}

// Listen wraps the listener of the server that calls Forward, outside of TLS:
// Listen(tls.NewListener(ln, cfg)).
//
// fasthttp reports the same io.EOF for the end of a chunked request body and for a
// client that hung up between two of its chunks. A connection of this listener remembers
// which it was; otherwise the upstream would take such a truncated upload for a whole
// one. The connection also ends at a bare line feed that fasthttp would accept.
func (t Timeouts) Listen(ln net.Listener) *Listener { return t.listen(ln, false) }

// ListenTLS is Listen with TLS, and calls failed after each handshake that fails.
func (t Timeouts) ListenTLS(ln net.Listener, c *tls.Config, failed func(*tls.Conn, error)) *Listener {
	l := t.listen(tls.NewListener(ln, c), false)
	l.kernel, _ = ln.(syscall.Conn)
	l.failed = failed
	return l
}

// ListenClear is Listen without TLS, for clients that may speak HTTP/2 without asking (h2c
// with prior knowledge). The server must have a handler for that by NextProto.
func (t Timeouts) ListenClear(ln net.Listener) *Listener { return t.listen(ln, true) }

func (t Timeouts) listen(ln net.Listener, bothProtocols bool) *Listener {
	l := &Listener{Listener: ln, bothProtocols: bothProtocols, ended: make(chan struct{}), open: map[*clientConn]struct{}{}}
	l.kernel, _ = ln.(syscall.Conn)
	if t != (Timeouts{}) {
		l.limits = &limits{Timeouts: t, clock: lazy.NewClock()}
	}
	return l
}

// limits are the timeouts of a listener's connections.
type limits struct {
	Timeouts
	clock *lazy.Clock
}

func (l *limits) close() {
	if l != nil {
		l.clock.Close()
	}
}

// deadlines are those of a connection with limits.
type deadlines struct {
	readFor     uint64 // the stage that the read deadline is for
	writing     bool   // the write deadline is for the present answer
	read, write deadline
}

// deadline is that of one direction.
type deadline struct {
	at   time.Time
	tick int64 // the tick of the clock from which the timeout runs; 0 if it does not run from one
}

// noStage is none of those that stage returns.
const noStage = ^uint64(0)

// stage numbers what a connection waits for: an even number for the beginning of a request,
// and the next odd one for the rest of it.
func (l *lines) stage() uint64 {
	switch {
	case l.part != requestLine || l.left > 0:
		return 2*l.requests - 1
	case len(l.begun) > 0: // the first part of a request line
		return 2*l.requests + 1
	}
	return 2 * l.requests
}

// between reports whether one request is complete and the next has not begun.
func (l *lines) between() bool { stage := l.stage(); return stage > 0 && stage%2 == 0 }

// beforeRead sets the deadline by which a request must begin, or be complete. An answer puts
// an end to the one before; what a handler has set holds until then.
func (c *clientConn) beforeRead() error {
	stage := c.lines.stage()
	c.due.writing = false
	if stage == c.due.readFor {
		return nil
	}
	c.due.readFor = stage
	var at time.Time
	switch l := c.limits; {
	case c.lines.between():
		return l.within(l.Idle, &c.due.read, c.readBy)
	case l.Read > 0:
		at = time.Now().Add(l.Read)
	}
	return c.readBy(at)
}

// beforeWrite sets the deadline of an answer.
func (c *clientConn) beforeWrite() error {
	c.due.readFor = noStage
	if c.due.writing {
		return nil
	}
	c.due.writing = true
	return c.limits.within(c.limits.Write, &c.due.write, c.writeBy)
}

// within sets a deadline d from now by the clock. Most requests find that of the same tick.
func (l *limits) within(d time.Duration, due *deadline, by func(time.Time) error) error {
	if d == 0 {
		return by(time.Time{})
	}
	tick := l.clock.Tick()
	if tick > 0 && tick == due.tick {
		return nil
	}
	err := by(l.clock.At(tick).Add(d))
	due.tick = tick
	return err
}

// handshake sets the deadlines of a handshake; the first request has its own.
func (c *clientConn) handshake() {
	c.phase.await(false)
	if l := c.limits; l != nil && l.Read > 0 {
		_ = c.SetDeadline(time.Now().Add(l.Read))
		c.due.readFor = noStage
	}
}

// CloseUnlessReusable ends a handler, which must not change its response afterwards. It closes the
// connection behind the answer if the listener leaves, and unless the caller is certain of where
// the request ends and the request was read to there: the rest would become the next request, also
// where a proxy keeps one connection for several clients. The answer has the whole time to write.
func CloseUnlessReusable(ctx *fasthttp.RequestCtx, boundaryKnown bool) {
	req := &ctx.Request
	if !boundaryKnown || req.IsBodyStream() && !hasArrived(req) { // who reads a body to its end closes it
		ctx.SetConnectionClose()
	}
	if client, ok := ctx.Conn().(ender); ok {
		own := client.self()
		own.due.writing = false
		if own.listener.leaving.Load() && !ctx.Hijacked() {
			ctx.SetConnectionClose()
		}
	}
}

func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.due.readFor = c.lines.stage()
	return c.readBy(t)
}

func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.due.writing = true
	return c.writeBy(t)
}

func (c *clientConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// readBy moves the deadline only if it changes, as clocks make rare; on TLS, it costs a timer.
// Reading TLS may write, because clients may ask for new keys at any time (RFC 8446, section
// 4.6.3): the deadline of the last answer would fail that, and all that is written later.
func (c *clientConn) readBy(t time.Time) error {
	writes := c.readWrites && c.limits != nil
	if t == c.due.read.at && (!writes || t == c.due.write.at) {
		return nil
	}
	c.due.read = deadline{at: t}
	if !writes {
		return c.Conn.SetReadDeadline(t)
	}
	c.due.write, c.due.writing = deadline{at: t}, false
	return c.Conn.SetDeadline(t)
}

func (c *clientConn) writeBy(t time.Time) error {
	if t == c.due.write.at {
		return nil
	}
	c.due.write = deadline{at: t}
	if c.readWrites {
		c.due.read.tick = 0 // the next read moves both
	}
	return c.Conn.SetWriteDeadline(t)
}
