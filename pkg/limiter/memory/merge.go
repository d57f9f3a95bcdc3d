package memory

import (
	"context"
	"maps"

	"github.com/weir-edge/weir/pkg/limiter"
)

var _ limiter.Merger = (*Store)(nil)

// counters hold what regions and nodes counted for one key and window, the twin of the hash
// that tally.lua and merge.lua keep.
type counters struct {
	own     int64
	nodes   map[string]int64
	regions map[string]int64
	rights  *rights // nil: none moved
	expires int64
}

// countersOf returns the counters of a key and window, creating them on request. The shard
// is locked.
func (s *Store) countersOf(sh *shard, key []byte, start, width, now int64) *counters {
	name := limiter.AppendCounters(nil, key, start)
	c := sh.counters[string(name)]
	if c == nil || c.expires <= now {
		if sh.counters == nil {
			sh.counters = map[string]*counters{}
		}
		for other, c := range sh.counters { // in random order
			if len(sh.counters) < s.maxPerShard && c.expires > now {
				break
			}
			delete(sh.counters, other)
		}
		c = &counters{nodes: map[string]int64{}, regions: map[string]int64{}}
		sh.counters[string(name)] = c
	}
	c.expires = max(c.expires, start+width+limiter.CountersLast(width))
	return c
}

// Tally records what a node has admitted.
func (s *Store) Tally(_ context.Context, node string, tallies []limiter.Tally) {
	for i := range tallies {
		t := &tallies[i]
		sh := &s.shards[s.shardOf(t.Key)]
		sh.Lock()
		c := s.countersOf(sh, t.Key, t.Start, t.Width, s.clock())
		t.Err, t.Known = nil, c.nodes[node]
		if t.Count > t.Known {
			c.own += t.Count - t.Known
			c.nodes[node] = t.Count
		}
		t.Total = c.own
		sh.Unlock()
	}
}

// Merge charges what other regions have admitted.
func (s *Store) Merge(_ context.Context, merges []limiter.Merge) {
	for i := range merges {
		m := &merges[i]
		sh := &s.shards[s.shardOf(m.Key)]
		sh.Lock()
		now := s.clock()
		c := s.countersOf(sh, m.Key, m.Start, m.Width, now)
		m.Err, m.Known, m.Early = nil, c.regions[m.Region], false
		if m.Count > m.Known {
			check := limiter.Check{Limit: m.Limit, Key: m.Key}
			e := s.load(&check, now)
			m.Early = !e.counter.(merger).merge(m.Limit, m.Count-m.Known, m.Start)
			_, _, reset := e.counter.answer(m.Limit, 1)
			e.expires = now + m.Limit.Lifetime(reset)
			if !m.Early {
				c.regions[m.Region] = m.Count
			}
		}
		sh.Unlock()
	}
}

// merger is a counter that regions can share. merge adds units of the window that began at
// start, beyond the limit if need be, and reports false if that window has not begun here.
type merger interface {
	merge(l *limiter.Limit, units, start int64) bool
}

func (s *fixedWindow) merge(l *limiter.Limit, units, start int64) bool {
	if start == s.seen.start {
		s.charge(l, units, 0, false)
	}
	return start <= s.seen.start
}

func (s *slidingWindow) merge(l *limiter.Limit, units, start int64) bool {
	window, most := l.Window.Microseconds(), (1<<52)/l.Window.Milliseconds()
	switch start {
	case s.seen.start:
		s.seen.current = min(s.seen.current+units, most)
		s.kept = s.seen
	case s.seen.start - window:
		s.seen.previous = min(s.seen.previous+units, most)
		s.kept = s.seen
	}
	return start <= s.seen.start
}

// merge fills the bucket, possibly into debt: what other regions admit has to drain too.
func (s *bucket) merge(_ *limiter.Limit, units, _ int64) bool {
	if units > most/s.unit {
		units = most / s.unit
	}
	s.seen.level = min(s.seen.level+units*s.unit, most)
	s.kept = s.seen
	return true
}

// Counters returns the counts of a key and window: this region's own, and those merged from
// others.
func (s *Store) Counters(_ context.Context, key []byte, start int64) (own int64, others map[string]int64, err error) {
	sh := &s.shards[s.shardOf(key)]
	sh.Lock()
	defer sh.Unlock()
	others = map[string]int64{}
	if c := sh.counters[string(limiter.AppendCounters(nil, key, start))]; c != nil {
		own = c.own
		maps.Copy(others, c.regions)
	}
	return own, others, nil
}
