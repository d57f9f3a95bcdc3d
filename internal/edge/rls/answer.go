package rls

import (
	"math"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/pkg/limiter"
)

// answer is the response to a call, with the messages that it points to. All of it is reused.
type answer struct {
	response pb.RateLimitResponse
	statuses []*descriptorStatus // kept; the first n are in use
	refused  bool

	fields     envoy.Fields
	headers    []*core.HeaderValue // kept
	retryAfter int64
	metadata   envoy.Metadata
}

type descriptorStatus struct {
	pb.RateLimitResponse_DescriptorStatus
	limit pb.RateLimitResponse_RateLimit
	times wrapperspb.UInt32Value
	reset durationpb.Duration
}

func (a *answer) reset() {
	r := &a.response
	clear(r.Statuses)
	r.Statuses, r.ResponseHeadersToAdd, r.RawBody, r.DynamicMetadata = r.Statuses[:0], r.ResponseHeadersToAdd[:0], nil, nil
	a.refused, a.retryAfter = false, 0
	a.metadata.Reset()
	a.fields.Reset()
}

// begin adds a status for each of n descriptors. It stays OK without a limit if no rule applies.
func (a *answer) begin(n int) {
	for len(a.statuses) < n {
		a.statuses = append(a.statuses, &descriptorStatus{})
	}
	for _, s := range a.statuses[:n] {
		s.Code, s.CurrentLimit, s.LimitRemaining, s.DurationUntilReset = pb.RateLimitResponse_OK, nil, 0, nil
		a.response.Statuses = append(a.response.Statuses, &s.RateLimitResponse_DescriptorStatus)
	}
}

// describe writes what was decided about the descriptors from the first on.
func (c *call) describe(first int, passed bool) {
	chosen, of := -1, int32(-1)
	for _, u := range c.Match.Uses {
		if u.Descriptor != of && chosen >= 0 {
			c.show(c.answer.statuses[first+int(of)], chosen)
			chosen = -1
		}
		of, chosen = u.Descriptor, c.tighter(chosen, int(u.Check))
	}
	if chosen >= 0 {
		c.show(c.answer.statuses[first+int(of)], chosen)
	}
	c.metadata.Note(&c.Request)
	c.describeAll(passed)
}

// tighter returns which of two checks describes a descriptor: one that refuses, or else the
// one with less remaining. It ignores shadow rules and checks that were not decided.
func (c *call) tighter(one, other int) int {
	o := &c.Decision.Results[other]
	if c.Match.Checks[other].Limit.Shadow || o.Source == limiter.SourceNone {
		return one
	}
	if one < 0 {
		return other
	}
	r := &c.Decision.Results[one]
	if r.Allowed != o.Allowed {
		if o.Allowed {
			return one
		}
		return other
	}
	if o.Remaining < r.Remaining {
		return other
	}
	return one
}

// show fills the status of a descriptor from a check.
func (c *call) show(s *descriptorStatus, check int) {
	l, res := c.Match.Checks[check].Limit, &c.Decision.Results[check]
	s.limit.Name, s.limit.RequestsPerUnit = l.Rule, uint32(l.Limit) // at most limiter.MaxCount
	s.limit.Unit, s.times.Value = unitOf(l.Window)
	s.limit.UnitMultiplier = nil
	if s.times.Value > 1 {
		s.limit.UnitMultiplier = &s.times
	}
	s.CurrentLimit = &s.limit
	s.LimitRemaining = uint32(min(max(res.Remaining, 0), l.Limit))
	wait := res.ResetAfter
	if !res.Allowed {
		s.Code, wait = pb.RateLimitResponse_OVER_LIMIT, res.RetryAfter
	}
	wait = max(wait, 0)
	s.reset.Seconds, s.reset.Nanos = int64(wait/time.Second), int32(wait%time.Second)
	s.DurationUntilReset = &s.reset
}

// unitOf returns a window as a number of Envoy's units, the largest that fits.
func unitOf(window time.Duration) (pb.RateLimitResponse_RateLimit_Unit, uint32) {
	const day = 24 * time.Hour
	for _, u := range [...]struct {
		length time.Duration
		unit   pb.RateLimitResponse_RateLimit_Unit
	}{
		{30 * day, pb.RateLimitResponse_RateLimit_MONTH}, {7 * day, pb.RateLimitResponse_RateLimit_WEEK}, {day, pb.RateLimitResponse_RateLimit_DAY},
		{time.Hour, pb.RateLimitResponse_RateLimit_HOUR}, {time.Minute, pb.RateLimitResponse_RateLimit_MINUTE}, {time.Second, pb.RateLimitResponse_RateLimit_SECOND},
	} {
		if window%u.length == 0 && window/u.length <= math.MaxUint32 {
			return u.unit, uint32(window / u.length)
		}
	}
	return pb.RateLimitResponse_RateLimit_UNKNOWN, 0 // Envoy has no unit below a second
}

// describeAll writes the headers and the body. If descriptors are decided separately, the
// first refused one determines them.
func (c *call) describeAll(passed bool) {
	a := &c.answer
	if a.refused {
		return
	}
	if !passed {
		a.fields.Reset()
		a.refused = true
		if !c.Decision.Unavailable { // the body would say 503, and Envoy answers 429
			refusal := c.service.Decider.Refuse(&c.Request, decide.Limited)
			a.retryAfter = refusal.RetryAfter
			a.fields.SetBody(refusal.Body)
			a.fields.Add("content-type", []byte("application/problem+json"))
		} else {
			a.retryAfter = c.service.Decider.Refuse(&c.Request, decide.Limited).RetryAfter
		}
		a.fields.AddInt("retry-after", a.retryAfter)
	}
	if !c.service.Headers {
		return
	}
	written := false
	c.Describe(c.service.Legacy, func(name, value []byte) {
		if !written && passed {
			a.fields.Reset()
		}
		written = true
		a.fields.Add(envoy.HeaderName(name), value)
	})
}

// finish completes the response.
func (a *answer) finish() Outcome {
	r := &a.response
	r.OverallCode = pb.RateLimitResponse_OK
	if a.refused {
		r.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	for len(a.headers) < a.fields.Len() {
		a.headers = append(a.headers, &core.HeaderValue{})
	}
	for i, h := range a.headers[:a.fields.Len()] {
		h.Key, h.Value = a.fields.At(i)
		r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, h)
	}
	if body := a.fields.Body(); len(body) > 0 {
		r.RawBody = body
	}
	r.DynamicMetadata = a.metadata.Struct(a.retryAfter)
	if a.refused {
		return OverLimit
	}
	return OK
}
