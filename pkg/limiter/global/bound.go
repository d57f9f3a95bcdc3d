package global

import (
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Bounds are what may pass beyond a limit of which regions hear from each other with a
// delay, in units: in one window, or beyond a bucket's capacity in the time in which it
// drains.
type Bounds struct {
	// Demand is for a stated demand and delay: what the other regions admit during the
	// delay, and the shares that they keep to themselves.
	Demand float64
	// Worst is what somebody reaches who sends to all regions in the same instant, faster
	// than any message.
	Worst float64
}

// UsualDelay is within what time regions usually learn of each other's counts: a Period in
// which a node counts, another until its region tells the others, and the way to them.
const UsualDelay = 2*Period + 300*time.Millisecond

// Over returns the bounds of a limit if clients of all regions together ask for `times`
// the limit, and a region knows what another counted at most delay ago.
//
// Let a region admit at a time t. By what it knows, the limit is kept; what it does not
// know is, of each other region, what that one admitted in the delay before t and at most
// its Share. So all together exceed the limit by the sum of that at most, however the
// demand is spread.
func Over(l *limiter.Limit, regions int, times float64, delay time.Duration) Bounds {
	others := float64(regions - 1)
	flow := float64(l.Limit) * delay.Seconds() / l.Window.Seconds()
	kept := others * float64(Share(l, regions))
	worst := others * float64(whole(l))
	if l.Algorithm != limiter.FixedWindow {
		kept *= 2
	}
	if l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket {
		worst += others * flow // each bucket refills meanwhile
	}
	return Bounds{Demand: min(worst, times*flow+kept), Worst: worst}
}

// Excess returns by what part of itself a limit was exceeded if all regions let pass that
// many units in one window of Width.
func Excess(l *limiter.Limit, count int64) float64 {
	most := float64(whole(l))
	allowed := most
	if l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket {
		allowed += float64(l.Limit) * float64(Width(l)) / float64(l.Window.Microseconds())
	}
	return max(0, (float64(count)-allowed)/most)
}

// Ratio returns bounds as parts of a limit.
func (b Bounds) Ratio(l *limiter.Limit) Bounds {
	return Bounds{b.Demand / float64(whole(l)), b.Worst / float64(whole(l))}
}
