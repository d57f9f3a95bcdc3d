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
	case limiter.LeakyBucket:
		return "leaky_bucket spaces requests evenly, which regions cannot do for each other; use token_bucket, or mode: eventual"
	case limiter.RollingWindow:
		return "rolling_window keeps the time of each request, which moves with no right; use fixed_window"
	}
	switch {
	case l.Algorithm == limiter.Concurrency || l.CountDenied:
		return CountsFault(l)
	case l.Leased && l.Algorithm == limiter.TokenBucket:
		return "tokens that a node holds in a lease cannot be lent to other regions; use consistency: strict, or fixed_window"
	case l.Reported:
		return "nodes would admit more than their region's part before they learn of each other; use consistency: strict"
	case l.Algorithm == limiter.TokenBucket:
		return DivideFault(l)
	case l.Algorithm == limiter.FixedWindow && l.Window < minWindow:
		return fmt.Sprintf("rights arrive too late for a window under %s (got %s); use a longer one, or remove scope: global", minWindow, l.Window)
	}
	return ""
}

// mostRegions is among how many regions a bucket can be divided.
const mostRegions = 100

// DivideFault returns why regions cannot divide a bucket exactly, along with the tiers that share
// it, or "" if they can.
func DivideFault(l *limiter.Limit) string {
	burst := max(l.Burst, l.Largest)
	part := &limiter.Limit{Limit: l.Limit, Window: l.Window, Portion: &limiter.Portion{Num: 1, Den: mostRegions, Have: burst}}
	if part.Exact() {
		return ""
	}
	return fmt.Sprintf("a burst of %d at %d in %s is too fine to divide exactly among %d regions; use a smaller burst or a shorter window", burst, l.Limit, l.Window, mostRegions)
}
