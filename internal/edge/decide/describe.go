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

// maxText bounds each of an answer's long parts, in bytes: RateLimit-Policy, RateLimit and a
// problem document. With other fields they stay below 4 KiB: gateways and intermediaries treat a
// longer header as a failed server and may then let requests pass.
const maxText = 1 << 10

// SetLimitHeaders calls set with the fields that describe the enforced rules that governed this
// request (draft-ietf-httpapi-ratelimit-headers: lists of String items): first the rules that
// refused it, then others while they fit. A rule that was not evaluated, because another had
// refused, has a policy but no count. set replaces the origin's field of that name, even with an
// empty value: the origin may also have limits, but clients must see only this node's.
func (r *Request) SetLimitHeaders(legacy bool, set func(name, value []byte)) {
	b, listed := r.buf[:0], 0
	for i := range r.enforcedChecks {
		before := len(b)
		if b = r.appendPolicy(b, r.Match.Checks[i].Limit); len(b) > maxText {
			b = b[:before]
			break
		}
		listed++
	}
	if listed == 0 {
		return
	}
	set(headerPolicy, b)
	b = b[:0]
	for i := range r.enforcedChecks {
		l, res, before := r.Match.Checks[i].Limit, &r.Decision.Results[i], len(b)
		if res.Source != limiter.SourceNone {
			b = r.appendCount(b, l, res)
		}
		if listed--; listed == 0 || len(b) > maxText {
			if len(b) > maxText {
				b = b[:before]
			}
			break
		}
	}
	set(headerRateLimit, b)
	r.buf = b
	if legacy {
		r.setLegacyHeaders(set)
	}
}

// enforcedChecks yields the enforced checks, those that refused first.
func (r *Request) enforcedChecks(yield func(int) bool) {
	for _, refused := range [2]bool{true, false} {
		for i := range r.Decision.Results {
			c := &r.Match.Checks[i]
			if !c.Limit.Shadow && r.Decision.Results[i].Refuses(c) == refused && !yield(i) {
				return
			}
		}
	}
}

func (r *Request) appendPolicy(b []byte, l *limiter.Limit) []byte {
	b = appendSeparator(b)
	if quota := r.Quota(l); quota != l.Limit {
		return l.AppendPolicy(b, quota)
	}
	return append(b, l.Policy()...)
}

func (r *Request) appendCount(b []byte, l *limiter.Limit, res *limiter.Result) []byte {
	b = append(append(append(appendSeparator(b), '"'), l.Rule...), `";r=`...)
	b = strconv.AppendInt(b, r.Left(l, res), 10)
	if l.Algorithm == limiter.Concurrency {
		return b
	}
	return strconv.AppendInt(append(b, ";t="...), resetAfter(res), 10)
}

// appendSeparator separates an item of a list from the one before it.
func appendSeparator(b []byte) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	return b
}

// setLegacyHeaders describes the one rule that has the least left.
func (r *Request) setLegacyHeaders(set func(name, value []byte)) {
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
	if f := r.BehaviorResult.factor; f > 0 && scales(l) {
		return int64(float64(units) * f)
	}
	return units
}
