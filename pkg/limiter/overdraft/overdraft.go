// Package overdraft says which limits may owe. Some costs are known only after the answer, such
// as the tokens of a language model: a gateway asks before, with few or no hits, and reports the
// rest. An overdraft charges every call whole, also one that its rule or another refuses, and
// refuses while it owes. What is given back is never more than is charged at that time. Nobody
// undoes a charge, so Result.Charged stays unset.
//
// A window owes until it ends. A bucket owes until the debt has drained, and never more than
// drains in limiter.MaxWindow, but at least one window's limit.
package overdraft

import (
	"fmt"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Fault returns why a valid limit cannot owe, or "".
func Fault(l *limiter.Limit) string {
	_, unit := l.Rate()
	switch {
	case l.Algorithm != limiter.FixedWindow && !l.Algorithm.IsBucket():
		return l.Algorithm.String() + " cannot hold a debt; use fixed_window, token_bucket or leaky_bucket, or remove overdraft"
	case l.Algorithm.IsBucket() && l.Capacity()+l.Limit > 1<<52/unit:
		return fmt.Sprintf("%d requests in %s is too fine to count a debt exactly; use a rounder limit, a smaller burst or a shorter window", l.Limit, l.Window)
	case l.Leased || l.Reported:
		return "needs consistency: strict, because every call must be charged in the store (got " + l.Consistency() + "); remove one of them"
	case l.Global != nil:
		return "needs scope: region, because regions exchange only what they admitted; remove one of them"
	case l.CountDenied:
		return "already charges refused calls, beyond the limit; remove count_denied"
	}
	return ""
}

// Capped keeps a cost within what stores can add up. Without an overdraft, anything above MaxCost
// is refused alike.
func Capped(l *limiter.Limit, cost int64) int64 {
	if l.Overdraft {
		return max(-limiter.MaxCount, min(cost, limiter.MaxCount))
	}
	return min(cost, l.MaxCost()+1)
}
