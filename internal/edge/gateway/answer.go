package gateway

import (
	"net/http"
	"strconv"

	"github.com/weir-edge/weir/internal/edge/decide"
)

var (
	headerRetryAfter = []byte("Retry-After")
	headerShedReason = []byte("Weir-Shed-Reason")
	headerStatus     = []byte("Weir-Status")  // the status that nginx gives its client
	headerProblem    = []byte("Weir-Problem") // with this body
	problemJSON      = []byte("application/problem+json")
)

// refuse answers an authorization request for one that does not pass.
func (q *authRequest) refuse(v decide.Verdict) {
	a := q.server.config.Decider.Refuse(&q.Request, v)
	q.start(a.Status, a.Body)
	header := &q.ctx.Response.Header
	if a.RetryAfter > 0 {
		q.buf = strconv.AppendInt(q.buf[:0], a.RetryAfter, 10)
		header.SetCanonical(headerRetryAfter, q.buf)
	}
	if len(a.Reason) > 0 {
		header.SetCanonical(headerShedReason, a.Reason)
	}
	q.setLimitHeaders()
}

// setLimitHeaders adds the fields that describe the limits of the request.
func (q *authRequest) setLimitHeaders() {
	header := &q.ctx.Response.Header
	q.SetLimitHeaders(q.server.config.Legacy, func(name, value []byte) {
		if len(value) > 0 {
			header.SetCanonical(name, value)
		}
	})
}

// problem answers with a problem document.
func (q *authRequest) problem(status int, title, detail string) {
	q.start(status, decide.Problem(status, title, detail))
}

// start begins a refusal. nginx drops the body of a refusal and turns every status but 401 and
// 403 into 500, so its configuration takes both from headers. A problem document is one
// line: JSON escapes line breaks.
func (q *authRequest) start(status int, body []byte) {
	r := &q.ctx.Response
	r.Header.SetContentTypeBytes(problemJSON)
	r.SetBody(body) // copies: the slice is the pool's
	if !q.nginx {
		r.SetStatusCode(status)
		return
	}
	r.SetStatusCode(http.StatusForbidden)
	q.buf = strconv.AppendInt(q.buf[:0], int64(status), 10)
	r.Header.SetCanonical(headerStatus, q.buf)
	r.Header.SetCanonical(headerProblem, body)
}
