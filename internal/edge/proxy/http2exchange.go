package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// exchange is a request to an upstream that speaks HTTP/2, and its response. Both bodies
// are forwarded concurrently.
type exchange struct {
	p      *Pool
	u      *upstream
	client net.Conn
	stream streamed // the client's, if it also speaks HTTP/2
	done   Finisher
	ctx    context.Context
	cancel context.CancelCauseFunc
	upload *clientBody // nil without a streamed body
	resp   *http.Response
	whole  bool
	failed Kind

	active atomic.Int64 // the last progress, since the pool's epoch
	limit  atomic.Int64 // the longest pause
	clock  *time.Timer
}

var (
	errStalled      = errors.New("the upstream has neither read nor sent anything for too long")
	errClientStalls = errors.New("the client has sent nothing for too long")
)

// exchangeHTTP2 is exchange for an upstream that speaks HTTP/2. The http2 package resends a
// request if the upstream says that it did not process it.
func (p *Pool) exchangeHTTP2(ctx *fasthttp.RequestCtx, u *upstream, via *ForwardOptions) *Error {
	if int(u.busy.Add(1)) > u.cfg.MaxConns {
		u.busy.Add(-1)
		return &Error{Kind: KindUnavailable, Err: errBusy}
	}
	x := &exchange{p: p, u: u, client: ctx.Conn(), done: via.Done}
	parent := context.Background()
	if x.stream, _ = x.client.(streamed); x.stream != nil {
		parent = x.stream.Context()
	}
	x.ctx, x.cancel = context.WithCancelCause(parent)
	x.pause(p.cfg.Timeout)
	req := x.request(ctx, via) // before watch looks at the body
	x.clock = time.AfterFunc(time.Hour, x.watch)
	x.clock.Reset(min(p.cfg.Timeout, p.cfg.StreamTimeout)) // once clock is set
	resp, err := u.http2.RoundTrip(req)
	if err == nil && x.upload != nil && x.stream == nil {
		<-x.upload.over // fasthttp reads the client's connection again once Forward has returned
	}
	if x.upload != nil {
		if e := x.upload.answered(); e != nil {
			if err == nil {
				_ = resp.Body.Close()
			}
			x.end()
			return e
		}
	}
	if err != nil {
		e := &Error{Kind: x.blame(err), Err: err}
		x.end()
		return e
	}
	if status := resp.StatusCode; status < 200 || status > 999 {
		_ = resp.Body.Close()
		x.end()
		return &Error{Kind: KindBadResponse, Err: fmt.Errorf("the status %d", status)}
	}
	if x.upload != nil && x.stream == nil && x.upload.whole {
		_ = ctx.Request.CloseBodyStream()
		_ = x.client.SetReadDeadline(time.Time{})
	}
	x.pause(p.cfg.StreamTimeout)
	x.resp = resp
	return x.answer(ctx, via)
}

// request builds the upstream's request from the client's.
func (x *exchange) request(ctx *fasthttp.RequestCtx, via *ForwardOptions) *http.Request {
	h := &ctx.Request.Header
	req := (&http.Request{Method: string(h.Method()), Host: string(h.Host()), Header: http.Header{}}).WithContext(x.ctx)
	req.URL = &url.URL{Scheme: x.u.urlScheme(), Host: x.u.addr}
	// The target is sent as received: the http2 package removes what precedes its path.
	if req.URL.Opaque = string(h.RequestURI()); req.URL.Opaque != "*" {
		req.URL.Opaque = "//" + req.Host + req.URL.Opaque
	}
	for _, line := range h.PeekAll(fasthttp.HeaderCookie) { // as received, which All does not show
		req.Header["Cookie"] = append(req.Header["Cookie"], string(line))
	}
	for name, value := range h.All() {
		switch key := string(name); key {
		case "Cookie", "Host", "Connection", "Content-Length", "Transfer-Encoding", "Upgrade":
		default:
			req.Header[key] = append(req.Header[key], string(value))
		}
	}
	if len(h.UserAgent()) == 0 {
		req.Header["User-Agent"] = []string{""} // no header, rather than Go's default
	}
	if via.trailers {
		req.Header["Te"] = []string{"trailers"}
	}
	if !ctx.Request.IsBodyStream() {
		if body := ctx.Request.Body(); len(body) > 0 {
			own := bytes.Clone(body) // it may be sent while the answer already arrives
			req.ContentLength = int64(len(own))
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(own)), nil }
			req.Body, _ = req.GetBody()
		}
		return req
	}
	x.upload = &clientBody{incoming: newIncoming(x.p, ctx), x: x, watch: via.Upload, over: make(chan struct{})}
	req.Body, req.ContentLength = x.upload, max(x.upload.size, -1)
	x.pause(x.p.cfg.StreamTimeout)
	if x.stream != nil {
		own := x.stream.Request()
		keepTrailers(own.Trailer)
		x.upload.body, x.upload.interrupt, req.Trailer = own.Body, own.Body.Close, own.Trailer
	}
	return req
}

// keepTrailers removes trailers that a client may not send after a proxy has checked its
// header: some origins read trailers as headers. It removes the same from answers, in which weir
// describes its limits. Fields that are no longer announced are
// not filled in. The http2 package already rejects fields for framing, hosts and
// authorization.
func keepTrailers(announced http.Header) {
	for name := range announced {
		if name == "Cookie" || strings.HasPrefix(name, "Weir-") || strings.HasPrefix(strings.TrimPrefix(name, "X-"), "Ratelimit") || slices.ContainsFunc(names[:], func(n []byte) bool { return string(n) == name }) {
			delete(announced, name)
		}
	}
}

var errUnframed = fmt.Errorf("a body of unknown length and more than %d bytes, which HTTP/1.0 cannot carry", unframed)

// answer copies the response to the client's.
func (x *exchange) answer(ctx *fasthttp.RequestCtx, via *ForwardOptions) *Error {
	resp := &ctx.Response
	resp.ResetBody()
	resp.SkipBody = false
	h := &resp.Header
	h.SetNoDefaultContentType(true)
	for name, values := range x.resp.Header {
		if name == "Content-Length" {
			continue
		}
		for _, v := range values {
			h.Add(name, v)
		}
	}
	stripResponse(h)
	h.SetStatusCode(x.resp.StatusCode)
	size, status := int(x.resp.ContentLength), x.resp.StatusCode
	switch {
	case ctx.Request.Header.IsHead(), status == fasthttp.StatusNoContent, status == fasthttp.StatusNotModified:
		if size >= 0 && status != fasthttp.StatusNoContent {
			h.SetContentLength(size)
		}
		resp.SkipBody = true
	case size < 0 && via.oldClient:
		body, err := io.ReadAll(io.LimitReader(x, unframed+1))
		if err == nil && len(body) > unframed {
			x.failed, err = KindBadResponse, errUnframed
		}
		if err != nil {
			x.cancel(context.Canceled)
			_ = x.resp.Body.Close()
			x.end()
			return &Error{Kind: x.failed, Err: err}
		}
		resp.SetBodyRaw(body)
	case size != 0:
		resp.SetBodyStream(x, max(size, -1))
		resp.ImmediateHeaderFlush = true // the client of a stream waits for it
		if x.stream != nil {
			x.stream.Request() // let it last as long as the exchange
		}
		return nil
	}
	x.whole = true
	_ = x.CloseWithError(nil)
	return nil
}

// Read reads the response's body.
func (x *exchange) Read(b []byte) (int, error) {
	n, err := x.resp.Body.Read(b)
	x.touch()
	switch {
	case err == io.EOF:
		x.whole = true
		if x.stream != nil {
			keepTrailers(x.resp.Trailer)
			x.stream.SetTrailer(x.resp.Trailer)
		}
	case err != nil:
		x.failed = x.blame(err)
	}
	return n, err
}

// SupportsBodyWriteTo lets fasthttp call WriteTo.
func (x *exchange) SupportsBodyWriteTo() bool { return true }

// WriteTo copies the body to the client.
func (x *exchange) WriteTo(w io.Writer) (int64, error) {
	var upstream io.Closer // of an HTTP/2 client, the context ends
	if x.stream == nil {
		upstream = x
	}
	written, lost, err := x.p.relay(w, x, x.client, upstream)
	if lost {
		x.failed = KindClient
	}
	return written, err
}

func (x *exchange) relayed() {
	x.touch()
	if x.stream != nil { // a silent upstream must not count as a late write
		_ = x.client.SetWriteDeadline(time.Time{})
	}
}

func (x *exchange) CloseWithError(err error) error {
	failed := x.failed
	if failed == KindNone && (err != nil || !x.whole) {
		failed = KindClient
	}
	if !x.whole {
		x.cancel(context.Canceled)
	}
	_ = x.resp.Body.Close()
	x.end()
	if failed != KindNone {
		if o, ok := x.p.cfg.Observer.(StreamObserver); ok {
			o.Stream(failed)
		}
	}
	if x.done != nil {
		x.done.Finish()
	}
	return nil
}

// Close ends the exchange early: the client has disconnected.
func (x *exchange) Close() error {
	x.cancel(context.Canceled)
	return nil
}

// end frees what the exchange holds. Nothing reads the client's body afterwards.
func (x *exchange) end() {
	x.cancel(nil)
	x.clock.Stop()
	if x.upload != nil {
		x.upload.end()
	}
	x.u.busy.Add(-1)
}

func (x *exchange) pause(limit time.Duration) {
	x.limit.Store(int64(limit))
	x.touch()
}

func (x *exchange) touch() { x.active.Store(int64(time.Since(x.p.epoch))) }

// watch cancels an exchange without progress.
func (x *exchange) watch() {
	if x.ctx.Err() != nil {
		return
	}
	left := time.Duration(x.active.Load()+x.limit.Load()) - time.Since(x.p.epoch)
	if left <= 0 {
		cause := errStalled
		if x.upload != nil && x.upload.awaited() {
			cause = errClientStalls
		}
		x.cancel(cause)
		return
	}
	x.clock.Reset(left)
}

// blame classifies an error of the exchange.
func (x *exchange) blame(err error) Kind {
	var dial dialError
	switch cause := context.Cause(x.ctx); {
	case x.upload != nil && x.upload.failure() != nil:
		return x.upload.failure().Kind
	case cause == errStalled:
		return KindTimeout
	case cause != nil:
		return KindClient
	case errors.As(err, &dial):
		return KindConnect
	default:
		return KindBroken
	}
}
