package decide

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Refusal is the answer to a request that does not pass. Its slices belong to the request.
type Refusal struct {
	Status     int
	RetryAfter int64  // seconds, or 0
	Reason     []byte // why it was shed, if the settings reveal that
	Body       []byte // application/problem+json (RFC 9457)
}

// Refuse returns the answer to a request that did not get Pass.
func (d *Decider) Refuse(r *Request, v Verdict) Refusal {
	switch {
	case v == Malformed:
		return Refusal{Status: http.StatusBadRequest, Body: Problem(http.StatusBadRequest, "Bad request", r.Err.Error())}
	case v == Uncountable:
		return Refusal{Status: http.StatusInternalServerError, Body: Problem(http.StatusInternalServerError, "Rule cannot be applied here", r.Err.Error())}
	case v == Shed:
		return d.shed(r)
	case v == Misbehaved:
		return r.misbehaved()
	case v == Blocked:
		d.Blocked(r)
		return Refusal{Status: http.StatusForbidden, Body: blocked}
	case v == NoRules:
		return r.unavailable("No rules yet")
	case r.Decision.StoreUnavailable: // a rule with on_store_failure: closed could not be counted
		return r.unavailable("The rate limiter is unavailable")
	}
	return r.tooMany()
}

// blocked does not say why: the reason is for operators.
var blocked = Problem(http.StatusForbidden, "Forbidden", "the operators of this site block this address")

// Problem returns a problem document (RFC 9457). It cuts a long detail, which JSON may lengthen
// sixfold.
func Problem(status int, title, detail string) []byte {
	detail = detail[:min(len(detail), maxText/2)]
	doc := struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{"about:blank", title, status, detail}
	b, err := json.Marshal(doc)
	if err != nil {
		return []byte("{}")
	}
	return b
}

// tooMany answers 429 with the rules that refused, as many as fit.
func (r *Request) tooMany() Refusal {
	b := append(r.buf[:0], `{"type":"`+typeQuotaExceeded+`","title":"Too many requests","status":429,"violated-policies":[`...)
	first := true
	for i := range r.Decision.Results {
		if !r.Decision.Results[i].Refuses(&r.Match.Checks[i]) {
			continue
		}
		id := r.Match.Rules[i].ID // [a-z0-9-] only
		if len(b)+len(id)+len(`,""]}`) > maxText {
			break
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), id...), '"')
	}
	r.buf = append(b, "]}"...)
	return Refusal{Status: http.StatusTooManyRequests, RetryAfter: retryAfter(r.Decision.RetryAfter(r.Match.Checks)), Body: r.buf}
}

// unavailable answers 503 until weir itself works again. Retry times are spread, so that
// clients do not all return at once.
func (r *Request) unavailable(title string) Refusal {
	b := append(r.buf[:0], `{"type":"`+typeReducedCapacity+`","title":"`...)
	b = append(b, title...)
	r.buf = append(b, `","status":503}`...)
	return Refusal{Status: http.StatusServiceUnavailable, RetryAfter: retryAfter(time.Second + rand.N(4*time.Second)), Body: r.buf}
}

// shed answers 503: the site is too busy for this request.
func (d *Decider) shed(r *Request) Refusal {
	s, reason := d.Shedding(), r.Permit.Reason()
	wait := s.Document.RetryAfter
	a := Refusal{Status: http.StatusServiceUnavailable, RetryAfter: retryAfter(time.Duration(wait.Min) + rand.N(time.Duration(wait.Max-wait.Min)+1))}
	b := append(r.buf[:0], `{"type":"`+typeReducedCapacity+`","title":"Shedding load","status":503,"class":"`...)
	b = append(b, reason.Class...) // [a-z0-9_-] only
	b = append(b, `"}`...)
	size := len(b)
	if s.Document.ReasonHeader {
		b = appendReason(b, &reason)
	}
	a.Body, a.Reason, r.buf = b[:size], b[size:], b
	d.Shed(r, reason)
	return a
}

// appendReason appends a reason for debugging.
func appendReason(b []byte, reason *shedder.Reason) []byte {
	number := func(name string, v float64) {
		b = append(b, name...)
		b = strconv.AppendFloat(b, math.Round(v*1000)/1000, 'f', -1, 64)
	}
	b = append(b, reason.Signal...)
	number(";value=", reason.Value)
	number(";threshold=", reason.Threshold)
	number(";utilization=", reason.Utilization)
	number(";level=", reason.Level)
	b = append(append(b, ";version="...), reason.Version...)
	b = append(append(b, ";class="...), reason.Class...)
	b = append(append(b, ";upstream="...), reason.Upstream...)
	return append(append(b, ";kind="...), reason.Kind...)
}

// retryAfter rounds up: a client that returns on the second must not be too early.
func retryAfter(wait time.Duration) int64 { return max(1, wholeSeconds(wait)) }

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
