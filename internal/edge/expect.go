package edge

import (
	"time"

	"github.com/valyala/fasthttp"
)

// expected is a request that was decided while its client waits for permission to send the
// body.
type expected struct{ r *request }

var headerExpect = []byte(fasthttp.HeaderExpect)

// expectedKey is where a RequestCtx keeps it.
type expectedKey struct{}

// headerReceived prepares a header for fasthttp, which calls expect only for the exact
// value 100-continue, and would send 100 even to an HTTP/1.0 client, which does not know
// it. checkHeader refuses other expectations, using the bytes as received.
func headerReceived(h *fasthttp.RequestHeader) (unchanged fasthttp.RequestConfig) {
	if len(h.PeekCanonical(headerExpect)) == 0 {
		return unchanged
	}
	if h.IsHTTP11() {
		h.Set(fasthttp.HeaderExpect, "100-continue")
	} else {
		h.Del(fasthttp.HeaderExpect)
	}
	return unchanged
}

// expect decides a request with Expect: 100-continue, so that a refused client never gets
// permission to send its body. It returns the status of the answer, 100 for a request that
// passes; fasthttp then reads the body and calls serve.
func (e *Edge) expect(ctx *fasthttp.RequestCtx) int {
	r := e.begin(ctx)
	r.Began = time.Now() // fasthttp sets the time only before serve
	if !r.decideExpect() {
		return ctx.Response.StatusCode()
	}
	ctx.SetUserValue(expectedKey{}, &expected{r})
	return fasthttp.StatusContinue
}

// decideExpect is decideOrRefuse for a request that has no handler yet: it also ends a refused request.
func (r *request) decideExpect() (passed bool) {
	defer func() {
		if p := recover(); p != nil || !passed {
			passed = false
			r.conclude(p)
		}
	}()
	return r.decideOrRefuse()
}

// expectedRequest returns the request that expect has let pass, or nil.
func expectedRequest(ctx *fasthttp.RequestCtx) (r *request) {
	if x, ok := ctx.UserValue(expectedKey{}).(*expected); ok {
		r, x.r = x.r, nil
	}
	return r
}

// Close ends a request whose body never came. fasthttp calls it when it is done with the
// RequestCtx.
func (x *expected) Close() error {
	if r := x.r; r != nil {
		x.r = nil
		r.ctx.Response.SetStatusCode(fasthttp.StatusBadRequest)
		r.conclude(nil)
	}
	return nil
}
