package memory

import "github.com/weir-edge/weir/pkg/limiter"

// lent is what moved of a bucket: the twin of what lend.lua keeps.
type lent struct {
	id      int64
	to      map[string]*gift
	from    map[string]*taken
	expires int64
}

type gift struct{ id, gave, closed, at int64 }

type taken struct{ got, confirmed int64 }

// lend moves tokens. The shard is locked.
func (s *Store) lend(sh *shard, m *limiter.Move) {
	now, held := s.clock(), limiter.LoanHeld.Microseconds()
	c := sh.lent[string(m.Key)]
	if c == nil || c.expires <= now {
		c = &lent{to: map[string]*gift{}, from: map[string]*taken{}}
	}
	check := limiter.Check{Limit: m.Limit, Key: m.Key}
	e := s.load(&check, now)
	b := e.counter.(*bucket)
	unit, full := b.unit, m.Limit.Burst*b.unit
	to, from := c.to[m.Region], c.from[m.Region]
	if to == nil {
		to = &gift{}
	}
	if from == nil {
		from = &taken{}
	}
	changed := b.stepped
	m.Err, m.At, m.Gave = nil, now, to.gave
	closed := to.closed
	if m.Step == limiter.LoanGive {
		closed, m.Gave = 0, 0
		if (m.ID >= to.id || now-to.at > held) && m.ID > 0 {
			if m.ID != to.id { // see lend.lua
				*to = gift{id: m.ID}
			}
			if m.Closed > to.gave { // this store has lost what it gave
				to.gave, to.closed = m.Closed, m.Closed
			}
			to.closed = max(to.closed, m.Closed)
			if now-to.at > held {
				to.closed = to.gave
			}
			if n := min(max(0, m.Upto)-to.gave, floorDiv(full-b.judged, unit)-max(0, m.Keep)); n > 0 && b.seen.level >= b.seen.out*unit {
				to.gave += n
				b.seen.level, b.judged, changed = b.seen.level+n*unit, b.judged+n*unit, true
				b.seen.out += n
			}
			to.at = now
			c.to[m.Region] = to
			closed, m.Gave = to.closed, to.gave
		}
	}
	out, till, pending := int64(0), int64(0), int64(0)
	for _, g := range c.to {
		if now-g.at <= held && g.gave > g.closed {
			out, till = out+g.gave-g.closed, max(till, g.at+held)
		}
	}
	for _, t := range c.from {
		pending += t.got - t.confirmed
	}
	if out > b.seen.out { // the key was lost, or reset
		b.seen.level, b.judged, changed = b.seen.level+(out-b.seen.out)*unit, b.judged+(out-b.seen.out)*unit, true
	}
	if out != b.seen.out || till != b.seen.till {
		b.seen.out, b.seen.till, changed = out, till, true
	}
	asked, lasts := m.Asked, limiter.LoanLasts.Microseconds()
	switch m.Step {
	case limiter.LoanAsk:
		if c.id == 0 {
			c.id = now
		}
		if n := min(from.got-from.confirmed, pending-max(0, ceilDiv(b.seen.out*unit-b.seen.level, unit))); n > 0 {
			from.confirmed += n
		}
		closed, m.Asked = from.confirmed, now
	case limiter.LoanTake:
		if m.ID != c.id || c.id == 0 || now > asked+lasts || asked > now+limiter.MaxClockBack.Microseconds() {
			break
		}
		if n := m.Got - max(from.got, m.Closed); n > 0 && now >= s.openFrom.Load() {
			if b.seen.level >= b.seen.out*unit {
				b.seen.loan = asked + lasts
			}
			b.seen.level, b.judged, changed = b.seen.level-n*unit, b.judged-n*unit, true
			from.got, from.confirmed = m.Got, max(from.confirmed, min(m.Closed, m.Got))
			c.from[m.Region] = from
		}
	case limiter.LoanEmpty:
		b.seen.level, b.judged, changed = max(b.seen.level, m.Limit.Portion.Have*unit), max(b.judged, full), true
	}
	if changed {
		b.kept = b.seen
	}
	if m.Step != limiter.LoanLook {
		c.expires = now + limiter.LoansKept.Microseconds()
		if sh.lent == nil {
			sh.lent = map[string]*lent{}
		}
		sh.lent[string(m.Key)] = c
	}
	m.Closed, m.Left, m.Known, m.ID = closed, max(0, floorDiv(full-b.judged, unit)), from.got, c.id
	_, _, reset := b.answer(m.Limit, 1)
	e.expire(m.Limit, now, reset)
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}
