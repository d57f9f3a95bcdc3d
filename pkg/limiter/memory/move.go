package memory

import (
	"context"

	"github.com/weir-edge/weir/pkg/limiter"
)

var _ limiter.Mover = (*Store)(nil)

// rights are the units moved between this region and others for one key and window, the
// twin of what move.lua keeps.
type rights struct {
	out, in map[string]int64
	burned  bool
}

// Move moves rights of limits in escrow.
func (s *Store) Move(_ context.Context, moves []limiter.Move) {
	for i := range moves {
		m := &moves[i]
		sh := &s.shards[s.shardOf(m.Key)]
		sh.Lock()
		s.move(sh, m)
		sh.Unlock()
	}
}

func (s *Store) move(sh *shard, m *limiter.Move) {
	now := s.clock()
	c := s.countersOf(sh, m.Key, m.Start, m.Limit.Window.Microseconds(), now)
	if c.rights == nil {
		c.rights = &rights{out: map[string]int64{}, in: map[string]int64{}}
	}
	r := c.rights
	check := limiter.Check{Limit: m.Limit, Key: m.Key}
	e := s.load(&check, now)
	w := e.counter.(*fixedWindow)
	m.Err, m.Left, m.Known = nil, 0, r.in[m.Region]
	if w.seen.start == m.Start {
		switch {
		case m.Burn || w.closed && !r.burned:
			r.burned = true
			w.seen.count = most
		case !r.burned:
			if m.Got > m.Known {
				w.seen.count -= m.Got - m.Known
				m.Known, r.in[m.Region] = m.Got, m.Got
			}
			if n := min(max(0, m.Upto)-r.out[m.Region], m.Limit.Limit-w.seen.count-max(0, m.Keep)); n > 0 {
				w.seen.count += n
				r.out[m.Region] += n
			}
		}
		w.kept = w.seen
		m.Left = max(0, m.Limit.Limit-w.seen.count)
	}
	m.Gave, m.Burned = r.out[m.Region], r.burned
	_, _, reset := w.answer(m.Limit, 1)
	e.expires = now + m.Limit.Lifetime(reset)
}
