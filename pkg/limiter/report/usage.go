package report

import (
	"sync/atomic"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/recent"
)

// usage is what is measured for one rule.
type usage struct {
	limit         atomic.Pointer[limiter.Limit] // the newest
	keys          atomic.Int64
	counted, lost atomic.Int64
	over, bound   recent.Max
}

func (s *Store) usage(l *limiter.Limit) *usage {
	found, ok := s.usages.Load(l.Rule)
	if !ok {
		found, _ = s.usages.LoadOrStore(l.Rule, &usage{})
	}
	u := found.(*usage)
	u.limit.Store(l)
	return u
}

// measure records by how much a limit was exceeded, and by how much it may be: below the
// limit, nodes admit all demand, so the peak shows it. Tiers that share a counter say
// nothing about each other.
func (s *Store) measure(e *entry) {
	l := e.limit
	over := e.over(l)
	if l.Shared || e.excused {
		over = 0
	}
	at := s.config.Clock().Microseconds()
	e.use.over.See(over, at)
	times := e.peak * float64(l.Window.Microseconds()) / float64(l.Limit)
	if over == 0 && l.Algorithm == limiter.TokenBucket {
		e.excused, e.peak = false, 0 // as a new window does
	}
	e.use.bound.See(l.Overshoot(times, limiter.ReportDelay(s.config.Trip), s.config.Nodes()), at)
}

// Usage is what was measured for one rule.
type Usage struct {
	Rule string
	// Keys is how many keys this node knows the counts of.
	Keys int64
	// Counted is how many units were reported and answered; Lost is how many went
	// unanswered, so that they may pass in addition.
	Counted, Lost int64
	// Overshoot is the largest fraction by which all nodes exceeded the limit of a key in
	// the last 30 to 60 seconds, as far as this node knows. Bound is how much they may
	// exceed it, at the rate of the rule's busiest key.
	Overshoot, Bound float64
}

// Usages returns the usage of each reported rule that was used, in no order.
func (s *Store) Usages() (list []Usage) {
	at := s.config.Clock().Microseconds()
	s.usages.Range(func(rule, value any) bool {
		u := value.(*usage)
		list = append(list, Usage{
			Rule: rule.(string), Keys: u.keys.Load(), Counted: u.counted.Load(), Lost: u.lost.Load(),
			Overshoot: u.over.Value(at), Bound: u.bound.Value(at),
		})
		return true
	})
	return list
}
