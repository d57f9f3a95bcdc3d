package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	// smallRequest is how much of a body of known length fasthttp reads before it calls
	// a handler, even when it streams.
	smallRequest = 8 << 10
	// smallResponse is the largest body read whole before the client gets its first
	// byte. Up to this size, a broken upstream results in a clean 502.
	smallResponse = 16 << 10
	// unframed bounds a body of unknown length for an HTTP/1.0 client, which does not
	// understand chunks and needs a length.
	unframed = 1 << 20
	// copySize is the buffer size for streamed bodies.
	copySize = 32 << 10
	// earlyAnswer is how long to wait for the answer, such as a 413, of an upstream
	// that stopped reading a body.
	earlyAnswer = 250 * time.Millisecond
	// maxInterim bounds the 1xx responses before the real one.
	maxInterim = 16
)

// ForwardOptions describes the client's connection.
type ForwardOptions struct {
	Peer    netip.Addr // the other end of it
	Trusted bool       // Peer is a trusted proxy: its X-Forwarded-* are kept
	TLS     bool       // the client's connection is encrypted
	Scan    HeaderScan // from CheckFraming; without it Forward checks
	Done    Finisher   // may be nil
	Upload  Upload     // may be nil

	// Until is the latest time at which a connection that has switched protocols closes;
	// zero means no bound.
	Until time.Time

	oldClient bool   // HTTP/1.0
	trailers  bool   // TE says that the client wants them
	upgrade   []byte // the protocol to switch to; nil: none
}

// Finisher is notified once when an exchange with an upstream is over: at the end of a
// streamed response's body, complete or not; otherwise before Forward returns, when only a
// small answer remains to be written.
type Finisher interface {
	Finish()
}

// Upload is notified how a client sends a request's body, from one goroutine at a time and
// not after Forward has returned.
type Upload interface {
	AwaitClient(awaits bool) // for more of it; otherwise the upstream is to read, or to answer
}

// Forward sends ctx.Request to an upstream and makes ctx.Response its answer. The caller
// must add its own headers afterwards; the body may still be streaming by then, so the
// caller must not read or replace it without need.
//
// Forward resends a request only if no upstream can have acted on it: to the next upstream
// if no connection could be made, or on a new connection, once, if a kept one turned out closed
// and nothing was sent or the method is safe. It never sends a streaming body twice.
//
// The server must accept from Listen, normalize header names, not parse multipart forms
// (DisablePreParseMultipartForm), read bodies of 8 KiB (MaxRequestBodySize), and have a
// WriteTimeout unless the listener has Timeouts, since the deadline for writing a stream stays
// on the client's connection. Its handler must end with CloseUnlessReusable.
//
// A non-nil error is an *Error; the response is then empty and belongs to the caller.
func (p *Pool) Forward(ctx *fasthttp.RequestCtx, via ForwardOptions) error {
	e := p.forward(ctx, &via)
	if e == nil {
		return nil
	}
	ctx.Response.Reset()
	if via.Done != nil {
		via.Done.Finish()
	}
	return e
}

func (p *Pool) forward(ctx *fasthttp.RequestCtx, via *ForwardOptions) *Error {
	if e := p.prepare(ctx, via); e != nil {
		return e
	}
	if via.Upload == nil {
		via.Upload = unwatched{}
	}
	if e := p.loadSmallBody(&ctx.Request, via); e != nil {
		return e
	}
	h := &ctx.Request.Header
	if !h.IsHTTP11() {
		// The upstream gets HTTP/1.1, so that its connection is kept; the server must
		// see the client's version again.
		version := string(h.Protocol())
		h.SetProtocol("HTTP/1.1")
		defer h.SetProtocol(version)
		via.oldClient = true
	}

	var tried uint64
	var last *Error
	for {
		start := time.Now()
		now := start.Sub(p.epoch)
		i, trial := p.pick(tried, now)
		if i < 0 {
			return last
		}
		tried |= 1 << i
		u := p.ups[i]
		e := p.attempt(ctx, u, via, start)
		took := time.Since(start)
		kind := KindNone
		if e != nil {
			kind = e.Kind
			e.Upstream = u.addr
		}
		if p.cfg.Observer != nil {
			p.cfg.Observer.Upstream(took, kind)
		}
		switch kind {
		case KindNone:
			u.health.succeed()
			return nil
		case KindConnect, KindTimeout:
			u.health.fail(now+took, trial, p.cfg.FailAfter, p.cfg.FailFor)
		}
		if kind != KindConnect && kind != KindUnavailable {
			return e
		}
		last = e
	}
}

// hasArrived reports whether fasthttp has read the whole of a streamed body.
func hasArrived(req *fasthttp.Request) bool {
	n := req.Header.ContentLength()
	return n >= 0 && n <= smallRequest
}

// loadSmallBody turns a streamed body that has already arrived into a plain one. This costs
// nothing: the bytes stay where fasthttp put them. The body of an HTTP/2 stream is read
// here, within the server's ReadTimeout.
func (p *Pool) loadSmallBody(req *fasthttp.Request, via *ForwardOptions) *Error {
	n := req.Header.ContentLength()
	if limit := p.cfg.MaxRequestBodyBytes; limit > 0 && int64(n) > limit {
		return &Error{Kind: KindTooLarge, Err: fmt.Errorf("a body of %d bytes: the limit is %d", n, limit)}
	}
	if !req.IsBodyStream() || !hasArrived(req) {
		return nil
	}
	if small, ok := req.BodyStream().(interface{ Small([]byte) error }); ok {
		body := make([]byte, n)
		via.Upload.AwaitClient(true)
		err := small.Small(body)
		if via.Upload.AwaitClient(false); err != nil {
			return &Error{Kind: KindClient, Err: err}
		}
		req.SetBodyRaw(body)
		return nil
	}
	_ = req.CloseBodyStream()
	return nil
}

// attempt makes one exchange with u, on a new connection if the kept one turns out
// closed.
func (p *Pool) attempt(ctx *fasthttp.RequestCtx, u *upstream, via *ForwardOptions, start time.Time) *Error {
	if u.http2 != nil {
		return p.exchangeHTTP2(ctx, u, via)
	}
	streams, again := ctx.Request.IsBodyStream(), isSafe(&ctx.Request.Header) // upload closes the stream
	for fresh := false; ; fresh = true {
		c, err := u.get(fresh)
		switch {
		case err == errBusy || err == errClosed:
			return &Error{Kind: KindUnavailable, Err: err}
		case err != nil:
			return &Error{Kind: KindConnect, Err: err}
		}
		e := p.exchange(ctx, c, via, start)
		if e == nil {
			return nil
		}
		lost := c.reused && !c.received && e.Kind == KindBroken
		replay := lost && !fresh && !streams && (again || !c.sent)
		u.put(c, false, 0)
		if !replay {
			return e
		}
	}
}

// isSafe reports whether the request changes nothing at the origin (RFC 9110, 9.2.1), so that it
// may be sent twice. A second PUT or DELETE could undo what another client did in between.
func isSafe(h *fasthttp.RequestHeader) bool { return h.IsGet() || h.IsHead() || h.IsOptions() }

// exchange sends the request and reads the response. On success the connection has been
// returned, or belongs to the response's stream.
func (p *Pool) exchange(ctx *fasthttp.RequestCtx, c *conn, via *ForwardOptions, start time.Time) *Error {
	req, resp := &ctx.Request, &ctx.Response
	early, blame := false, KindNone
	if !c.reused {
		start = time.Now() // connecting has its own limit
	}
	if err := c.arm(start, p.cfg.Timeout); err != nil {
		return &Error{Kind: KindBroken, Err: err}
	}
	err := p.send(req, c)
	if err == nil && req.IsBodyStream() {
		var e *Error
		e, err = p.upload(ctx, c, via)
		if e != nil {
			return e
		}
		now := time.Now()
		c.pause = 0
		wait := p.cfg.Timeout
		if early = err != nil; early {
			blame = c.blame()
			wait = min(wait, earlyAnswer)
		}
		if derr := c.arm(now, wait); derr != nil && !early {
			return &Error{Kind: KindBroken, Err: derr}
		}
	}
	if err != nil && !early {
		return &Error{Kind: c.blame(), Err: err}
	}

	resp.ResetBody()
	resp.SkipBody = false
	rerr := error(nil)
	if client, ok := ctx.Conn().(streamed); ok { // an HTTP/2 client, whose reset costs nothing to notice
		watch := watchHangUp(client, c.Conn)
		if rerr = readHeader(&resp.Header, c, false); watch.stop() {
			return &Error{Kind: KindClient, Err: errReset}
		}
	} else {
		rerr = readHeader(&resp.Header, c, via.upgrade != nil)
	}
	if rerr != nil {
		if early {
			return &Error{Kind: blame, Err: err} // no answer: the failed upload is the cause
		}
		return &Error{Kind: c.blame(), Err: rerr}
	}
	if resp.StatusCode() == fasthttp.StatusSwitchingProtocols {
		return p.startTunnel(ctx, c, via)
	}
	closing := stripResponse(&resp.Header) || early
	if !resp.Header.IsHTTP11() {
		resp.Header.SetProtocol(http11)
	}
	return p.receive(ctx, c, via, closing)
}

// errReset: the HTTP/2 client has given up its request.
var errReset = errors.New("the client reset the stream")

var http11 = []byte("HTTP/1.1")

// send writes the header, and the body unless it streams.
func (p *Pool) send(req *fasthttp.Request, c *conn) error {
	h := &req.Header
	var body []byte
	if !req.IsBodyStream() {
		body = req.Body()
		if n := h.ContentLength(); n != len(body) && (n != -2 || len(body) > 0) {
			h.SetContentLength(len(body)) // chunks that the server has joined
		}
	}
	if err := h.Write(c.bw); err != nil {
		return err
	}
	if len(body) > 0 {
		if _, err := c.bw.Write(body); err != nil {
			return err
		}
	}
	return c.bw.Flush()
}

// readHeader reads the final response's header and drops 1xx ones before it.
func readHeader(h *fasthttp.ResponseHeader, c *conn, mayUpgrade bool) error {
	for range maxInterim {
		err := h.Read(c.br)
		if err != nil {
			if small := (*fasthttp.ErrSmallBuffer)(nil); errors.As(err, &small) {
				return fmt.Errorf("a header of more than %d bytes", c.br.Size())
			}
			if err == io.EOF && c.received {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		switch status := h.StatusCode(); {
		case status == fasthttp.StatusSwitchingProtocols && mayUpgrade:
			return nil
		case status == fasthttp.StatusSwitchingProtocols:
			return errors.New("101 to a request without Upgrade")
		case status < 100 || status > 999:
			return fmt.Errorf("the status %d", status)
		case status >= 200:
			return nil
		}
	}
	return fmt.Errorf("more than %d interim responses", maxInterim)
}

// receive reads a small body, or leaves the response with a stream of it.
func (p *Pool) receive(ctx *fasthttp.RequestCtx, c *conn, via *ForwardOptions, closing bool) *Error {
	resp := &ctx.Response
	h := &resp.Header
	size, status := h.ContentLength(), h.StatusCode()
	switch {
	case ctx.Request.Header.IsHead(), status == fasthttp.StatusNoContent, status == fasthttp.StatusNotModified:
		h.DelBytes(transferEncoding.name())
		if status == fasthttp.StatusNoContent {
			closing = closing || size != 0 && size != -2
			h.DelBytes(contentLength.name())
		}
		resp.SkipBody = true
	case size >= 0 && size <= smallResponse, size < 0 && via.oldClient:
		if c.br.Buffered() < size || size < 0 {
			c.pause = p.cfg.StreamTimeout
		}
		limit := 0
		if size < 0 {
			closing, limit = true, unframed // chunks may leave a trailer unread
		}
		resp.StreamBody = false
		if err := resp.ReadBody(c.br, limit); err != nil {
			return &Error{Kind: c.blame(), Err: err}
		}
	default:
		p.startStream(ctx, c, via, size, closing)
		return nil
	}
	c.up.put(c, !closing, time.Since(p.epoch))
	if via.Done != nil {
		via.Done.Finish()
	}
	return nil
}
