// Package fasthttpweir limits the requests of a fasthttp server by weir's rules.
//
//	limiter, err := middleware.New(middleware.Config{Rules: rules})
//	if err != nil {
//		log.Fatal(err)
//	}
//	fasthttp.ListenAndServe(":8080", fasthttpweir.Handler(limiter, handle))
package fasthttpweir

import (
	"net"
	"net/netip"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/middleware"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Handler returns a handler that answers the requests that the rules refuse, and passes all others to next.
// A request holds its concurrency slots until next returns, so a body that is streamed afterwards holds none.
//
// Handler sets the RateLimit headers after next returns, and replaces those that next has set.
func Handler(l *middleware.Limiter, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		f := pool.Get().(*fields)
		f.h = &ctx.Request.Header
		c := l.Begin(middleware.Request{
			Peer: addrOf(ctx.RemoteAddr()), Method: ctx.Method(), Host: ctx.Request.Header.Host(), Target: target(ctx), Fields: f,
		})
		defer func() {
			c.End()
			f.h = nil
			pool.Put(f)
		}()
		if c.Passed() {
			next(ctx)
		} else {
			ctx.Response.Reset()
			ctx.SetStatusCode(c.Status())
			ctx.SetContentType("application/problem+json")
			ctx.SetBody(c.Body()) // copies
		}
		c.Describe(ctx.Response.Header.SetBytesV)
	}
}

// target returns the request target without scheme and host.
func target(ctx *fasthttp.RequestCtx) []byte {
	t := ctx.Request.Header.RequestURI()
	if len(t) > 0 && (t[0] == '/' || t[0] == '*') {
		return t
	}
	return ctx.URI().RequestURI()
}

func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr()
	}
	return netip.Addr{}
}

var pool = sync.Pool{New: func() any { return &fields{} }}

// fields are those of a request of fasthttp.
type fields struct{ h *fasthttp.RequestHeader }

var _ middleware.Fields = (*fields)(nil)

// Header implements middleware.Fields.
func (f *fields) Header(name string) [][]byte { return f.h.PeekAll(name) }

// Cookie implements middleware.Fields.
func (f *fields) Cookie(name string) (value []byte, n int) {
	for _, line := range f.h.PeekAll(fasthttp.HeaderCookie) {
		value, n = rules.FindCookie(line, name, value, n)
	}
	return value, n
}
