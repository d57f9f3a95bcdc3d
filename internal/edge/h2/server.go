// Package h2 speaks HTTP/2 with clients. golang.org/x/net/http2 knows the protocol; this
// package bounds what a connection may cost, and turns each stream into a request of the
// same form that HTTP/1.1 has, so that both take one path from there.
package h2

//lint:file-ignore SA1019 http.Server serves no connection once Shutdown has begun, but Drain must serve those whose handshakes were in progress

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http2"
)

// Protocol is the name of HTTP/2 in ALPN.
const Protocol = http2.NextProtoTLS

const (
	// streamWindow is how much of a body that is not read weir buffers. A connection's window holds
	// that of all its streams: an origin that does not read one of them must not stop the others.
	streamWindow = 256 << 10
	// proxyHeaders is how large a header from a trusted proxy may be to be read: requests of many clients
	// end with its connection. It is far more than proxies let pass by default.
	proxyHeaders = 1 << 20
	// headerTable is the size of the table of header fields that a client may refer to.
	headerTable = 4 << 10
	// quiet is how long a connection with open streams may be silent before it must answer a
	// ping, within pingTimeout.
	quiet       = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// Config is what a Server needs.
type Config struct {
	// Serve is the request path: it sets ctx.Response.
	Serve func(ctx *fasthttp.RequestCtx)
	// Malformed answers a request that has no form in HTTP/1.1, or too large a header.
	Malformed func(ctx *fasthttp.RequestCtx, err error)
	// Refused is called for each connection that is closed, or stream that is refused, for Reason.
	Refused func(Reason)

	MaxStreams     int // of a connection
	MaxStreamsAll  int // of all connections; more get 503
	MaxHeaderBytes int // of a request, in the form of HTTP/1.1

	ReadTimeout  time.Duration // of the rest of a header, and of a body that is read as a whole
	WriteTimeout time.Duration // of an answer that is written as a whole, and of a write to the connection
	IdleTimeout  time.Duration // of a connection without streams
	// StreamTimeout bounds a stream whose bodies are both buffered. Bodies that are forwarded
	// while they arrive have their own deadlines.
	StreamTimeout time.Duration
}

// Server serves connections that negotiated HTTP/2.
type Server struct {
	config  Config
	http    http.Server
	proxies http.Server // the same for trusted proxies
	h2      http2.Server
	streams atomic.Int64
	pool    sync.Pool // *stream

	closed chan struct{}
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
}

func New(c Config) (*Server, error) {
	s := &Server{config: c, conns: map[net.Conn]struct{}{}, closed: make(chan struct{})}
	s.pool.New = func() any { return newStream(s) }
	s.http = http.Server{
		IdleTimeout:  c.IdleTimeout,
		WriteTimeout: c.StreamTimeout,
		// More than is allowed, so that weir itself answers a header that is only slightly too large.
		MaxHeaderBytes: 2 * c.MaxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	s.proxies = http.Server{
		IdleTimeout: c.IdleTimeout, WriteTimeout: c.StreamTimeout, MaxHeaderBytes: max(proxyHeaders, s.http.MaxHeaderBytes), ErrorLog: s.http.ErrorLog,
	}
	s.h2 = http2.Server{
		MaxConcurrentStreams: uint32(c.MaxStreams), MaxDecoderHeaderTableSize: headerTable, MaxEncoderHeaderTableSize: headerTable,
		IdleTimeout: c.IdleTimeout, ReadIdleTimeout: quiet, PingTimeout: pingTimeout, WriteByteTimeout: c.WriteTimeout,
		MaxUploadBufferPerConnection: int32(streamWindow * c.MaxStreams), MaxUploadBufferPerStream: streamWindow,
		MaxReadFrameSize: 16 << 10, // what the client must not exceed: each connection has a buffer of that size
	}
	return s, http2.ConfigureServer(&s.http, &s.h2) // so that Shutdown reaches the connections
}

// ServeConn serves a connection until it ends. prefaced says that the client's preface has
// been read; proxy, that the client is a trusted proxy, whose connection is that of many clients.
func (s *Server) ServeConn(conn net.Conn, prefaced, proxy bool) {
	g := newGuard(conn, prefaced, s.config.ReadTimeout, s.config.Refused)
	base := &s.http
	if proxy {
		g.proxy, base = true, &s.proxies
	}
	handler := &connection{server: s, guard: g, peer: conn.RemoteAddr(), local: conn.LocalAddr()}
	var served net.Conn = g
	if t, ok := conn.(*tls.Conn); ok {
		handler.tls, served = true, &tlsGuard{g, t}
	} else {
		g.from = bufio.NewReaderSize(conn, 4<<10) // frames are read in two parts each
	}
	s.enter(conn)
	defer s.leave(conn)
	s.h2.ServeConn(served, &http2.ServeConnOpts{BaseConfig: base, Handler: handler, SawClientPreface: prefaced})
}

func (s *Server) enter(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *Server) leave(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Drain tells clients to open no more streams, until Close: connections may still arrive whose
// handshakes had begun. Each closes once its streams have ended.
func (s *Server) Drain() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_ = s.http.Shutdown(context.Background()) // it has no listener to wait for
		select {
		case <-s.closed:
			return
		case <-tick.C:
		}
	}
}

// Close closes the remaining connections.
func (s *Server) Close() {
	close(s.closed)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// Connections returns how many are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Streams returns how many requests are being served.
func (s *Server) Streams() int64 { return s.streams.Load() }

// connection is the http.Handler of one connection.
type connection struct {
	server      *Server
	guard       *guard
	peer, local net.Addr
	tls         bool
}

// ServeHTTP serves one stream. A panic with http.ErrAbortHandler resets it: its answer has
// begun, and cannot be completed.
func (c *connection) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s := c.server
	full := s.streams.Add(1) > int64(s.config.MaxStreamsAll)
	defer s.streams.Add(-1)
	if full {
		s.config.Refused(TooManyStreams)
	}
	st := s.pool.Get().(*stream)
	st.begin(c, w, req)
	whole := st.serve(full)
	if st.end() {
		s.pool.Put(st)
	}
	if !whole {
		panic(http.ErrAbortHandler)
	}
}
