package report

import (
	"math"
	"sync/atomic"

	"github.com/weir-edge/weir/pkg/limiter"
)

// usage is what is measured of one rule.
type usage struct {
	limit         atomic.Pointer[limiter.Limit] // the newest
	keys          atomic.Int64
	counted, lost atomic.Int64
	over, bound   recent
}

// recent is the largest value of the present and the last half of a minute.
type recent struct{ half, now, before atomic.Uint64 }

const halfMinute = 30_000_000

// see takes note of a value at a time in microseconds. One goroutine calls it.
func (r *recent) see(v float64, at int64) {
	r.turn(at)
	if v > math.Float64frombits(r.now.Load()) {
		r.now.Store(math.Float64bits(v))
	}
}

func (r *recent) turn(at int64) {
	half := uint64(at / halfMinute)
	switch was := r.half.Load(); {
	case half == was:
		return
	case half == was+1:
		r.before.Store(r.now.Load())
	default:
		r.before.Store(0)
	}
	r.now.Store(0)
	r.half.Store(half)
}

// value returns the largest value, at a time in microseconds.
func (r *recent) value(at int64) float64 {
	half, v := uint64(at/halfMinute), 0.0
	was := r.half.Load()
	if half == was || half == was+1 {
		v = math.Float64frombits(r.now.Load())
	}
	if half == was {
		v = max(v, math.Float64frombits(r.before.Load()))
	}
	return v
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

// measure notes by how much a limit was exceeded, and by how much it may be: before a limit
// is exceeded nodes admit what they are asked for, so the peak shows the demand. Tiers that share a counter are no measure of each other.
func (s *Store) measure(e *entry) {
	l := e.limit
	over := e.over(l)
	if l.Shared || e.excused {
		over = 0
	}
	at := s.config.Clock().Microseconds()
	e.use.over.see(over, at)
	times := e.peak * float64(l.Window.Microseconds()) / float64(l.Limit)
	if over == 0 && l.Algorithm == limiter.TokenBucket {
		e.excused, e.peak = false, 0 // as a new window does
	}
	e.use.bound.see(l.Overshoot(times, limiter.ReportDelay(s.config.Trip), s.config.Nodes()), at)
}

// Usage is what was measured of one rule.
type Usage struct {
	Rule string
	// Keys is of how many keys this node knows the counts.
	Keys int64
	// Counted is how many units were reported and answered; Lost, those whose answer was lost,
	// so that they may pass in addition.
	Counted, Lost int64
	// Overshoot is the largest part by which all nodes exceeded the limit of a key in the last
	// 30 to 60 seconds, as this node has heard, and Bound by how much they may, at the rate
	// at which the rule's busiest key was used.
	Overshoot, Bound float64
}

// Usages returns the usage of each reported rule that was asked for, in no order.
func (s *Store) Usages() (list []Usage) {
	at := s.config.Clock().Microseconds()
	s.usages.Range(func(rule, value any) bool {
		u := value.(*usage)
		list = append(list, Usage{
			Rule: rule.(string), Keys: u.keys.Load(), Counted: u.counted.Load(), Lost: u.lost.Load(),
			Overshoot: u.over.value(at), Bound: u.bound.value(at),
		})
		return true
	})
	return list
}
