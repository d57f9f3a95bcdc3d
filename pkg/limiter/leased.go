package limiter

import "time"

// A lease is an advance on a limit: a node asks the store for units that it expects to
// need, the store charges them at once, and the node spends them from its memory for at
// most LeaseTime. It returns what it has not spent by then.
//
// No algorithm may count a unit as expired before the node has spent it or can no longer do
// so. The fixed and sliding windows need nothing for that, because a lease ends with its
// window. The log stamps leased units with the end of the lease, and a bucket does not
// drain below what was granted in the current and the previous lease time.

// minLeaseWindow keeps a lease time longer than several round trips to the store.
const minLeaseWindow = 10 * time.Second

// LeaseTime returns how long a node may spend units it was granted: a 200th of the window,
// at most a second; 0 for a limit that is not leased. It is short because a node that dies
// strands its units, and because a reset or a new rule takes effect on held units only when
// they lapse.
func (l *Limit) LeaseTime() time.Duration {
	if !l.Leased {
		return 0
	}
	return min(time.Second, l.Window/200)
}

// AdvanceDivisor returns the number that the rest of a limit is divided by for each of the
// asking nodes: all together receive at most half of it.
func AdvanceDivisor(nodes int) int { return 2 * max(nodes, 1) }

// Advance returns how many of the wanted units a node receives, given what remains and how
// many nodes ask. It is 0 once little remains: the last units are decided one by one, so
// that no node holds one that another needs.
func Advance(want, remaining int64, nodes int) int64 {
	return max(0, min(want, remaining/int64(AdvanceDivisor(nodes))))
}

// ChargedAt returns the time a return must state for a charge that the store made at now
// and that left the limit free after reset. That is now, except under a leased limit: a log
// may have stamped the charge later, and a bucket stays filled by a grant until its lease
// can no longer be spent.
func (l *Limit) ChargedAt(now, reset int64, advance bool) int64 {
	switch {
	case !l.Leased:
	case l.Algorithm == RollingWindow:
		return now + reset - l.Window.Microseconds()
	case l.Algorithm == TokenBucket && advance:
		t := l.LeaseTime().Microseconds()
		return (now/t + 2) * t
	}
	return now
}

// leaseFaults reports why the limit cannot be leased.
func (l *Limit) leaseFaults(bad func(path, format string, args ...any)) {
	const remedy = "; use consistency: strict"
	switch l.Algorithm {
	case LeakyBucket:
		bad("consistency", "leaky_bucket spaces requests evenly, so the store must decide each"+remedy+", or token_bucket")
	case Concurrency:
		bad("consistency", "concurrency counts requests in flight, which cannot be granted in advance"+remedy)
	}
	switch {
	case l.MinInterval != 0:
		bad("consistency", "min_interval needs a store call for each request"+remedy+", or remove min_interval")
	case l.CountDenied:
		bad("consistency", "count_denied needs a store call for each attempt"+remedy+", or remove count_denied")
	case l.Window < minLeaseWindow:
		bad("consistency", "leased needs a window of at least %s (got %s)"+remedy, minLeaseWindow, l.Window)
	case l.Algorithm == TokenBucket && l.Burst < l.minLeaseBurst():
		bad("consistency", "leased needs a burst of at least %d, twice what refills in a lease time of %s (got %d)"+remedy,
			l.minLeaseBurst(), l.LeaseTime(), l.Burst)
	}
}

// minLeaseBurst returns twice what refills in a lease time, rounded up.
func (l *Limit) minLeaseBurst() int64 {
	window := l.Window.Microseconds()
	return (2*l.Limit*l.LeaseTime().Microseconds() + window - 1) / window
}
