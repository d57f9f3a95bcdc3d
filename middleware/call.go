package middleware

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter"
)

// Fields gives access to the named parts of a request. What its methods return must stay unchanged until Call.End.
type Fields interface {
	// Header returns the values of a header, in the order received. The name is in
	// canonical form, like X-Api-Key.
	Header(name string) [][]byte
	// Cookie returns the first value of a cookie, and how many times it occurs.
	Cookie(name string) (value []byte, n int)
}

// Request describes a request to Limiter.Begin. Its slices must stay unchanged until Call.End.
type Request struct {
	Peer   netip.Addr // the other end of the connection
	Method []byte     // as sent
	Host   []byte     // as sent: any case, perhaps with a port
	Target []byte     // path and query, as sent
	Fields Fields
}

// Call is a request in progress, from Limiter.Begin to End. Only one goroutine may use it at a time.
type Call struct {
	limiter *Limiter
	request decide.Request
	fields  Fields
	verdict decide.Verdict
	refusal decide.Refusal
	buf     []byte
}

// Begin decides a request. Once the request has been answered, the caller must call End.
func (l *Limiter) Begin(q Request) *Call {
	c := l.calls.Get().(*Call)
	r := &c.request
	c.fields, c.verdict = q.Fields, decide.Malformed
	r.Began, r.Rules, r.Peer, r.Method, r.Host = time.Now(), l.rules(), q.Peer.WithZone("").Unmap(), q.Method, q.Host
	if r.Err = l.decider.ReadTarget(r, q.Target); r.Err == nil {
		c.verdict = l.decider.Decide(r)
	}
	if c.verdict != decide.Pass {
		c.refusal = l.decider.Refuse(r, c.verdict)
		c.buf = append(c.buf[:0], c.refusal.Body...) // the slice belongs to the request, which describes its limits in it
		c.refusal.Body = c.buf
	}
	return c
}

// Passed reports whether the request may pass.
func (c *Call) Passed() bool { return c.verdict == decide.Pass }

// Status returns the HTTP status for a request that may not pass: 429; 503 while a rule with
// on_store_failure: closed cannot be counted; or 400 for an ambiguous request.
func (c *Call) Status() int { return c.refusal.Status }

// Body returns the body for that answer, application/problem+json. It is valid until End.
func (c *Call) Body() []byte { return c.refusal.Body }

// RetryAfter returns after how many seconds a refused request can succeed; 0 if that is unknown.
func (c *Call) RetryAfter() int64 { return c.refusal.RetryAfter }

// Describe calls set with each header of the answer, whether the request passes or not:
// RateLimit-Policy, RateLimit and so on, and Retry-After, in canonical form. The value is valid
// until set returns.
func (c *Call) Describe(set func(name string, value []byte)) {
	c.request.SetLimitHeaders(c.limiter.config.LegacyHeaders, func(name, value []byte) {
		if len(value) > 0 {
			set(headerName(name), value)
		}
	})
	if c.refusal.RetryAfter > 0 {
		var digits [20]byte
		set("Retry-After", strconv.AppendInt(digits[:0], c.refusal.RetryAfter, 10))
	}
}

// headerName returns a name without allocating it again.
func headerName(name []byte) string {
	switch string(name) {
	case "RateLimit-Policy":
		return "RateLimit-Policy"
	case "RateLimit":
		return "RateLimit"
	}
	return string(name)
}

// End ends the call once the request has been answered, and returns its concurrency slots. Do not use c afterwards.
func (c *Call) End() {
	r := &c.request
	var checks []limiter.Check
	var results []limiter.Result
	for i := range r.Decision.Results {
		check := r.Match.Checks[i]
		if !r.Decision.Results[i].Charged || check.Limit.Algorithm != limiter.Concurrency {
			continue
		}
		check.Key = append([]byte(nil), check.Key...)
		checks, results = append(checks, check), append(results, r.Decision.Results[i])
	}
	if len(checks) > 0 {
		c.limiter.returnSlots(checks, results)
	}
	r.Reset()
	c.fields, c.refusal = nil, decide.Refusal{}
	c.limiter.calls.Put(c)
}

// given are the fields of a call's request.
type given Call

var _ decide.Fields = (*given)(nil)

// Header implements decide.Fields.
func (c *given) Header(name string) [][]byte { return c.fields.Header(name) }

// Cookie implements decide.Fields.
func (c *given) Cookie(name string) ([]byte, int) { return c.fields.Cookie(name) }
