package global

import (
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Bounds are how many units may pass beyond a limit whose regions hear from each other with
// a delay: in one window or, for a bucket, beyond its capacity in the time it takes to
// drain.
type Bounds struct {
	// Demand is the excess under a stated demand and delay: what the other regions admit
	// during the delay, and the shares that they keep to themselves.
	Demand float64
	// Worst is the excess that an adversary reaches by sending to all regions in the same
	// instant, faster than any message.
	Worst float64
}

// UsualDelay is how soon regions usually learn of each other's counts: one Period in which
// a node counts, another until its region tells the others, and the network delay.
const UsualDelay = 2*Period + 300*time.Millisecond

// OvershootBounds returns the bounds of a limit if clients of all regions together ask for `times` the
// limit, and a region knows what another counted at most delay ago.
//
// Suppose a region admits a request at time t. By what it knows, the limit is kept. What it
// does not know of each other region is at most what that region admitted in the delay
// before t, plus its Share. So all regions together exceed the limit by at most that sum,
// however the demand is spread.
func OvershootBounds(l *limiter.Limit, regions int, times float64, delay time.Duration) Bounds {
	others := float64(regions - 1)
	flow := float64(l.Limit) * delay.Seconds() / l.Window.Seconds()
	kept := others * float64(Share(l, regions))
	worst := others * float64(whole(l))
	if l.Algorithm != limiter.FixedWindow {
		kept *= 2
	}
	if l.Algorithm.IsBucket() {
		worst += others * flow // each bucket refills meanwhile
	}
	return Bounds{Demand: min(worst, times*flow+kept), Worst: worst}
}

// Excess returns the fraction by which regions exceeded a limit if together they admitted
// count units in one window of Width.
func Excess(l *limiter.Limit, count int64) float64 {
	most := float64(whole(l))
	allowed := most
	if l.Algorithm.IsBucket() {
		allowed += float64(l.Limit) * float64(Width(l)) / float64(l.Window.Microseconds())
	}
	return max(0, (float64(count)-allowed)/most)
}

// Ratio returns the bounds as fractions of a limit.
func (b Bounds) Ratio(l *limiter.Limit) Bounds {
	return Bounds{b.Demand / float64(whole(l)), b.Worst / float64(whole(l))}
}
