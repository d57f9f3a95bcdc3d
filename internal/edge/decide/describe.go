package decide

import (
	"strconv"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

var (
	headerPolicy       = []byte("RateLimit-Policy")
	headerRateLimit    = []byte("RateLimit")
	headerLegacyLimit  = []byte("X-RateLimit-Limit")
	headerLegacyRemain = []byte("X-RateLimit-Remaining")
	headerLegacyReset  = []byte("X-RateLimit-Reset")
)

// Describe calls set with the fields that describe every enforced rule that governed this
// request (draft-ietf-httpapi-ratelimit-headers: lists of String items). A rule that was
// not evaluated, because another had refused, has a policy but no count. set replaces the
// origin's field of that name, even with an empty value: the origin may also have limits,
// but clients must see only this node's.
func (r *Request) Describe(legacy bool, set func(name, value []byte)) {
	b := r.buf[:0]
	for i := range r.Match.Checks {
		l := r.Match.Checks[i].Limit
		if l.Shadow || i >= len(r.Decision.Results) {
			continue
		}
		b = appendItem(b, l)
		b = append(b, ";q="...)
		b = strconv.AppendInt(b, r.Quota(l), 10)
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
	set(headerPolicy, b)
	b = b[:0]
	for i := range r.Match.Checks {
		l, res := r.Match.Checks[i].Limit, &r.Decision.Results[i]
		if l.Shadow || res.Source == limiter.SourceNone {
			continue
		}
		b = appendItem(b, l)
		b = append(b, ";r="...)
		b = strconv.AppendInt(b, r.Left(l, res), 10)
		if l.Algorithm != limiter.Concurrency {
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, resetAfter(res), 10)
		}
	}
	set(headerRateLimit, b)
	r.buf = b
	if legacy {
		r.describeLegacy(set)
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

// describeLegacy describes the one rule that has the least left.
func (r *Request) describeLegacy(set func(name, value []byte)) {
	var least *limiter.Result
	var left, limit int64
	for i := range r.Match.Checks {
		c, res := &r.Match.Checks[i], &r.Decision.Results[i]
		if c.Limit.Shadow || res.Source == limiter.SourceNone {
			continue
		}
		if l := r.Left(c.Limit, res); least == nil || l < left {
			least, left, limit = res, l, r.Quota(c.Limit)
		}
	}
	if least == nil {
		return
	}
	r.buf = strconv.AppendInt(r.buf[:0], limit, 10)
	set(headerLegacyLimit, r.buf)
	r.buf = strconv.AppendInt(r.buf[:0], left, 10)
	set(headerLegacyRemain, r.buf)
	r.buf = strconv.AppendInt(r.buf[:0], resetAfter(least), 10)
	set(headerLegacyReset, r.buf)
}

// resetAfter returns whole seconds, rounded up, except for the millisecond that the ring of
// rolling_window adds, so that a window of 10 s does not read 11. For a rule that refuses,
// it is when the request can pass, as in Retry-After, even if the rest takes longer.
func resetAfter(res *limiter.Result) int64 {
	t := wholeSeconds(max(0, res.ResetAfter-time.Millisecond))
	if !res.Allowed && res.Remaining == 0 {
		t = min(t, max(1, wholeSeconds(res.RetryAfter)))
	}
	return t
}

// Quota returns how many requests like this one a limit passes: fewer than it says if the
// client's tier makes them count for more.
func (r *Request) Quota(l *limiter.Limit) int64 {
	return max(min(1, l.Limit), r.Tightened(l, l.Limit))
}

// Left returns what remains of the quota, which a bucket's burst may exceed.
func (r *Request) Left(l *limiter.Limit, res *limiter.Result) int64 {
	return min(r.Tightened(l, res.Remaining), r.Quota(l))
}

// Tightened converts units of a limit to requests like this one.
func (r *Request) Tightened(l *limiter.Limit, units int64) int64 {
	if f := r.Risk.factor; f > 0 && scales(l) {
		return int64(float64(units) * f)
	}
	return units
}
