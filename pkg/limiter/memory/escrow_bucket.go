package memory

import "github.com/weir-edge/weir/pkg/limiter"

// loans are what a region's part of a bucket keeps in addition; see escrow_bucket.lua. The
// level may be below what is out, or below 0, by what others still count as theirs.
type loans struct {
	have       int64 // of the burst, in tokens of the largest tier
	out        int64 // tokens at other regions
	till, loan int64 // until when those are out, and until when this one keeps what others count
}

// begin is the state of a key that this store does not have: empty when the store began.
func (s *bucket) begin(l *limiter.Limit, now int64) {
	p := l.Portion
	s.kept = bucketState{now: min(s.opened, now), unit: s.unit}
	if s.kept.have = p.Have; s.kept.now < p.Since {
		s.kept.have -= p.Young
	}
	s.kept.level = s.kept.have * s.unit
}

// age sets what the level has become by now. Whatever the part grows by comes without tokens,
// and drains from Since on.
func (s *bucket) age(l *limiter.Limit, level, now int64) {
	p, k, at := l.Portion, &s.kept, s.kept.now
	young, floor := int64(0), int64(0)
	if at < p.Since {
		young = p.Young
	}
	if at <= k.till {
		floor = k.out * s.unit
	}
	have := p.Have - young
	if level < floor && (now > k.loan || s.stepped) { // if the clock was set back, until when is unknown
		level = floor
	}
	if have > k.have {
		level = max(level, min(level+(have-k.have)*s.unit, have*s.unit))
	} else if have < k.have && p.Have == l.Burst {
		level = max(level-(k.have-have)*s.unit, min(level, floor))
	}
	full := have
	if young == 0 {
		full = l.Burst
	}
	judged := min(level, max(floor, full*s.unit))
	if at < p.Since {
		since := min(p.Since, now)
		level = s.drop(level, at, since, s.oldDrain, floor) + young*s.unit
		judged = s.drop(judged, at, since, s.oldDrain, floor) + young*s.unit
		at = since
	}
	if now > at {
		level, judged = s.drop(level, at, now, s.drain, floor), s.drop(judged, at, now, s.drain, floor)
	}
	s.judged = judged
	s.seen = bucketState{now: now, level: level, unit: s.unit, loans: loans{have: p.Have, loan: k.loan}}
	if now <= k.till {
		s.seen.out, s.seen.till = k.out, k.till
	}
	if s.stepped {
		s.seen.loan = 0
	}
}

// drop lets a level drain, but not below what is out.
func (s *bucket) drop(level, from, to, rate, floor int64) int64 {
	less := func(time, least int64) {
		least = min(level, least)
		if rate > 0 && time > (level-least)/rate { // otherwise the product could overflow
			level = least
			return
		}
		level -= time * rate
	}
	if from < s.kept.till {
		part := min(to, s.kept.till)
		less(part-from, floor)
		from = part
	}
	if to > from {
		less(to-from, 0)
	}
	return level
}

// expire says when an entry's state no longer matters, if all of it is free again after reset.
func (e *entry) expire(l *limiter.Limit, now, reset int64) {
	e.expires = now + l.Lifetime(reset)
	if b, ok := e.counter.(*bucket); ok && l.Portion != nil {
		if e.expires = max(e.expires, b.seen.till, b.seen.loan); b.drain == 0 {
			e.expires = now + 2*limiter.MaxWindow.Microseconds()
		}
	}
}
