package edge

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
)

var (
	headerRetryAfter = []byte("Retry-After")
	headerShedReason = []byte("Weir-Shed-Reason")
	problemJSON      = []byte("application/problem+json")
)

// refuse answers a request that does not pass.
func (r *request) refuse(v decide.Verdict) {
	a := r.edge.decider.Refuse(&r.Request, v)
	r.start(a.Status)
	header := &r.ctx.Response.Header
	if a.RetryAfter > 0 {
		r.buf = strconv.AppendInt(r.buf[:0], a.RetryAfter, 10)
		header.SetCanonical(headerRetryAfter, r.buf)
	}
	if len(a.Reason) > 0 {
		header.SetCanonical(headerShedReason, a.Reason)
	}
	r.ctx.Response.SetBody(a.Body) // copies: the slices are the pool's
	r.setLimitHeaders()
}

// setLimitHeaders adds the fields that describe the limits of this request.
func (r *request) setLimitHeaders() {
	header := &r.ctx.Response.Header
	r.SetLimitHeaders(r.edge.config.LegacyHeaders, func(name, value []byte) {
		if r.Decision.Allowed { // the response is the origin's
			header.DelBytes(name)
		}
		if len(value) > 0 {
			header.SetCanonical(name, value)
		}
	})
}

// badRequest answers a malformed request.
func (r *request) badRequest(err error) {
	status, title := fasthttp.StatusBadRequest, "Bad request"
	switch err {
	case errVersion:
		status, title = fasthttp.StatusHTTPVersionNotSupported, "HTTP version not supported"
	case errExpect:
		status, title = fasthttp.StatusExpectationFailed, "Expectation failed"
	case errLoop:
		status, title = fasthttp.StatusLoopDetected, "Loop detected"
	case errTrace:
		status, title = fasthttp.StatusNotImplemented, "Not implemented"
	}
	r.problem(status, title, err.Error())
}

// upstreamFailed answers for an origin that failed to.
func (r *request) upstreamFailed(err *proxy.Error) {
	status := err.Status()
	if status >= fasthttp.StatusInternalServerError && err.Kind != proxy.KindUnsupported {
		if skipped, ok := r.edge.upstreamLog.Sample(r.Began); ok {
			r.edge.log.Warn("upstream failed", "upstream", err.Upstream, "kind", err.Kind.String(), "error", err.Err, "not_logged", skipped)
		}
	}
	r.problem(status, fasthttp.StatusMessage(status), "")
}

// problem answers with a problem document.
func (r *request) problem(status int, title, detail string) {
	r.start(status)
	r.ctx.Response.SetBodyRaw(decide.Problem(status, title, detail))
}

// start begins an answer of this node's own.
func (r *request) start(status int) {
	r.ctx.Response.SetStatusCode(status)
	r.ctx.Response.Header.SetContentTypeBytes(problemJSON)
}
