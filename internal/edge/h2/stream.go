package h2

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"
)

// stream is one request and its answer, in the form of HTTP/1.1. It takes the place of the
// client's connection: deadlines are the stream's own. It is pooled.
type stream struct {
	server *Server
	ctx    fasthttp.RequestCtx
	*connection
	w    http.ResponseWriter
	flow http.Flusher
	req  *http.Request

	head    []byte
	source  bytes.Reader
	reader  *bufio.Reader
	body    body
	trailer http.Header

	read, write deadline
	free        bool // of the deadline for streams whose bodies are not passed on
}

// release lets the stream last longer than Config.StreamTimeout: from here on, the code that
// forwards its bodies sets deadlines.
func (st *stream) release() {
	if !st.free {
		st.free = true
		_ = st.w.(writeLimiter).SetWriteDeadline(time.Time{})
	}
}

type writeLimiter interface{ SetWriteDeadline(time.Time) error }

// slack is the room for what the form of HTTP/1.1 adds to a header.
const slack = 1 << 10

func newStream(s *Server) *stream {
	st := &stream{server: s}
	st.reader = bufio.NewReaderSize(&st.source, s.config.MaxHeaderBytes+slack)
	st.read.init()
	st.write.init()
	return st
}

type quietLog struct{}

func (quietLog) Printf(string, ...any) {}

func (st *stream) begin(c *connection, w http.ResponseWriter, req *http.Request) {
	st.connection, st.w, st.req = c, w, req
	st.flow = w.(http.Flusher)
	st.read.begin(w.(interface{ SetReadDeadline(time.Time) error }).SetReadDeadline)
	st.write.begin(w.(writeLimiter).SetWriteDeadline)
	st.free = false
	st.ctx.Init2(st, quietLog{}, false)
	st.ctx.Response.Header.SetNoDefaultContentType(true)
}

var errFull = errors.New("too many streams are open")

// IsFull reports whether a request is answered only because too many streams are open.
func IsFull(err error) bool { return err == errFull }

// serve answers the request. It reports whether the answer is whole.
func (st *stream) serve(full bool) bool {
	err := st.translate()
	if full {
		err = errFull
	}
	if err != nil {
		st.server.config.Malformed(&st.ctx, err)
	} else {
		st.server.config.Serve(&st.ctx)
	}
	return st.answer()
}

// translate makes the ctx's request of the stream's.
func (st *stream) translate() (err error) {
	if st.head, err = appendHead(st.head[:0], st.req, st.server.config.MaxHeaderBytes); err != nil {
		return err
	}
	st.source.Reset(st.head)
	st.reader.Reset(&st.source)
	if err := st.ctx.Request.Header.Read(st.reader); err != nil {
		return err
	}
	if n := st.req.ContentLength; n != 0 {
		st.body.stream = st
		st.ctx.Request.SetBodyStream(&st.body, int(max(n, -1)))
	}
	return nil
}

// end forgets the request. It reports whether the stream may be used again: not if it has grown.
func (st *stream) end() bool {
	st.read.end()
	st.write.end()
	st.ctx.Request.Reset()
	st.ctx.Response.Reset()
	st.ctx.ResetUserValues()
	st.source.Reset(nil)
	st.body.stream, st.trailer, st.connection, st.w, st.flow, st.req = nil, nil, nil, nil, nil, nil
	const spacious = 64 << 10
	return cap(st.head) <= spacious
}

// body is a request's body.
type body struct{ stream *stream }

// Read implements io.Reader. It releases the stream, because its body is being forwarded.
func (b *body) Read(p []byte) (int, error) {
	b.stream.release()
	return b.stream.req.Body.Read(p)
}

// Small reads a body of known length into p. proxy calls it where fasthttp would have read
// it already.
func (b *body) Small(p []byte) error {
	if err := b.stream.SetReadDeadline(time.Now().Add(b.stream.server.config.ReadTimeout)); err != nil {
		return err
	}
	_, err := io.ReadFull(b.stream.req.Body, p)
	if err == nil { // the end, at which the http2 package compares lengths
		if _, err = b.stream.req.Body.Read(make([]byte, 1)); err == io.EOF {
			err = nil
		}
	}
	return err
}

// Request returns the stream's own request, for an upstream of the same protocol. The stream
// lasts as long as that wants.
func (st *stream) Request() *http.Request {
	st.release()
	return st.req
}

// Trailer returns the fields that the client announces for the end of its body.
func (st *stream) Trailer() http.Header { return st.req.Trailer }

// SetTrailer sets the fields that follow the answer's body.
func (st *stream) SetTrailer(t http.Header) { st.trailer = t }

// Context ends when the client resets the stream, or its connection ends.
func (st *stream) Context() context.Context { return st.req.Context() }

// Encrypted reports whether the client's connection is.
func (st *stream) Encrypted() bool { return st.tls }

// HTTPVersion is what an access log says.
func (st *stream) HTTPVersion() string { return "HTTP/2.0" }

// A stream is the net.Conn of its request: these are all that the request path uses.
var _ net.Conn = (*stream)(nil)

var errNoBytes = errors.New("a stream is not a sequence of bytes")

func (st *stream) Read([]byte) (int, error)  { return 0, errNoBytes }
func (st *stream) Write([]byte) (int, error) { return 0, errNoBytes }
func (st *stream) Close() error              { return nil }
func (st *stream) LocalAddr() net.Addr       { return st.local }
func (st *stream) RemoteAddr() net.Addr      { return st.peer }

func (st *stream) SetDeadline(t time.Time) error {
	return errors.Join(st.SetReadDeadline(t), st.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. A body that is late fails, and the stream cannot
// read on.
func (st *stream) SetReadDeadline(t time.Time) error { st.read.set(t); return nil }

// SetWriteDeadline implements net.Conn. A write that is late resets the stream.
func (st *stream) SetWriteDeadline(t time.Time) error { st.write.set(t); return nil }
