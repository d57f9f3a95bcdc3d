package proxy

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// unwatched is an Upload that nobody wants to know of.
type unwatched struct{}

func (unwatched) AwaitClient(bool) {}

// incoming is the body of a client's request.
type incoming struct {
	p      *Pool
	client net.Conn
	body   io.Reader
	nth    uint64 // its request, of those of the connection
	size   int64  // below 0: unknown
	sent   int64
	waited time.Duration // for the client
	talks  atomic.Bool   // the answer has begun: both may be a conversation, of any pace
}

func newIncoming(p *Pool, ctx *fasthttp.RequestCtx) incoming {
	return incoming{p: p, client: ctx.Conn(), body: ctx.Request.BodyStream(), nth: ctx.ConnRequestNum(), size: int64(ctx.Request.Header.ContentLength())}
}

// Read implements io.Reader. Errors other than io.EOF are of type *Error.
func (in *incoming) Read(b []byte) (int, error) {
	own, _ := in.client.(ender)
	began := time.Now()
	n, err := gather(in.body, b, func(n int) int {
		switch {
		case own == nil:
			return 0
		case own.self().lines.stage() >= 2*in.nth: // all has arrived
			return len(b)
		}
		return int(own.self().lines.arrived-in.sent) - n
	})
	in.sent, in.waited = in.sent+int64(n), in.waited+time.Since(began)
	limit := in.p.cfg.MaxRequestBodyBytes
	switch {
	case limit > 0 && in.sent > limit:
		return 0, &Error{Kind: KindTooLarge, Err: fmt.Errorf("a body of more than %d bytes", limit)}
	case !in.talks.Load() && in.p.tooSlow(in.sent, in.waited):
		err = fasthttp.ErrTimeout
	case err == io.EOF && (in.size >= 0 && in.sent != in.size || in.size < 0 && own != nil && own.self().ended): // see Listen
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		return 0, &Error{Kind: KindClient, Err: err}
	}
	return n, err
}

// upload forwards the request's body as it arrives. An *Error ends the exchange; a plain
// error is the upstream's, which may have answered before it stopped reading.
func (p *Pool) upload(ctx *fasthttp.RequestCtx, c *conn, via *ForwardOptions) (*Error, error) {
	in := newIncoming(p, ctx)
	buf := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buf)
	c.pause = p.cfg.StreamTimeout
	for ended := false; !ended; {
		if err := c.bw.Flush(); err != nil { // before it may wait for the client
			return nil, err
		}
		via.Upload.AwaitClient(true)
		_ = in.client.SetReadDeadline(time.Now().Add(p.cfg.StreamTimeout))
		n, err := in.Read(*buf)
		via.Upload.AwaitClient(false)
		if fault, ok := err.(*Error); ok {
			return fault, nil
		}
		if ended = err == io.EOF; n > 0 {
			if err := writePart(c, (*buf)[:n], in.size < 0); err != nil {
				return nil, err
			}
		}
	}
	if in.size < 0 {
		_, _ = c.bw.WriteString("0\r\n\r\n")
	}
	if err := c.bw.Flush(); err != nil { // or of the write before
		return nil, err
	}
	_ = ctx.Request.CloseBodyStream()
	_ = in.client.SetReadDeadline(time.Time{}) // a broken client shows when it gets its answer
	return nil, nil
}

// tooSlow reports whether a client moves a body too slowly to justify holding the
// upstream's connection: otherwise a byte before each StreamTimeout would do.
func (p *Pool) tooSlow(moved int64, waited time.Duration) bool {
	return waited > p.cfg.StreamTimeout && moved < int64(waited.Seconds()*float64(p.cfg.MinBodyRate))
}

func writePart(c *conn, b []byte, chunked bool) error {
	if chunked {
		head := append(strconv.AppendInt(c.bw.AvailableBuffer(), int64(len(b)), 16), "\r\n"...)
		if _, err := c.bw.Write(head); err != nil {
			return err
		}
	}
	_, err := c.bw.Write(b)
	if err == nil && chunked {
		_, err = c.bw.WriteString("\r\n")
	}
	return err
}
