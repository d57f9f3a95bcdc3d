package rls

import (
	"math"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/pkg/limiter"
)

// answer is the response to a call. All of it is reused.
type answer struct {
	statuses   []descriptorStatus
	refused    bool
	fields     envoy.Fields
	retryAfter int64
	metadata   envoy.Metadata
}

// descriptorStatus is the answer about a descriptor.
type descriptorStatus struct {
	refused, limited bool // limited: a rule applies, which the other fields describe
	rule             string
	limit, remaining uint32
	unit, times      uint32 // the window: how many of which unit
	wait             time.Duration
}

func (a *answer) reset() {
	clear(a.statuses)
	a.statuses, a.refused, a.retryAfter = a.statuses[:0], false, 0
	a.metadata.Reset()
	a.fields.Reset()
}

// begin adds a status for each of n descriptors. It stays OK without a limit if no rule applies.
func (a *answer) begin(n int) { a.statuses = slices.Grow(a.statuses, n)[:n] }

// describe writes what was decided about the descriptors from the first on.
func (c *call) describe(first int, passed bool) {
	chosen, of := -1, int32(-1)
	for _, u := range c.Match.Uses {
		if u.Descriptor != of && chosen >= 0 {
			c.show(&c.answer.statuses[first+int(of)], chosen)
			chosen = -1
		}
		of, chosen = u.Descriptor, c.tighter(chosen, int(u.Check))
	}
	if chosen >= 0 {
		c.show(&c.answer.statuses[first+int(of)], chosen)
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
	s.limited, s.rule, s.limit = true, l.Rule, uint32(l.Limit) // at most limiter.MaxCount
	s.unit, s.times = unitOf(l.Window)
	s.remaining = uint32(min(max(res.Remaining, 0), l.Limit))
	wait := res.ResetAfter
	if !res.Allowed {
		s.refused, wait = true, res.RetryAfter
	}
	s.wait = max(wait, 0)
}

// unitOf returns a window as a number of Envoy's units, the largest that fits; years are not used.
func unitOf(window time.Duration) (unit, times uint32) {
	for _, unit := range [...]uint32{month, week, 4, 3, 2, 1} {
		if length := units[unit].length; window%length == 0 && window/length <= math.MaxUint32 {
			return unit, uint32(window / length)
		}
	}
	return 0, 0 // Envoy has no unit below a second
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
		if !c.Decision.StoreUnavailable { // the body would say 503, and Envoy answers 429
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
	c.SetLimitHeaders(c.service.Legacy, func(name, value []byte) {
		if !written && passed {
			a.fields.Reset()
		}
		written = true
		a.fields.Add(envoy.HeaderName(name), value)
	})
}

func (a *answer) outcome() Outcome {
	if a.refused {
		return OverLimit
	}
	return OK
}
