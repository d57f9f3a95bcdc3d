package memory

import (
	"math"

	"github.com/weir-edge/weir/pkg/limiter"
)

// bucket is token_bucket and leaky_bucket: a level that requests fill and time
// drains, in the units of Limit.Rate. The level is what is missing from a full
// bucket of tokens; in GCRA's words it is TAT - now. (ITU-T I.371, virtual
// scheduling.) Whole numbers only, so nothing is lost to rounding.
type bucket struct {
	now, level  int64
	drain, unit int64 // of the limit that level was counted by
}

func (s *bucket) at(l *limiter.Limit, now int64) {
	drain, unit := l.Rate()
	now = max(now, s.now)
	if s.unit != 0 && s.unit != unit { // a changed rule keeps its count
		s.level = int64(math.Ceil(float64(s.level) * float64(unit) / float64(s.unit)))
	}
	if elapsed := now - s.now; elapsed > s.level/drain {
		s.level = 0
	} else {
		s.level = max(0, s.level-elapsed*drain)
	}
	s.level = min(s.level, l.Capacity()*unit)
	s.now, s.drain, s.unit = now, drain, unit
}

func (s *bucket) fits(l *limiter.Limit, cost, n int64) int64 {
	return howMany(l.Capacity()*s.unit-s.level, cost*s.unit, n)
}

func (s *bucket) charge(l *limiter.Limit, units int64, _ uint64) {
	full := l.Capacity()
	s.level = min(s.level+min(units, full)*s.unit, full*s.unit)
}

func (s *bucket) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	free := l.Capacity()*s.unit - s.level
	if short := cost*s.unit - free; short > 0 {
		retry = ceilDiv(short, s.drain)
	}
	return free / s.unit, retry, ceilDiv(s.level, s.drain)
}

// refund keeps what drained since the charge: without it the bucket may have run
// empty sooner, and a refund must never let too many pass.
func (s *bucket) refund(_ *limiter.Limit, units, takenAt int64, _ uint64) {
	if back := units*s.unit - (s.now-takenAt)*s.drain; back > 0 {
		s.level = max(0, s.level-back)
	}
}
