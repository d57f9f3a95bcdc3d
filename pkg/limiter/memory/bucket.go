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
	kept, seen struct{ now, level, unit int64 } // as last charged, and as it is at now
	rate       *limiter.Limit                   // whose Rate drain and unit are: it is slow to work out
	drain      int64
	unit       int64
}

func (s *bucket) at(l *limiter.Limit, now int64) {
	if s.rate != l {
		s.rate = l
		s.drain, s.unit = l.Rate()
	}
	now = max(now, s.kept.now)
	level := s.kept.level
	if s.kept.unit != s.unit && level > 0 { // a changed rule keeps its count
		level = int64(math.Ceil(float64(level) * float64(s.unit) / float64(s.kept.unit)))
	}
	level = min(level, l.Capacity()*s.unit) // the rule may have shrunk since
	if elapsed := now - s.kept.now; elapsed > level/s.drain {
		level = 0
	} else {
		level -= elapsed * s.drain
	}
	s.seen.now, s.seen.level, s.seen.unit = now, level, s.unit
}

func (s *bucket) fits(l *limiter.Limit, cost, n int64) int64 {
	return howMany(l.Capacity()*s.unit-s.seen.level, cost*s.unit, n)
}

func (s *bucket) charge(l *limiter.Limit, units int64, _ uint64) {
	full := l.Capacity()
	s.seen.level = min(s.seen.level+min(units, full)*s.unit, full*s.unit)
	s.kept = s.seen
}

func (s *bucket) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	free := l.Capacity()*s.unit - s.seen.level
	if short := cost*s.unit - free; short > 0 {
		retry = ceilDiv(short, s.drain)
	}
	return free / s.unit, retry, ceilDiv(s.seen.level, s.drain)
}

// refund keeps what drained since the charge: without it the bucket may have run
// empty sooner, and a refund must never let too many pass.
func (s *bucket) refund(_ *limiter.Limit, units, takenAt int64, _ uint64) {
	charged, since := units*s.unit, s.seen.now-takenAt
	if s.seen.level == 0 || since >= ceilDiv(charged, s.drain) {
		return
	}
	s.seen.level = max(0, s.seen.level-(charged-since*s.drain))
	s.kept = s.seen
}
