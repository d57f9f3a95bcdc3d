package proxy

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-edge/weir/internal/edge/turns"
)

const (
	drainTick = 20 * time.Millisecond
	// firstGrace is how long a draining listener waits for the first request of a connection: it
	// may be on its way.
	firstGrace = time.Second
	// acceptWithin bounds how long it waits for connections that nobody has accepted.
	acceptWithin = 100 * time.Millisecond
)

// Listener is a listener of this package. Server.Shutdown of fasthttp may close a connection in the
// moment in which a request arrives, so that the answer to a request that was executed is lost:
// use Drain instead.
type Listener struct {
	net.Listener
	kernel        syscall.Conn // the socket; nil if unknown
	bothProtocols bool
	limits        *limits                // nil: none
	failed        func(*tls.Conn, error) // called after a handshake that fails; may be nil

	turns   turns.Listener
	leaving atomic.Bool
	ended   chan struct{} // closed once Accept has failed
	end     sync.Once

	mu   sync.Mutex
	open map[*clientConn]struct{} // but for those that have switched to another protocol
}

// Leave makes every answer from now on the last of its connection.
func (l *Listener) Leave() { l.leaving.Store(true) }

// Drain closes the listener, and every connection on which no request has begun. It returns once
// none is left, or with ctx's error.
func (l *Listener) Drain(ctx context.Context) error {
	l.Leave()
	l.acceptAll()
	_ = l.Close()
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	for grace := time.Now().Add(firstGrace); ; {
		if l.closeIdle(time.Now().After(grace)) == 0 {
			select {
			case <-l.ended: // none can follow
				return nil
			default:
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// acceptAll waits until all connections have been accepted: a listener that closes resets others.
func (l *Listener) acceptAll() {
	if l.kernel == nil {
		return
	}
	if raw, err := l.kernel.SyscallConn(); err == nil {
		for end := time.Now().Add(acceptWithin); pending(raw) && time.Now().Before(end); {
			time.Sleep(time.Millisecond / 10)
		}
	}
}

// closeIdle closes idle connections; fresh says to close also those that have not had a request. It
// returns how many are left.
func (l *Listener) closeIdle(fresh bool) int {
	l.mu.Lock()
	list := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for _, c := range list {
		c.phase.closeIdle(c, fresh)
	}
	return len(list)
}

// phase says whether a request has begun on a connection.
type phase struct {
	mu     sync.Mutex
	waits  bool // for one
	served bool // one has been complete
	over   bool // the connection was closed while it waited
}

// await notes that the next byte begins a request.
func (p *phase) await(served bool) {
	p.mu.Lock()
	p.waits, p.served = true, served
	p.mu.Unlock()
}

// arrived notes that it does. It reports false if the connection has been closed.
func (p *phase) arrived() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = false
	return !p.over
}

// closeIdle closes a connection that waits, unless bytes have arrived that have not been read.
func (p *phase) closeIdle(c *clientConn, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.waits || p.over || !p.served && !fresh {
		return
	}
	state := idleClosed
	if raw := rawOf(c.Conn); raw != nil {
		_ = raw.Control(func(fd uintptr) { state = peek(fd, make([]byte, 1)) })
	}
	if p.over = state != idleUnsolicited; p.over {
		go func() { _ = c.Conn.Close() }() // a client that does not read delays the end of TLS
	}
}

// unlist says that Drain need not wait for the connection.
func (c *clientConn) unlist() {
	if l := c.listener; l != nil {
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
	}
}
