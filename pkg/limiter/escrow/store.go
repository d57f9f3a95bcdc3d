// Package escrow decides under limits of which each region holds a part, and notes where a
// part runs short, for those who ask other regions for more.
//
// A request is measured against the region's part by the store, like under any other limit:
// rights that arrived or left are in the key's count already. If a limit is lowered, they stay
// where they are until the window ends.
package escrow

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// MaxKeys bounds the keys that are recorded at a time. What is not recorded gets no more rights.
const MaxKeys = 200_000

const shardCount = 64

// Store is a limiter.Store around another.
type Store struct {
	next     limiter.Front
	wall     func() int64
	held     atomic.Pointer[global.Held]
	divided  sync.Map // *[]*limiter.Limit by *limiter.Limit
	dividing sync.Mutex
	sizes    int       // guarded by dividing
	pool     sync.Pool // *[]limiter.Check
	seed     maphash.Seed
	shards   [shardCount]shard
	perShard int
}

type shard struct {
	sync.Mutex
	wants map[string]*Want
}

// Want is a key whose part runs short.
type Want struct {
	Limit *limiter.Limit // the whole
	Key   string
	// Refused is how many units were refused since the last Drain.
	Refused int64
	// Left is what could still be spent at the last request.
	Left int64
}

var _ limiter.Front = (*Store)(nil)

// New returns a Store around next. It refuses what is in escrow until Hold. wall is the Unix
// time in microseconds; nil means the system's.
func New(next limiter.Front, wall func() int64) *Store {
	if wall == nil {
		wall = func() int64 { return time.Now().UnixMicro() }
	}
	s := &Store{next: next, wall: wall, seed: maphash.MakeSeed(), perShard: MaxKeys / shardCount}
	s.pool.New = func() any { return new([]limiter.Check) }
	for i := range s.shards {
		s.shards[i].wants = map[string]*Want{}
	}
	s.held.Store(&global.Held{})
	return s
}

// Hold says which parts of which windows this region holds.
func (s *Store) Hold(h global.Held) { s.held.Store(&h) }

// Held returns what Hold set last.
func (s *Store) Held() global.Held { return *s.held.Load() }

// At returns the part of a limit that this region holds of a key at a time, and nil if that is
// none.
func (s *Store) At(l *limiter.Limit, key []byte, at int64) *limiter.Limit {
	return s.at(s.held.Load(), l, key, at)
}

func (s *Store) at(held *global.Held, l *limiter.Limit, key []byte, at int64) *limiter.Limit {
	units, ok := global.Part(*held, l, key, l.WindowStart(at))
	if !ok {
		return nil
	}
	return s.Part(l, units)
}

// Take lets the next store decide by this region's parts.
func (s *Store) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	return limiter.TakeAt(ctx, s, checks, d, time.Now())
}

// Precheck implements limiter.Front: demand is recorded although it reaches no store.
func (s *Store) Precheck(checks []limiter.Check, d *limiter.Decision, now time.Time) limiter.PrecheckResult {
	first := firstOf(checks)
	if first < 0 {
		return s.next.Precheck(checks, d, now)
	}
	list := s.pool.Get().(*[]limiter.Check)
	defer s.pool.Put(list)
	if s.divide(s.held.Load(), s.wall(), checks, list) >= 0 {
		return limiter.PrecheckResult{CheckedAt: now} // TakeAfter refuses it
	}
	look := s.next.Precheck(*list, d, now)
	for i := first; look.Refused && i < len(checks); i++ {
		if part := (*list)[i].Limit; part.Whole != nil {
			s.note(&checks[i], part, &d.Results[i])
		}
	}
	return look
}

// TakeAfter implements limiter.Front.
func (s *Store) TakeAfter(ctx context.Context, checks []limiter.Check, d *limiter.Decision, look limiter.PrecheckResult) error {
	first := firstOf(checks)
	if first < 0 {
		return s.next.TakeAfter(ctx, checks, d, look)
	}
	held := s.held.Load()
	list := s.pool.Get().(*[]limiter.Check)
	defer s.pool.Put(list)
	now := s.wall()
	if i := s.divide(held, now, checks, list); i >= 0 {
		d.Undecided(checks, i)
		return nil
	}
	if err := s.next.TakeAfter(ctx, *list, d, look); err != nil {
		return err
	}
	for i := first; i < len(checks); i++ {
		part := (*list)[i].Limit
		if part.Whole == nil {
			continue
		}
		if s.exceeds(held, part, &checks[i], &d.Results[i], now) {
			// Nobody was let pass, so what cannot be given back is only lost.
			_ = s.next.Return(ctx, *list, d)
			d.Undecided(checks, i)
			return nil
		}
		s.note(&checks[i], part, &d.Results[i])
	}
	return nil
}

// exceeds reports whether the store's clock names a window of which this region holds less
// than it was measured against.
func (s *Store) exceeds(held *global.Held, part *limiter.Limit, c *limiter.Check, r *limiter.Result, now int64) bool {
	if !r.Charged || part.Shadow || c.Limit.WindowStart(r.TakenAt) == c.Limit.WindowStart(now) {
		return false
	}
	then := s.at(held, part.Whole, c.Key, r.TakenAt)
	return then == nil || then.Limit < part.Limit
}

// firstOf returns the first check in escrow, or -1.
func firstOf(checks []limiter.Check) int {
	for i := range checks {
		if g := checks[i].Limit.Global; g != nil && g.Escrow {
			return i
		}
	}
	return -1
}

// divide fills list with the checks, those in escrow with this region's parts. It returns the
// first that this region must not decide, or -1.
func (s *Store) divide(held *global.Held, now int64, checks []limiter.Check, list *[]limiter.Check) (none int) {
	none = -1
	*list = append((*list)[:0], checks...)
	for i := range *list {
		c := &(*list)[i]
		if g := c.Limit.Global; g == nil || !g.Escrow {
			continue
		}
		part := s.at(held, c.Limit, c.Key, now)
		switch {
		case part != nil:
		case c.Limit.Shadow: // it refuses nobody
			part = s.Part(c.Limit, c.Limit.Limit)
		default:
			if none < 0 {
				none = i
			}
			part = s.Part(c.Limit, 0)
		}
		c.Limit = part
	}
	return none
}

// mostSizes is how many sizes of parts of one limit are kept.
const mostSizes = 16

// Part returns a part of that size of a whole. It is the same one each time, because limits are
// known by their addresses.
func (s *Store) Part(whole *limiter.Limit, size int64) *limiter.Limit {
	if l, _ := s.known(whole, size); l != nil {
		return l
	}
	s.dividing.Lock()
	defer s.dividing.Unlock()
	l, others := s.known(whole, size)
	if l != nil { // made meanwhile
		return l
	}
	if s.sizes++; s.sizes > 10_000 { // rules have changed often
		s.divided.Clear()
		s.sizes = 0
	}
	list := append([]*limiter.Limit{part(whole, size)}, others...)
	list = list[:min(len(list), mostSizes)]
	s.divided.Store(whole, &list)
	return list[0]
}

// known returns that part if it was made, and all parts of the whole that are kept.
func (s *Store) known(whole *limiter.Limit, size int64) (l *limiter.Limit, all []*limiter.Limit) {
	found, ok := s.divided.Load(whole)
	if !ok {
		return nil, nil
	}
	all = *found.(*[]*limiter.Limit)
	for _, l := range all {
		if l.Limit == size {
			return l, all
		}
	}
	return nil, all
}

func part(whole *limiter.Limit, size int64) *limiter.Limit {
	return &limiter.Limit{
		Rule: whole.Rule, Algorithm: whole.Algorithm, Limit: size, Window: whole.Window,
		Leased: whole.Leased, Shadow: whole.Shadow, OnFailure: whole.OnFailure, Shared: whole.Shared, Global: whole.Global, Whole: whole,
	}
}

// note keeps what other regions may be asked for, and shows the whole limit to the client.
func (s *Store) note(c *limiter.Check, part *limiter.Limit, r *limiter.Result) {
	r.Limit = c.Limit.Limit
	if c.Peek || r.Failed || r.Source == limiter.SourceNone || r.Allowed && r.Remaining > part.MaxCost()/2 {
		return
	}
	sh := &s.shards[maphash.Bytes(s.seed, c.Key)%shardCount]
	sh.Lock()
	defer sh.Unlock()
	w := sh.wants[string(c.Key)]
	if w == nil {
		if len(sh.wants) >= s.perShard {
			return
		}
		w = &Want{Key: string(c.Key)}
		sh.wants[w.Key] = w
	}
	w.Limit, w.Left = c.Limit, r.Remaining
	if !r.Allowed {
		w.Refused += c.Cost
	}
}

// Drain returns the keys that ran short since the last Drain, and forgets them.
func (s *Store) Drain() (list []Want) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		for key, w := range sh.wants {
			list = append(list, *w)
			delete(sh.wants, key)
		}
		sh.Unlock()
	}
	return list
}

// Return gives back what d took.
func (s *Store) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	first := firstOf(checks)
	if first < 0 {
		return s.next.Return(ctx, checks, d)
	}
	list := s.pool.Get().(*[]limiter.Check)
	defer s.pool.Put(list)
	s.divide(s.held.Load(), d.Results[first].TakenAt, checks, list)
	return s.next.Return(ctx, *list, d)
}

// Reset resets the next store.
func (s *Store) Reset(ctx context.Context, checks []limiter.Check) error {
	return s.next.Reset(ctx, checks)
}
