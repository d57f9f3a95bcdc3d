package global

import (
	"fmt"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// minWindow is long against the delay between regions.
const minWindow = 5 * time.Second

// CountsFault returns why regions cannot share a limit by Counts and what to use instead,
// or "" if they can.
func CountsFault(l *limiter.Limit) string {
	switch {
	case l.Algorithm == limiter.RollingWindow:
		return "rolling_window keeps the time of each request, but regions exchange only sums; use sliding_window"
	case l.Algorithm == limiter.Concurrency:
		return "concurrency counts requests in flight, which have ended before other regions hear of them; remove scope: global"
	case l.CountDenied:
		return "count_denied counts refused attempts, but regions exchange only what they admit; remove count_denied"
	case l.Reported:
		return "nodes of one region would learn of each other's requests as late as other regions do; use consistency: strict or leased"
	case l.Window < minWindow:
		return fmt.Sprintf("regions learn of each other's requests too late for a window under %s; use a longer one, or remove scope: global (got %s)", minWindow, l.Window)
	}
	return ""
}

// EscrowFault is CountsFault for limits in escrow.
func EscrowFault(l *limiter.Limit) string {
	switch l.Algorithm {
	case limiter.SlidingWindow:
		return "sliding_window weighs what each region admitted in the window before, which moves with no right; use fixed_window, or mode: eventual"
	case limiter.TokenBucket:
		return "token_bucket has no windows in which regions could move rights; use mode: eventual, or give each region a fixed share of limit and burst, without scope"
	case limiter.LeakyBucket:
		return "leaky_bucket spaces requests evenly, which regions cannot do for each other; use mode: eventual"
	case limiter.RollingWindow:
		return "rolling_window keeps the time of each request, which moves with no right; use fixed_window"
	}
	switch {
	case l.Algorithm == limiter.Concurrency || l.CountDenied:
		return CountsFault(l)
	case l.Reported:
		return "nodes would admit more than their region's part before they learn of each other; use consistency: strict"
	case l.Window < minWindow:
		return fmt.Sprintf("rights arrive too late for a window under %s (got %s); use a longer one, or remove scope: global", minWindow, l.Window)
	}
	return ""
}
