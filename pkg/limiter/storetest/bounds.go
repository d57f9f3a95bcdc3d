package storetest

import (
	"math/big"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// bounds checks what each algorithm promises about true time, using only what the store
// let pass. The clock must not have run backwards.
func (s *sequence) bounds() {
	for key := range s.models {
		var l *limiter.Limit
		var passed []event
		for _, r := range s.history {
			for i, c := range r.checks {
				if string(c.Key) != key || !r.decision.Results[i].Charged {
					continue
				}
				l = c.Limit
				if l.Algorithm == limiter.Concurrency || r.returned == 0 {
					passed = append(passed, event{r.at, c.Cost, r.returned})
				}
			}
		}
		for first := range passed {
			sum := int64(0)
			for _, e := range passed[first:] {
				if within(l, passed[first].at, e) {
					sum += e.cost
				}
				require.LessOrEqual(s, rat(sum).Cmp(bound(l, e.at-passed[first].at)), 0,
					"%s: %d from %d to %d", key, sum, passed[first].at-Epoch, e.at-Epoch)
			}
		}
	}
}

type event struct{ at, cost, returned int64 }

// within reports whether e is in the interval that begins at start and that the algorithm's
// bound covers.
func within(l *limiter.Limit, start int64, e event) bool {
	window := l.Window.Microseconds()
	switch l.Algorithm {
	case limiter.FixedWindow, limiter.SlidingWindow:
		return start/window == e.at/window
	case limiter.RollingWindow, limiter.Concurrency:
		return e.at-start < window && (e.returned == 0 || l.Algorithm == limiter.RollingWindow)
	}
	return true
}

// bound returns how much may pass in such an interval after t.
func bound(l *limiter.Limit, t int64) *big.Rat {
	if l.Algorithm.IsBucket() {
		flow := new(big.Rat).Mul(rat(t), big.NewRat(l.Limit, l.Window.Microseconds()))
		return flow.Add(flow, rat(l.Capacity()))
	}
	return rat(l.Limit)
}
