package shedder

import (
	"math"
	"time"
)

// recentDemand is what users wanted in the last few seconds. When a site or its network stalls,
// all waiting requests arrive at once: for a moment that looks like several times the
// demand, and before that like none. Consumers that plan for longer than a moment, such as
// DNS routers, need the mean over both. The weight of an instant decays with latelyMemory.
type recentDemand struct{ wanted, variance, seconds float64 }

const (
	// latelyMemory, in seconds, is long compared with a stall and short compared with the time in
	// which a site that has become full learns its capacity.
	latelyMemory = 1.5
	// roomLately is how far demand may differ from the mean, as a fraction, and
	// chanceLately how many standard deviations in addition: it may have changed within
	// these seconds.
	roomLately, chanceLately = 0.1, 3
)

// add records what was wanted during dt, and its variance if users come independently.
func (l *recentDemand) add(wanted, variance float64, dt time.Duration) {
	kept := math.Exp(-dt.Seconds() / latelyMemory)
	fresh := latelyMemory * (1 - kept)
	weight := fresh / dt.Seconds()
	l.wanted = l.wanted*kept + wanted*weight
	l.variance = l.variance*kept*kept + variance*weight*weight
	l.seconds = l.seconds*kept + fresh
}

// bound returns the demand, in requests per second, nearest to an estimate that the last seconds
// allow, so that a stall does not count.
func (l *recentDemand) bound(estimate float64) float64 {
	if l.seconds < latelyMemory/2 {
		return estimate
	}
	mean := l.wanted / l.seconds
	room := roomLately*mean + chanceLately*math.Sqrt(max(l.variance, 1))/l.seconds
	return max(mean-room, min(mean+room, estimate))
}
