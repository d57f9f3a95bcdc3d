package proxy

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Uploads reports whether a client may still be sending the body of a request that has not
// been forwarded.
func Uploads(ctx *fasthttp.RequestCtx) bool {
	n := ctx.Request.Header.ContentLength()
	if n > 0 && n <= smallRequest { // fasthttp has read it, unless the client waits for 100
		_, http2 := ctx.Conn().(streamed)
		return http2 || ctx.Request.MayContinue()
	}
	return n > 0 || n == -1
}

// unwatched is an Upload that nobody wants to know of.
type unwatched struct{}

func (unwatched) AwaitClient(bool) {}
func (unwatched) Received()        {}

// upload forwards the request's body as it arrives. An *Error ends the exchange; a plain
// error is the upstream's, which may have answered before it stopped reading.
func (p *Pool) upload(ctx *fasthttp.RequestCtx, c *conn, via *Via) (*Error, error) {
	req := &ctx.Request
	size := int64(req.Header.ContentLength())
	body, client, watch := req.BodyStream(), ctx.Conn(), via.Upload // via stays on the stack
	buf := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buf)
	c.pause = p.cfg.StreamTimeout

	var sent int64
	var waited time.Duration // for the client
	var began time.Time      // of the present wait
	var failed error         // to write
	// What has arrived goes on in one piece, before the connection may block for more.
	await := func() error {
		if !began.IsZero() {
			return nil
		}
		if failed = c.bw.Flush(); failed != nil {
			return failed
		}
		began = time.Now()
		watch.AwaitClient(true)
		return client.SetReadDeadline(began.Add(p.cfg.StreamTimeout))
	}
	own, tells := client.(ender)
	if tells {
		own.self().beforeBlocking = await
		defer func() { own.self().beforeBlocking = nil }()
	}
	for {
		if began = (time.Time{}); !tells && await() != nil && failed != nil {
			return nil, failed
		}
		n, rerr := body.Read(*buf)
		if failed != nil {
			return nil, failed
		}
		if sent += int64(n); !began.IsZero() {
			watch.AwaitClient(false)
			waited += time.Since(began)
		}
		if p.tooSlow(sent, waited) {
			return &Error{Kind: KindClient, Err: fasthttp.ErrTimeout}, nil
		}
		if limit := p.cfg.MaxRequestBodyBytes; limit > 0 && sent > limit {
			return &Error{Kind: KindTooLarge, Err: fmt.Errorf("a body of more than %d bytes", limit)}, nil
		}
		if n > 0 {
			if err := writePart(c, (*buf)[:n], size < 0); err != nil {
				return nil, err
			}
		}
		if rerr == io.EOF {
			break
		}
		if rerr != nil {
			return &Error{Kind: KindClient, Err: rerr}, nil
		}
	}
	cut := size >= 0 && sent != size
	if tells && size < 0 {
		cut = own.self().ended // see Listen
	}
	if cut {
		return &Error{Kind: KindClient, Err: io.ErrUnexpectedEOF}, nil
	}
	watch.Received()
	if size < 0 {
		_, _ = c.bw.WriteString("0\r\n\r\n")
	}
	if err := c.bw.Flush(); err != nil { // or of the write before
		return nil, err
	}
	_ = req.CloseBodyStream()
	_ = client.SetReadDeadline(time.Time{}) // a broken client shows when it gets its answer
	return nil, nil
}

// tooSlow reports whether a client moves a body too slowly to justify holding the
// upstream's connection: otherwise a byte before each StreamTimeout would do.
func (p *Pool) tooSlow(moved int64, waited time.Duration) bool {
	return waited > p.cfg.StreamTimeout && moved < int64(waited.Seconds()*float64(p.cfg.MinBodyRate))
}

// writePart writes part of a body.
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
