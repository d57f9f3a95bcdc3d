package edge

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/limiter"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

var (
	headerPolicy       = []byte("RateLimit-Policy")
	headerRateLimit    = []byte("RateLimit")
	headerRetryAfter   = []byte("Retry-After")
	headerLegacyLimit  = []byte("X-RateLimit-Limit")
	headerLegacyRemain = []byte("X-RateLimit-Remaining")
	headerLegacyReset  = []byte("X-RateLimit-Reset")
	problemJSON        = []byte("application/problem+json")
)

// prefetched is how much of a streamed body fasthttp reads before the handler.
const prefetched = 8 << 10

// tooMany answers 429 with the rules that refused.
func (r *request) tooMany(wait time.Duration) {
	r.start(fasthttp.StatusTooManyRequests)
	r.retryAfter(wait)
	b := append(r.buf[:0], `{"type":"`+typeQuotaExceeded+`","title":"Too many requests","status":429,"violated-policies":[`...)
	first := true
	for i := range r.decision.Results {
		if !r.decision.Results[i].Refuses(&r.match.Checks[i]) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = append(b, r.match.Rules[i].ID...) // [a-z0-9-] only
		b = append(b, '"')
	}
	r.body(append(b, "]}"...))
}

// unavailable answers 503: a rule that says closed could not be counted.
func (r *request) unavailable() {
	r.start(fasthttp.StatusServiceUnavailable)
	r.retryAfter(r.edge.jittered())
	r.body(append(r.buf[:0], `{"type":"`+typeReducedCapacity+`","title":"The rate limiter is unavailable","status":503}`...))
}

// noRules answers 503: there have never been any rules, and nothing is to pass
// without.
func (r *request) noRules() {
	r.start(fasthttp.StatusServiceUnavailable)
	r.retryAfter(r.edge.jittered())
	r.body(append(r.buf[:0], `{"type":"`+typeReducedCapacity+`","title":"No rules yet","status":503}`...))
}

func (r *request) badRequest(err error) {
	status, title := fasthttp.StatusBadRequest, "Bad request"
	switch err {
	case errVersion:
		status, title = fasthttp.StatusHTTPVersionNotSupported, "HTTP version not supported"
	case errExpect:
		status, title = fasthttp.StatusExpectationFailed, "Expectation failed"
	case errTrace:
		status, title = fasthttp.StatusNotImplemented, "Not implemented"
	}
	r.problem(status, "about:blank", title, err.Error())
}

// upstreamFailed answers for an origin that did not.
func (r *request) upstreamFailed(err *proxy.Error) {
	status := err.Status()
	if err.Close {
		r.ctx.SetConnectionClose()
	}
	if status >= fasthttp.StatusInternalServerError && err.Kind != proxy.KindUnsupported {
		if skipped, ok := r.edge.upstreamLog.sample(r.began); ok {
			r.edge.log.Warn("upstream failed", "upstream", err.Upstream, "kind", err.Kind.String(), "error", err.Err, "not_logged", skipped)
		}
	}
	r.problem(status, "about:blank", fasthttp.StatusMessage(status), "")
}

// problem answers with a problem document (RFC 9457).
func (r *request) problem(status int, kind, title, detail string) {
	doc := struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{kind, title, status, detail}
	b, err := json.Marshal(doc)
	if err != nil {
		b = []byte("{}")
	}
	r.start(status)
	r.body(b)
}

// start begins an answer of this node's own. What of a streamed body nobody has
// read would be taken for the next request, so the connection cannot go on.
func (r *request) start(status int) {
	if r.ctx.Request.IsBodyStream() {
		if n := r.ctx.Request.Header.ContentLength(); n < 0 || n > prefetched {
			r.ctx.SetConnectionClose()
		}
	}
	r.ctx.Response.SetStatusCode(status)
	r.ctx.Response.Header.SetContentTypeBytes(problemJSON)
}

func (r *request) body(b []byte) {
	r.ctx.Response.SetBody(b) // copies: the buffer is the pool's
	r.buf = b
}

// retryAfter rounds up: a client that returns on the second must not be too early.
func (r *request) retryAfter(wait time.Duration) {
	r.buf = strconv.AppendInt(r.buf[:0], max(1, wholeSeconds(wait)), 10)
	r.ctx.Response.Header.SetCanonical(headerRetryAfter, r.buf)
}

// resetAfter returns whole seconds, rounded up, but for the millisecond that the ring of
// rolling_window adds: a window of 10 s is not to read 11. Of a rule that refuses, it is
// when the request can pass, as Retry-After says, even if the rest takes longer.
func resetAfter(res *limiter.Result) int64 {
	t := wholeSeconds(max(0, res.ResetAfter-time.Millisecond))
	if !res.Allowed && res.Remaining == 0 {
		t = min(t, max(1, wholeSeconds(res.RetryAfter)))
	}
	return t
}

// remaining is never more than the quota, which a bucket's burst may exceed.
func remaining(l *limiter.Limit, res *limiter.Result) int64 { return min(res.Remaining, l.Limit) }

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// describe adds the RateLimit headers of every enforced rule that governed this
// request (draft-ietf-httpapi-ratelimit-headers: lists of String items). A rule
// that was not asked, because another had refused, has a policy but no count.
func (r *request) describe() {
	header := &r.ctx.Response.Header
	b := r.buf[:0]
	for i := range r.match.Checks {
		l := r.match.Checks[i].Limit
		if l.Shadow || i >= len(r.decision.Results) {
			continue
		}
		b = appendItem(b, l)
		b = append(b, ";q="...)
		b = strconv.AppendInt(b, l.Limit, 10)
		if l.Algorithm == limiter.Concurrency { // its window is only how long a lost slot lasts
			b = append(b, `;qu="concurrent-requests"`...)
		} else {
			b = append(b, ";w="...)
			b = strconv.AppendInt(b, wholeSeconds(l.Window), 10)
		}
	}
	if len(b) == 0 {
		return
	}
	if r.decision.Allowed { // the origin may limit too, but only this node's word holds here
		header.DelBytes(headerPolicy)
		header.DelBytes(headerRateLimit)
	}
	header.SetCanonical(headerPolicy, b)
	b = b[:0]
	for i := range r.match.Checks {
		l, res := r.match.Checks[i].Limit, &r.decision.Results[i]
		if l.Shadow || res.Source == limiter.SourceNone {
			continue
		}
		b = appendItem(b, l)
		b = append(b, ";r="...)
		b = strconv.AppendInt(b, remaining(l, res), 10)
		if l.Algorithm != limiter.Concurrency {
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, resetAfter(res), 10)
		}
	}
	if len(b) > 0 {
		header.SetCanonical(headerRateLimit, b)
	}
	r.buf = b
	if r.edge.config.LegacyHeaders {
		r.describeLegacy()
	}
}

func appendItem(b []byte, l *limiter.Limit) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, l.Rule...)
	return append(b, '"')
}

// describeLegacy speaks of the one rule that has the least left.
func (r *request) describeLegacy() {
	var least *limiter.Result
	var limit int64
	for i := range r.match.Checks {
		c, res := &r.match.Checks[i], &r.decision.Results[i]
		if c.Limit.Shadow || res.Source == limiter.SourceNone {
			continue
		}
		if least == nil || res.Remaining < least.Remaining {
			least, limit = res, c.Limit.Limit
		}
	}
	if least == nil {
		return
	}
	header := &r.ctx.Response.Header
	for _, name := range [...][]byte{headerLegacyLimit, headerLegacyRemain, headerLegacyReset} {
		header.DelBytes(name) // the origin's, in whatever letter case
	}
	r.buf = strconv.AppendInt(r.buf[:0], limit, 10)
	header.SetCanonical(headerLegacyLimit, r.buf)
	r.buf = strconv.AppendInt(r.buf[:0], min(least.Remaining, limit), 10)
	header.SetCanonical(headerLegacyRemain, r.buf)
	r.buf = strconv.AppendInt(r.buf[:0], resetAfter(least), 10)
	header.SetCanonical(headerLegacyReset, r.buf)
}
