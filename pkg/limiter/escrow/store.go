// Package escrow decides under limits of which each region holds a part, and notes where a
// part runs short, for those who ask other regions for more.
//
// A request is measured against the region's part by the store, like under any other limit:
// rights that arrived or left are in the key's count already.
package escrow

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// MaxKeys bounds the keys that are noted at a time. What is not noted gets no more rights.
const MaxKeys = 200_000

const shardCount = 64

// Store is a limiter.Store around another.
type Store struct {
	next     limiter.TakeReturner
	place    atomic.Pointer[place]
	divided  sync.Map // *[2]*limiter.Limit by *limiter.Limit
	sizes    atomic.Int64
	pool     sync.Pool // *[]limiter.Check
	seed     maphash.Seed
	shards   [shardCount]shard
	perShard int
}

// place is where this region stands among all.
type place struct{ self, regions int }

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

var _ limiter.TakeReturner = (*Store)(nil)

// New returns a Store around next. It refuses what is in escrow until SetPlace.
func New(next limiter.TakeReturner) *Store {
	s := &Store{next: next, seed: maphash.MakeSeed(), perShard: MaxKeys / shardCount}
	s.pool.New = func() any { return new([]limiter.Check) }
	for i := range s.shards {
		s.shards[i].wants = map[string]*Want{}
	}
	return s
}

// SetPlace says which of so many regions this one is. Without any, no region's part is
// known.
func (s *Store) SetPlace(self, regions int) {
	p := &place{self, regions}
	if regions < 1 || self < 0 || self >= regions {
		p = nil
	}
	if was := s.place.Load(); p == nil || was == nil || *was != *p {
		s.place.Store(p)
	}
}

// Take lets the next store decide by this region's parts.
func (s *Store) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	first := firstOf(checks)
	if first < 0 {
		return s.next.Take(ctx, checks, d)
	}
	p := s.place.Load()
	if p == nil {
		if i := enforced(checks); i >= 0 {
			refuse(checks, d, i)
			return nil
		}
		p = &place{0, 1}
	}
	list := s.pool.Get().(*[]limiter.Check)
	s.divide(p, checks, list)
	err := s.next.Take(ctx, *list, d)
	if err == nil {
		for i := first; i < len(checks); i++ {
			if part := (*list)[i].Limit; part.Whole != nil {
				s.note(&checks[i], part, &d.Results[i])
			}
		}
	}
	s.pool.Put(list)
	return err
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

func enforced(checks []limiter.Check) int {
	for i := range checks {
		if g := checks[i].Limit.Global; g != nil && g.Escrow && !checks[i].Limit.Shadow {
			return i
		}
	}
	return -1
}

// refuse answers that check i cannot be decided.
func refuse(checks []limiter.Check, d *limiter.Decision, i int) {
	d.Reset(len(checks))
	d.Unavailable = true
	r := &d.Results[i]
	r.Source, r.Limit, r.Failed = limiter.SourceFallback, checks[i].Limit.Limit, true
}

// divide fills list with the checks, those in escrow with this region's parts.
func (s *Store) divide(p *place, checks []limiter.Check, list *[]limiter.Check) {
	*list = append((*list)[:0], checks...)
	for i := range *list {
		c := &(*list)[i]
		if g := c.Limit.Global; g != nil && g.Escrow {
			c.Limit = s.Part(c.Limit, global.Part(c.Limit, c.Key, p.self, p.regions))
		}
	}
}

// Part returns a limit of that size, as a part of a whole.
func (s *Store) Part(whole *limiter.Limit, size int64) *limiter.Limit {
	if found, ok := s.divided.Load(whole); ok {
		for _, l := range found.(*[2]*limiter.Limit) {
			if l.Limit == size {
				return l
			}
		}
	}
	// A limit has parts of two sizes that differ by one, and others after regions come or go.
	pair := &[2]*limiter.Limit{part(whole, size), part(whole, size+1)}
	if s.sizes.Add(1) > 10_000 { // rules have changed often
		s.divided.Clear()
		s.sizes.Store(0)
	}
	s.divided.Store(whole, pair)
	return pair[0]
}

func part(whole *limiter.Limit, size int64) *limiter.Limit {
	return &limiter.Limit{
		Rule: whole.Rule, Algorithm: whole.Algorithm, Limit: size, Window: whole.Window,
		Shadow: whole.Shadow, OnFailure: whole.OnFailure, Shared: whole.Shared, Global: whole.Global, Whole: whole,
	}
}

// note keeps what other regions may be asked for, and shows the whole limit to the client.
func (s *Store) note(c *limiter.Check, part *limiter.Limit, r *limiter.Result) {
	r.Limit = c.Limit.Limit
	if c.Peek || r.Failed || r.Source == limiter.SourceNone || r.Allowed && r.Remaining > part.Limit/2 {
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
	p := s.place.Load()
	if p == nil || firstOf(checks) < 0 {
		return s.next.Return(ctx, checks, d)
	}
	list := s.pool.Get().(*[]limiter.Check)
	s.divide(p, checks, list)
	err := s.next.Return(ctx, *list, d)
	s.pool.Put(list)
	return err
}

// Reset resets the next store.
func (s *Store) Reset(ctx context.Context, checks []limiter.Check) error {
	return s.next.Reset(ctx, checks)
}
