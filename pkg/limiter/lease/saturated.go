package lease

import (
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// A key is saturated while its limit is nearly used up: the store refused one of its
// requests, or the share that each node may take in advance is below one unit. Deciding
// each request at the store would then cost as many calls as a strict limit does. Instead,
// a node occasionally asks for as much as half of what remains. If it receives less than it
// wanted, or a request was refused, it refuses requests that it has no units for until it
// asks again after a quiet time. The store might have passed some of these requests, up to
// the units that other nodes hold, those freed during the quiet time, and the other half of
// the remainder, which is no more than this node received.

// quietTime is how long the node refuses before it asks again; less if charges that explain
// the refusal may be returned meanwhile.
func (s *Store) quietTime(l *lease) time.Duration {
	if s.returns > 0 {
		return min(l.time/2, s.returns)
	}
	return l.time / 2
}

// refuses reports whether the store refused such a cost, or probably would, so recently
// that asking again is not worth a call.
func (l *lease) refuses(cost int64, now time.Duration) bool { return now < l.quiet && cost >= l.floor }

// hush starts a quiet time: until it ends, the node refuses requests that cost at least
// that much.
func (l *lease) hush(cost int64, now, quiet time.Duration) {
	if now < l.quiet {
		l.floor = min(l.floor, cost)
		return
	}
	l.quiet, l.floor, l.hidden = now+quiet, cost, false
	l.resume = max(l.resume, l.quiet)
}

// hide excludes the rest of a quiet time from the period in which demand is measured,
// because a memory of refusals in front of this store now answers.
func (l *lease) hide(now time.Duration) {
	if !l.hidden {
		l.hidden = true
		l.period += l.quiet - now
	}
}

// refusal returns the answer during a quiet time.
func (l *lease) refusal(c *limiter.Check, now time.Duration) limiter.Result {
	wait := l.quiet - now
	return limiter.Result{
		Source: limiter.SourceDenied, Limit: c.Limit.Limit, Remaining: max(0, min(l.remaining, c.Cost-1)),
		RetryAfter: wait, ResetAfter: max(wait, l.reset-now),
	}
}

// refused records that the store refused a request that arrived at now.
func (l *lease) refused(cost int64, r *limiter.Result, now, quiet time.Duration) {
	l.saturated = true
	l.remaining, l.reset, l.free = r.Remaining, now+r.ResetAfter, now+r.RetryAfter
	l.hush(cost, now, quiet)
}

// heed remembers the store's latest refusals for hot keys. resets is the value of s.resets
// before the call: a refusal may predate a reset.
func (s *Store) heed(checks []limiter.Check, d *limiter.Decision, now time.Duration, resets uint64) {
	for i := range checks {
		c, r := &checks[i], &d.Results[i]
		// A fallback's refusal is local to this node and ends when the store recovers.
		if !c.Limit.Leased || r.Allowed || r.RetryAfter <= 0 || r.Failed || r.Source == limiter.SourceNone || r.Source == limiter.SourceFallback {
			continue
		}
		sh := s.shard(c.Key)
		sh.Lock()
		if l := sh.leases[string(c.Key)]; l != nil && l.limit.Equal(c.Limit) && s.resets.Load() == resets {
			l.refused(c.Cost, r, now, s.quietTime(l))
		}
		sh.Unlock()
	}
}

// settle records what the answer says about the rest of the limit.
func (l *lease) settle(j *job, granted *limiter.Result, now, quiet time.Duration) {
	l.remaining, l.reset = granted.Remaining, now+granted.ResetAfter
	switch {
	case !j.saturated:
		l.saturated = granted.Granted == 0
	case limiter.Advance(j.units, granted.Remaining, j.nodes) == j.units:
		l.saturated = false // there is enough for all nodes again
	case granted.Granted == 0:
		l.hush(granted.Remaining+1, now, quiet)
	case granted.Granted < j.units && granted.Remaining <= granted.Granted+1:
		l.hush(1, now, quiet)
	}
}
