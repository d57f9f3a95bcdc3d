package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/internal/edge/lazy"
)

// hangUpPeriod is how often a streamed response checks that its client is still connected:
// a silent stream writes nothing and would not notice.
const hangUpPeriod = time.Second

// hangUpWatch closes the upstream's connection when the client of a stream has
// disconnected. It is pooled with its timer; a timer that fires late merely checks the next
// client early.
type hangUpWatch struct {
	mu       sync.Mutex // guards all
	client   syscall.RawConn
	upstream io.Closer // nil: not watching
	gone     bool
	clock    *time.Timer
	unhook   func() bool // for an HTTP/2 stream, which needs no clock
}

// streamed is the client's HTTP/2 stream, in place of its connection.
type streamed interface {
	net.Conn
	// Context ends with the stream.
	Context() context.Context
	// Request returns the stream's own request. From here on, the caller bounds how long
	// the stream lasts.
	Request() *http.Request
	// SetTrailer sets the fields that follow the answer's body.
	SetTrailer(http.Header)
}

var hangUpWatches = sync.Pool{New: func() any {
	w := &hangUpWatch{}
	w.clock = time.AfterFunc(time.Hour, w.look)
	return w
}}

// watchHangUp begins to watch. The caller must stop it before the upstream's connection
// may serve another request.
func watchHangUp(client net.Conn, upstream io.Closer) *hangUpWatch {
	w := hangUpWatches.Get().(*hangUpWatch)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch c := client.(type) {
	case ender:
		w.client = c.self().socket()
	case streamed:
		w.upstream = upstream
		w.unhook = context.AfterFunc(c.Context(), w.reset)
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

// reset is called when a stream of HTTP/2 has ended.
func (w *hangUpWatch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.upstream != nil {
		w.gone = true
		_ = w.upstream.Close()
	}
}

// stop ends the watch and reports whether the client has disconnected.
func (w *hangUpWatch) stop() bool {
	w.mu.Lock()
	gone := w.gone
	w.clock.Stop()
	again := w.unhook == nil || w.unhook() // otherwise reset may still be about to run
	w.client, w.upstream, w.gone, w.unhook = nil, nil, false, nil
	w.mu.Unlock()
	if again {
		hangUpWatches.Put(w)
	}
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
		case *lazy.Conn:
			c = wrapped.Conn
		case *firstBytes:
			c = wrapped.Conn
		case interface{ NetConn() net.Conn }: // *tls.Conn, and what package handshake accepts
			c = wrapped.NetConn()
		default:
			return nil
		}
	}
}
