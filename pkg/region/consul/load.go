package consul

import (
	"math"
	"strconv"
	"time"
)

// Load is a node's load, in requests per second.
type Load struct {
	// Demand is what clients request, including what is shed.
	Demand float64
	// Capacity is what the node served while it was full within the last hour, or 0 if it
	// was not full. CapacityAtLeast is what it claims to be able to serve until then.
	Capacity, CapacityAtLeast float64
}

const (
	// loadEvery is the least time between two registrations of a changed load: each wakes
	// every DNS router.
	loadEvery = 10 * time.Second
	// loadStep is the relative change that is worth a registration.
	loadStep = 0.05
	// leastRate is the change in requests per second that exceeds noise.
	leastRate = 1
	// maxRate is far above what a node can serve; anything larger is an error of the
	// writer.
	maxRate = 1e9
)

// Due reports whether l is worth a registration, after time after reported was registered: if
// it differs by a step, or demand has crossed capacity, but at most every 10 s. Only a node
// that has just found its capacity, at most once an hour, does not wait.
func (l Load) Due(reported Load, after time.Duration) bool {
	return l.Capacity > 0 && reported.Capacity == 0 || after >= loadEvery && l.differs(reported)
}

func (l Load) differs(reported Load) bool {
	step := func(a, b float64) bool {
		return math.Abs(a-b) >= max(loadStep*max(a, b), leastRate) || (a == 0) != (b == 0)
	}
	over := func(l Load) bool { return l.Capacity > 0 && l.Demand > l.Capacity }
	return step(l.Demand, reported.Demand) || step(l.Capacity, reported.Capacity) ||
		l.Capacity == 0 && step(l.CapacityAtLeast, reported.CapacityAtLeast) || over(l) != over(reported)
}

// Put adds l to a registration's meta.
func (l Load) Put(meta map[string]string) {
	meta[MetaDemand] = formatRate(l.Demand)
	if l.Capacity > 0 {
		meta[MetaCapacity] = formatRate(l.Capacity)
	} else {
		meta[MetaCapacityAtLeast] = formatRate(l.CapacityAtLeast)
	}
}

// newLoad reads l from a registration's meta; reported is false if the node does not report its
// load.
func newLoad(meta map[string]string) (l Load, reported bool) {
	l.Demand, reported = parseRate(meta[MetaDemand])
	l.Capacity, _ = parseRate(meta[MetaCapacity])
	l.CapacityAtLeast, _ = parseRate(meta[MetaCapacityAtLeast])
	return l, reported
}

// formatRate formats requests per second with a precision well below a step.
func formatRate(rate float64) string { return strconv.FormatFloat(min(rate, maxRate), 'g', 4, 64) }

// parseRate parses requests per second. An impossible value counts as not reported.
func parseRate(text string) (rate float64, reported bool) {
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 0 && rate <= maxRate) {
		return 0, false
	}
	return rate, true
}
