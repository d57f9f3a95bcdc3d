package spoe

import (
	"net/http"
	"strconv"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/gateway"
)

// An action of an ACK: it sets a variable of the transaction.
const (
	setVar           = 1
	setVarParts      = 3
	scopeTransaction = 2 // until the response is sent
)

// answer is an ACK in progress.
type answer struct {
	frame []byte
	most  int // bytes, without the length
}

// set sets a variable, unless the frame would exceed what HAProxy reads. Callers set the
// most important ones first.
func (a *answer) set(name string, write func([]byte) []byte) {
	before := len(a.frame)
	a.frame = append(a.frame, setVar, setVarParts, scopeTransaction)
	if a.frame = write(appendText(a.frame, name)); len(a.frame)-lengthSize > a.most {
		a.frame = a.frame[:before]
	}
}

func (a *answer) setText(name string, text []byte) {
	if len(text) > 0 {
		a.set(name, func(b []byte) []byte { return appendString(b, text) })
	}
}

// decide answers a request.
func (c *conn) decide(f *frame, unclear error) gateway.Answer {
	q, d := &c.request, c.server.config.Decider
	defer func() { q.Permit.Done() }()
	v := decide.Malformed
	if q.Err = unclear; unclear == nil {
		q.Err = d.ReadTarget(&q.Request, q.target)
	}
	if q.Err == nil {
		v = d.Decide(&q.Request)
	}
	outcome, r := gateway.Pass, decide.Refusal{Status: http.StatusOK}
	if v != decide.Pass {
		outcome, r = gateway.AnswerTo(v, &q.Request), d.Refuse(&q.Request, v)
	}
	c.write(f, outcome, r)
	return outcome
}

// write builds the ACK.
func (c *conn) write(f *frame, outcome gateway.Answer, r decide.Refusal) {
	a := answer{begin(c.out, agentAck, f.stream, f.id), c.maxFrame}
	refused := byte(typeBool)
	if outcome != gateway.Pass {
		refused |= flagTrue
	}
	a.set("refused", func(b []byte) []byte { return append(b, refused) })
	a.set("status", func(b []byte) []byte { return appendUint32(b, uint32(r.Status)) })
	a.set("reason", func(b []byte) []byte { return appendString(b, outcome.String()) })
	if r.RetryAfter > 0 {
		c.scratch = strconv.AppendInt(c.scratch[:0], r.RetryAfter, 10)
		a.setText("retry_after", c.scratch)
	}
	a.setText("problem", r.Body)
	a.setText("shed_reason", r.Reason)
	c.request.SetLimitHeaders(c.server.config.Legacy, func(name, value []byte) { a.setText(variable(name), value) })
	c.out = finish(a.frame)
}

// variable returns the variable name for a field, without allocating.
func variable(field []byte) string {
	switch string(field) {
	case "RateLimit-Policy":
		return "ratelimit_policy"
	case "RateLimit":
		return "ratelimit"
	case "X-RateLimit-Limit":
		return "x_ratelimit_limit"
	case "X-RateLimit-Remaining":
		return "x_ratelimit_remaining"
	case "X-RateLimit-Reset":
		return "x_ratelimit_reset"
	}
	return string(field)
}
