package memory

import (
	"math"

	"github.com/weir-edge/weir/pkg/limiter"
)

// bucket implements token_bucket and leaky_bucket: a level that requests fill and time
// drains, in the units of Limit.Rate. The level is what is missing from a full bucket of
// tokens; in GCRA terms, TAT - now (ITU-T I.371, virtual scheduling). Whole numbers only,
// so nothing is lost to rounding.
//
// A key may hold more than the present limit allows: the rule shrank, or a client of a
// larger tier filled it. It is then judged as just full when it was last charged, but
// keeps its true level (see bucket.lua).
// but the true level is kept (see bucket.lua).
type bucket struct {
	kept, seen struct{ now, level, unit int64 } // as last charged, and as of now
	judged     int64
	rate       *limiter.Limit // whose Rate drain and unit are; it is slow to compute
	drain      int64
	unit       int64
	stepped    bool
}

func (s *bucket) at(l *limiter.Limit, now int64) {
	if s.rate != l {
		s.rate = l
		s.drain, s.unit = l.Rate()
	}
	now, s.stepped = clock(l, now, s.kept.now)
	level := s.kept.level
	if s.kept.unit != s.unit && level > 0 { // a changed rule keeps its count
		level = int64(math.Ceil(float64(level) * float64(s.unit) / float64(s.kept.unit)))
	}
	elapsed := max(0, now-s.kept.now)
	s.judged = s.drained(min(level, l.Capacity()*s.unit), elapsed)
	s.seen.now, s.seen.level, s.seen.unit = now, s.drained(level, elapsed), s.unit
}

func (s *bucket) settle() {
	if s.stepped {
		s.kept = s.seen
	}
}

func (s *bucket) drained(level, elapsed int64) int64 {
	if elapsed > level/s.drain { // otherwise the product below could overflow
		return 0
	}
	return level - elapsed*s.drain
}

func (s *bucket) fits(l *limiter.Limit, cost, n int64) int64 {
	return howMany(l.Capacity()*s.unit-s.judged, cost*s.unit, n)
}

func (s *bucket) charge(l *limiter.Limit, units int64, _ uint64) {
	full, added := l.Capacity()*s.unit, min(units, l.Capacity())*s.unit
	if s.judged+added <= full {
		s.seen.level += added
	} else { // counting a denied attempt at most fills the bucket
		s.seen.level = max(s.seen.level, min(s.seen.level+added, full))
	}
	s.judged = min(s.judged+added, full)
	s.kept = s.seen
}

func (s *bucket) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	free := l.Capacity()*s.unit - s.judged
	if short := cost*s.unit - free; short > 0 {
		retry = ceilDiv(short, s.drain)
	}
	return free / s.unit, retry, ceilDiv(s.seen.level, s.drain)
}

// refund keeps what has drained since the charge: without the charge, the bucket might
// have run empty sooner, and a refund must never let too many pass.
func (s *bucket) refund(_ *limiter.Limit, units, takenAt int64, _ uint64) {
	charged, since := units*s.unit, s.seen.now-takenAt
	if s.seen.level == 0 || since >= ceilDiv(charged, s.drain) {
		return
	}
	s.seen.level = max(0, s.seen.level-(charged-since*s.drain))
	s.kept = s.seen
}
