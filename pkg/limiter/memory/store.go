// Package memory keeps counters in this process, for a single node and for any node while
// its Redis is unreachable.
package memory

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// DefaultMaxKeys bounds the keys of a Store unless Config says otherwise.
const DefaultMaxKeys = 1_000_000

const shardCount = 64 // one bit each in the mask of a Take

// Config configures a Store. The zero value is ready for production.
type Config struct {
	// MaxKeys bounds the memory: beyond it, a new key evicts one that expires soon. 0
	// means DefaultMaxKeys.
	MaxKeys int
	// Source is the source that results report; 0 means SourceMemory.
	Source limiter.Source
	// Clock returns Unix microseconds; tests set it. nil means the system clock.
	Clock func() int64
}

// Store is a limiter.Store in this process's memory.
type Store struct {
	clock       func() int64
	source      limiter.Source
	maxPerShard int
	seed        maphash.Seed
	shards      [shardCount]shard
	swept       atomic.Uint64
	promises    promises
	// openFrom is the first window start from which a region's part may be spent: what was
	// spent earlier is unknown.
	openFrom atomic.Int64
}

var _ limiter.FullStore = (*Store)(nil)

type shard struct {
	sync.Mutex
	entries  map[string]*entry
	counters map[string]*counters // of global limits
	_        [40]byte             // keeps neighboring locks out of this cache line
}

type entry struct {
	counter counter
	expires int64 // Unix microseconds, after which the state is empty
}

// inUse marks the entries of the request being decided: making room for one of its keys
// must not evict another.
const inUse = math.MaxInt64

// New returns an empty store.
func New(c Config) *Store {
	if c.MaxKeys <= 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	if c.Source == limiter.SourceNone {
		c.Source = limiter.SourceMemory
	}
	if c.Clock == nil {
		c.Clock = func() int64 { return time.Now().UnixMicro() }
	}
	s := &Store{clock: c.Clock, source: c.Source, maxPerShard: max(1, c.MaxKeys/shardCount), seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].entries = map[string]*entry{}
	}
	s.openFrom.Store(c.Clock() + limiter.MaxClockBack.Microseconds())
	return s
}

func (s *Store) shardOf(key []byte) uint64 { return maphash.Bytes(s.seed, key) % shardCount }

// lock locks the shards of all checks, in a fixed order so that two requests never
// deadlock.
func (s *Store) lock(checks []limiter.Check) (mask uint64) {
	for i := range checks {
		mask |= 1 << s.shardOf(checks[i].Key)
	}
	for m := mask; m != 0; m &= m - 1 {
		s.shards[bits.TrailingZeros64(m)].Lock()
	}
	return mask
}

func (s *Store) unlock(mask uint64) {
	for m := mask; m != 0; m &= m - 1 {
		s.shards[bits.TrailingZeros64(m)].Unlock()
	}
}

// inline is how many checks a request may have before Take allocates.
const inline = 8

// Take decides. It never fails.
func (s *Store) Take(_ context.Context, checks []limiter.Check, d *limiter.Decision) error {
	d.Reset(len(checks))
	var room [inline]*entry
	entries := room[:0]

	mask := s.lock(checks)
	defer s.unlock(mask)
	now := s.clock()
	if len(checks) == 1 && checks[0].Nodes > 0 {
		s.grant(&checks[0], d, now)
		return nil
	}
	d.Allowed = true
	for i := range checks {
		c := &checks[i]
		e := s.load(c, now)
		entries = append(entries, e)
		r := &d.Results[i]
		r.Source, r.Limit, r.TakenAt = s.source, c.Limit.Limit, now
		r.Allowed = e.counter.fits(c.Limit, c.Cost, 1) == 1
		if r.Refuses(c) {
			d.Allowed = false
		}
	}
	for i := range checks {
		commit(&checks[i], &d.Results[i], entries[i], d.Allowed, now)
	}
	return nil
}

// grant charges the units that a node takes in advance.
func (s *Store) grant(c *limiter.Check, d *limiter.Decision, now int64) {
	e, r := s.load(c, now), &d.Results[0]
	e.counter.settle()
	r.Granted = limiter.Advance(c.Cost, e.counter.fits(c.Limit, 1, limiter.MaxCount), c.Nodes)
	if r.Granted > 0 {
		e.counter.charge(c.Limit, r.Granted, 0, true)
	}
	remaining, _, reset := e.counter.answer(c.Limit, 1)
	e.expires = now + c.Limit.Lifetime(reset)
	r.Source, r.Limit, r.Remaining = s.source, c.Limit.Limit, remaining
	r.Allowed, r.Charged, d.Allowed = r.Granted > 0, r.Granted > 0, r.Granted > 0
	r.ResetAfter = time.Duration(reset) * time.Microsecond
	r.TakenAt = c.Limit.ChargedAt(now, reset, true)
}

// load returns the state of a key at now. A peek at an unknown key gets a temporary
// state.
func (s *Store) load(c *limiter.Check, now int64) *entry {
	sh := &s.shards[s.shardOf(c.Key)]
	e := sh.entries[string(c.Key)]
	switch {
	case e != nil:
	case c.Peek:
		e = &entry{counter: newCounter(c.Limit)}
	default:
		e = &entry{counter: newCounter(c.Limit)}
		sh.makeRoom(s.maxPerShard, now)
		sh.entries[string(c.Key)] = e
	}
	if !c.Peek {
		e.expires = inUse
	}
	e.counter.at(c.Limit, now)
	if w, ok := e.counter.(*fixedWindow); ok && c.Limit.Whole != nil {
		w.open(s.openFrom.Load())
	}
	return e
}

func commit(c *limiter.Check, r *limiter.Result, e *entry, allowed bool, now int64) {
	if !c.Peek {
		e.counter.settle()
	}
	if !c.Peek && c.Cost != 0 {
		switch {
		case c.Limit.Overdraft:
			e.counter.charge(c.Limit, c.Cost, c.Slot, false)
		case r.Allowed && allowed:
			e.counter.charge(c.Limit, c.Cost, c.Slot, false)
			r.Charged = true
		case !r.Allowed && c.Limit.CountDenied:
			e.counter.charge(c.Limit, c.Cost, c.Slot, false)
		}
	}
	remaining, retry, reset := e.counter.answer(c.Limit, c.Cost)
	if r.Allowed {
		retry = 0
	}
	r.Remaining = remaining
	r.RetryAfter = time.Duration(retry) * time.Microsecond
	r.ResetAfter = time.Duration(reset) * time.Microsecond
	if r.Charged {
		r.TakenAt = c.Limit.ChargedAt(now, reset, false)
	}
	if !c.Peek {
		e.expires = now + c.Limit.Lifetime(reset)
	}
}

// makeRoom samples a few keys in the map's random order, drops the expired ones and, if
// the shard is full, the one that expires first. Live counters are lost only beyond
// MaxKeys, where a flood of keys would otherwise take all memory.
func (sh *shard) makeRoom(limit int, now int64) {
	const samples = 4
	var soonest string
	var soonestAt int64
	seen := 0
	for key, e := range sh.entries {
		if e.expires <= now {
			delete(sh.entries, key)
		} else if e.expires != inUse && (soonest == "" || e.expires < soonestAt) {
			soonest, soonestAt = key, e.expires
		}
		if seen++; seen == samples {
			break
		}
	}
	if len(sh.entries) >= limit {
		delete(sh.entries, soonest)
	}
}

// Return gives back what d took.
func (s *Store) Return(_ context.Context, checks []limiter.Check, d *limiter.Decision) error {
	mask := s.lock(checks)
	defer s.unlock(mask)
	now := s.clock()
	for i := range checks {
		c, r := &checks[i], &d.Results[i]
		if !r.Charged || r.TakenAt > now+2*c.Limit.LeaseTime().Microseconds() && c.Limit.Algorithm != limiter.Concurrency {
			continue // the clock was set back since, so what has drained is unknown
		}
		if e := s.shards[s.shardOf(c.Key)].entries[string(c.Key)]; e != nil {
			e.counter.at(c.Limit, now)
			e.counter.refund(c.Limit, c.Cost, r.TakenAt, c.Slot)
		}
	}
	return nil
}

// Reset forgets the counters of these checks.
func (s *Store) Reset(_ context.Context, checks []limiter.Check) error {
	mask := s.lock(checks)
	defer s.unlock(mask)
	for i := range checks {
		delete(s.shards[s.shardOf(checks[i].Key)].entries, string(checks[i].Key))
	}
	return nil
}

// Sweep drops expired keys from one part of the store, the next part at each call.
// makeRoom alone would keep keys of idle shards.
func (s *Store) Sweep() {
	sh := &s.shards[s.swept.Add(1)%shardCount]
	now := s.clock()
	sh.Lock()
	defer sh.Unlock()
	for key, e := range sh.entries {
		if e.expires <= now {
			delete(sh.entries, key)
		}
	}
	for name, c := range sh.counters {
		if c.expires <= now {
			delete(sh.counters, name)
		}
	}
}

// Len returns how many keys the store holds, including expired ones.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].Lock()
		n += len(s.shards[i].entries)
		s.shards[i].Unlock()
	}
	return n
}
