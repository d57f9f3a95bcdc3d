package memory

import (
	"math"

	"github.com/weir-edge/weir/pkg/limiter"
)

// bucket implements token_bucket and leaky_bucket: a level that requests fill and time
// drains, in the units of Limit.Rate. The level is what a full bucket of tokens lacks; in
// GCRA terms, TAT - now (ITU-T I.371, virtual scheduling). All numbers are integers, so
// nothing is lost to rounding.
//
// A key may hold more than the current limit allows, because the rule was lowered or a
// client of a larger tier filled it. It is then treated as having been exactly full when
// last charged, but keeps its true level (see bucket.lua).
type bucket struct {
	kept, seen bucketState // as last charged, and as of now
	judged     int64
	rate       *limiter.Limit // the limit that drain and unit belong to; its Rate is slow to compute
	drain      int64
	unit       int64
	lease      int64 // the lease time, 0 for a strict limit
	stepped    bool
}

type bucketState struct {
	now, level, unit int64
	// What was granted in the lease time of now, counted from the epoch, and in the one
	// before.
	granted, before int64
}

func (s *bucket) at(l *limiter.Limit, now int64) {
	if s.rate != l {
		s.rate = l
		s.drain, s.unit = l.Rate()
		s.lease = l.LeaseTime().Microseconds()
	}
	now, s.stepped = clock(l, now, s.kept.now)
	level := s.kept.level
	if s.kept.unit != s.unit && level != 0 { // a changed rule keeps its count
		level = int64(min(math.Ceil(float64(level)*float64(s.unit)/float64(s.kept.unit)), 1<<52))
	}
	judged := level
	if l.Global == nil && !l.Overdraft { // otherwise the bucket may be in debt
		judged = min(level, l.Capacity()*s.unit)
	}
	s.judged = s.pass(judged, now)
	s.seen = bucketState{now: now, level: s.pass(level, now), unit: s.unit}
	s.seen.granted, s.seen.before = s.kept.grants(now, s.lease)
}

// pass returns what a level at s.kept becomes by now. It does not drain below what nodes
// may still hold, because they could then spend units that were granted a second time.
//
// Let spent be the level of a bucket charged for each unit when a node spends it, and held
// what nodes hold. Then spent + held ≤ level, so spent never exceeds the capacity, which is
// what token_bucket promises. A grant adds to held and level alike, spending moves a unit
// from held to spent, and while spent is above 0 it drains as fast as level. While spent is
// 0, level stays at or above held, because it stops at the grants of two lease times, and a
// unit is held for less than one.
func (s *bucket) pass(level, now int64) int64 {
	from := s.kept.now
	if s.lease > 0 && now > from {
		end := from - from%s.lease + s.lease
		for _, held := range [...]int64{s.kept.granted + s.kept.before, s.kept.granted} {
			until := min(now, end)
			level = max(s.drained(level, until-from), min(level, held*s.unit))
			from, end = until, end+s.lease
		}
	}
	return s.drained(level, max(0, now-from))
}

// grants returns granted and before as of now.
func (k *bucketState) grants(now, lease int64) (granted, before int64) {
	if lease == 0 {
		return 0, 0
	}
	switch now/lease - k.now/lease {
	case 0:
		return k.granted, k.before
	case 1:
		return 0, k.granted
	}
	if now < k.now { // the clock was set back
		return k.granted, k.before
	}
	return 0, 0
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
	return howMany(l, l.Capacity()*s.unit-s.judged, s.fill(l, cost), n)
}

// fill returns how far a cost raises the level. What an Overdraft charges or gives back may be
// any cost, so it stops just beyond what a level can be.
func (s *bucket) fill(l *limiter.Limit, cost int64) int64 {
	if l.Overdraft {
		beyond := most/s.unit + 1
		cost = max(-beyond, min(cost, beyond))
	}
	return cost * s.unit
}

// deepest returns the highest level under an Overdraft.
func (s *bucket) deepest(l *limiter.Limit) int64 {
	window := limiter.MaxWindow.Microseconds()
	if s.drain > most/window {
		return most
	}
	return min(l.Capacity()*s.unit+s.drain*window, most)
}

func (s *bucket) charge(l *limiter.Limit, units int64, _ uint64, advance bool) {
	if l.Overdraft {
		s.seen.level = min(max(0, s.seen.level+s.fill(l, units)), s.deepest(l))
		s.judged, s.kept = s.seen.level, s.seen
		return
	}
	full, added := l.Capacity()*s.unit, min(units, l.Capacity())*s.unit
	if s.judged+added <= full {
		s.seen.level += added
	} else { // counting a denied attempt fills the bucket at most
		s.seen.level = max(s.seen.level, min(s.seen.level+added, full))
	}
	s.judged = max(s.judged, min(s.judged+added, full))
	if advance {
		s.seen.granted += units
	}
	s.kept = s.seen
}

func (s *bucket) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	free := l.Capacity()*s.unit - s.judged
	if l.Overdraft {
		cost = max(0, min(cost, l.Capacity())) // a higher cost never passes, and a debt refuses all
	}
	if short := s.fill(l, cost) - free; short > 0 {
		retry = ceilDiv(short, s.drain)
	}
	reset = ceilDiv(s.seen.level, s.drain)
	if s.seen.granted+s.seen.before > 0 && reset > 0 { // it may pause for as long as these are held
		reset += 2 * s.lease
	}
	return max(0, free) / s.unit, retry, reset
}

// refund keeps what has drained since the charge: without the charge, the bucket might
// have run empty sooner, and a refund must never let too many pass.
func (s *bucket) refund(_ *limiter.Limit, units, takenAt int64, _ uint64) {
	charged, since := units*s.unit, max(0, s.seen.now-takenAt)
	if s.seen.level == 0 || since >= ceilDiv(charged, s.drain) {
		return
	}
	s.seen.level = max(0, s.seen.level-(charged-since*s.drain))
	s.kept = s.seen
}
