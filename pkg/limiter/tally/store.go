// Package tally counts what a node admits under limits that regions share, and decides
// under them while the region hears from no other.
//
// Every global.Period its caller flushes: the store adds what this node admitted to the
// region's counters, and the region's totals go to the nodes that tell other regions. No
// request waits for that.
package tally

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// DefaultMaxKeys bounds the keys of a Store unless Config says otherwise. A key takes about
// 300 bytes.
const DefaultMaxKeys = 500_000

const shardCount = 64

// Config configures a Store.
type Config struct {
	// Next decides.
	Next limiter.Front
	// Merger counts what nodes admit.
	Merger limiter.Merger
	// Node is this node's name, different after each start.
	Node string
	// MaxKeys bounds how many keys are counted; 0 means DefaultMaxKeys.
	MaxKeys int
}

// Store is a limiter.Store around another.
type Store struct {
	config    Config
	perShard  int
	seed      maphash.Seed
	shards    [shardCount]shard
	swept     int
	uncounted atomic.Int64

	// While the region hears from no other: for how long, and how many regions there are.
	alone   atomic.Int64
	regions atomic.Int64

	losses int64 // when the store was found to have lost data
}

type shard struct {
	sync.Mutex
	entries map[string]*entry
	changed []*entry
}

// entry is a key in its newest window and in one before.
type entry struct {
	key         string
	limit       *limiter.Limit
	width       int64
	now, before window
	listed      bool
}

type window struct {
	start, width int64
	count        int64 // admitted here
	stored       int64 // how much of it the store has counted
	total        int64 // in the region, as the store last reported
	reported     int64 // how much of that the region's teller has received
}

var _ limiter.Front = (*Store)(nil)

// New returns a Store that has counted nothing.
func New(c Config) *Store {
	if c.MaxKeys <= 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	s := &Store{config: c, perShard: max(1, c.MaxKeys/shardCount), seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].entries = map[string]*entry{}
	}
	return s
}

// Take lets the next store decide, and counts what passes under global limits.
func (s *Store) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	return limiter.TakeAt(ctx, s, checks, d, time.Now())
}

// Precheck implements limiter.Front.
func (s *Store) Precheck(checks []limiter.Check, d *limiter.Decision, now time.Time) limiter.PrecheckResult {
	if alone := s.alone.Load(); alone > 0 && isAlone(checks, alone) {
		shares, closed := s.shares(checks, alone)
		if closed >= 0 {
			return limiter.PrecheckResult{CheckedAt: now} // TakeAfter refuses it
		}
		checks = shares
	}
	return s.config.Next.Precheck(checks, d, now)
}

// TakeAfter implements limiter.Front.
func (s *Store) TakeAfter(ctx context.Context, checks []limiter.Check, d *limiter.Decision, look limiter.PrecheckResult) error {
	if !anyGlobal(checks) {
		return s.config.Next.TakeAfter(ctx, checks, d, look)
	}
	measured := checks
	if alone := s.alone.Load(); alone > 0 && isAlone(checks, alone) {
		shares, closed := s.shares(checks, alone)
		if closed >= 0 {
			d.Undecided(checks, closed)
			return nil
		}
		measured = shares
	}
	if err := s.config.Next.TakeAfter(ctx, measured, d, look); err != nil || !d.Allowed {
		return err
	}
	for i := range checks {
		if r := &d.Results[i]; r.Charged && checks[i].Limit.Global != nil {
			s.count(&checks[i], r.TakenAt)
		}
	}
	return nil
}

func anyGlobal(checks []limiter.Check) bool {
	for i := range checks {
		if checks[i].Limit.Global != nil {
			return true
		}
	}
	return false
}

func (s *Store) shard(key []byte) *shard {
	return &s.shards[maphash.Bytes(s.seed, key)%shardCount]
}

func (s *Store) count(c *limiter.Check, takenAt int64) {
	sh := s.shard(c.Key)
	sh.Lock()
	defer sh.Unlock()
	e := sh.entries[string(c.Key)]
	if e == nil {
		if len(sh.entries) >= s.perShard && !sh.evict(takenAt) {
			s.uncounted.Add(c.Cost)
			return
		}
		e = &entry{key: string(c.Key)}
		sh.entries[e.key] = e
	}
	if e.limit != c.Limit {
		e.limit, e.width = c.Limit, global.Width(c.Limit)
	}
	w := e.window(takenAt - takenAt%e.width)
	if w == nil {
		s.uncounted.Add(c.Cost)
		return
	}
	w.count += c.Cost
	sh.list(e)
}

func (sh *shard) list(e *entry) {
	if !e.listed {
		e.listed = true
		sh.changed = append(sh.changed, e)
	}
}

// window returns the window that begins at start, or nil if it is long past.
func (e *entry) window(start int64) *window {
	switch {
	case start == e.now.start && e.now.width == e.width:
		return &e.now
	case start == e.before.start && e.before.width == e.width:
		return &e.before
	case start < e.now.start && e.now.width == e.width:
		return nil
	}
	e.before, e.now = e.now, window{start: start, width: e.width}
	return &e.now
}

// settled reports whether nothing is left to report.
func (w *window) settled() bool { return w.stored == w.count && w.reported == w.total }

// ended reports whether a window no longer matters at a time.
func (w *window) ended(now int64) bool {
	return w.start+w.width+limiter.CountersLast(w.width) <= now
}

// evict makes room by forgetting a key whose windows have ended, among a few sampled ones.
func (sh *shard) evict(now int64) bool {
	const samples = 8
	seen := 0
	for key, e := range sh.entries {
		if !e.listed && e.now.ended(now) {
			delete(sh.entries, key)
			return true
		}
		if seen++; seen == samples {
			break
		}
	}
	return false
}

// Return gives back what d took. What the store has already counted stays counted, which
// only makes the limit tighter.
func (s *Store) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	for i := range checks {
		if c, r := &checks[i], &d.Results[i]; r.Charged && c.Limit.Global != nil {
			s.uncount(c, r.TakenAt)
		}
	}
	return s.config.Next.Return(ctx, checks, d)
}

func (s *Store) uncount(c *limiter.Check, takenAt int64) {
	sh := s.shard(c.Key)
	sh.Lock()
	defer sh.Unlock()
	e := sh.entries[string(c.Key)]
	if e == nil || e.limit != c.Limit {
		return
	}
	for _, w := range []*window{&e.now, &e.before} {
		if w.width == e.width && w.start == takenAt-takenAt%e.width {
			w.count = max(w.stored, w.count-c.Cost)
		}
	}
}

// Reset resets the next store. The counts stay, because other regions need them.
func (s *Store) Reset(ctx context.Context, checks []limiter.Check) error {
	return s.config.Next.Reset(ctx, checks)
}

// SetAlone sets how long this region has heard from no other, and how many regions there
// are, this one included.
func (s *Store) SetAlone(since time.Duration, regions int) {
	s.regions.Store(int64(regions))
	s.alone.Store(int64(since))
}

// Uncounted returns how many units passed uncounted, because there were too many keys.
func (s *Store) Uncounted() int64 { return s.uncounted.Load() }

// Keys returns how many keys are counted.
func (s *Store) Keys() (n int) {
	for i := range s.shards {
		s.shards[i].Lock()
		n += len(s.shards[i].entries)
		s.shards[i].Unlock()
	}
	return n
}
