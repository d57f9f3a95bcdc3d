package storetest

import (
	"slices"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Passed is a request that passed at a time, in microseconds of the store's clock.
type Passed struct{ At, Cost int64 }

// Replay sorts the requests by time and gives them to the model of a limit one after
// another. It returns those that the model refuses: what passed over the limit.
func Replay(l *limiter.Limit, log []Passed) (over []Passed) {
	slices.SortStableFunc(log, func(a, b Passed) int { return int(a.At - b.At) })
	m := newModel(l)
	for _, p := range log {
		if !passes(m, l, p.At, p.Cost) {
			over = append(over, p)
			continue
		}
		m.charge(p.At, p.Cost, 0)
	}
	return over
}
