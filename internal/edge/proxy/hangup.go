package proxy

import (
	"crypto/tls"
	"net"
	"sync"
	"syscall"
	"time"
)

// hangUpPeriod is how often a streamed response checks that its client is still connected:
// a silent stream writes nothing and would not notice.
const hangUpPeriod = time.Second

// hangUpWatch closes the upstream's connection when the client of a stream has hung up. It
// is pooled with its timer; a timer that fires late merely checks the next client early.
type hangUpWatch struct {
	mu       sync.Mutex // guards all
	client   syscall.RawConn
	upstream net.Conn // nil: not watching
	gone     bool
	clock    *time.Timer
}

var hangUpWatches = sync.Pool{New: func() any {
	w := &hangUpWatch{}
	w.clock = time.AfterFunc(time.Hour, w.look)
	return w
}}

// watchHangUp begins to watch. The caller must stop it before the upstream's connection
// may serve another request.
func watchHangUp(client, upstream net.Conn) *hangUpWatch {
	w := hangUpWatches.Get().(*hangUpWatch)
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := client.(ender); ok {
		w.client = c.self().socket()
	}
	if w.client != nil {
		w.upstream = upstream
		w.clock.Reset(hangUpPeriod)
	}
	return w
}

func (w *hangUpWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.upstream == nil {
		return
	}
	if w.gone = hungUp(w.client); w.gone {
		_ = w.upstream.Close()
		return
	}
	w.clock.Reset(hangUpPeriod)
}

// stop ends the watch and reports whether the client has hung up.
func (w *hangUpWatch) stop() bool {
	w.mu.Lock()
	gone := w.gone
	w.clock.Stop()
	w.client, w.upstream, w.gone = nil, nil, false
	w.mu.Unlock()
	hangUpWatches.Put(w)
	return gone
}

// socket returns the connection's socket, or nil if there is none.
func (c *clientConn) socket() syscall.RawConn {
	if c.raw == nil {
		c.raw = rawOf(c.Conn)
	}
	return c.raw
}

// rawOf finds the socket below the wrappers; nil if there is none.
func rawOf(c net.Conn) syscall.RawConn {
	for {
		switch wrapped := c.(type) {
		case syscall.Conn:
			raw, _ := wrapped.SyscallConn()
			return raw
		case *lazyConn:
			c = wrapped.Conn
		case *tls.Conn:
			c = wrapped.NetConn()
		default:
			return nil
		}
	}
}
