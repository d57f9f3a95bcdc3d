// Package lease lets a node spend part of a limit from its memory, so that a hot key does
// not cost the store a call per request.
//
// A lease is an advance: the store charges the units when it grants them, so a limit stays
// as exact as without leases. A node may refuse early, by at most the units that other
// nodes hold unspent and, in a rolling window, those spent in the last lease time
// (limiter.Limit.LeaseTime).
//
// A node stops spending a lease by its own monotonic clock, one lease time after it sent
// the call that granted it, which is never later than the store assumes. Time during which
// the machine was suspended counts.
package lease

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/boottime"
)

// Config configures a Store.
type Config struct {
	// Next decides checks that no lease covers.
	Next limiter.FullStore
	// Grants charges advances and takes back unspent units. It must fail, rather than
	// decide locally, while the shared store is unreachable.
	Grants limiter.FullStore
	// Nodes returns how many nodes ask for leases, this one included.
	Nodes   func() int
	Returns time.Duration // limiter.Spread.Returns if Next is, or 0
	// MaxKeys bounds how many keys have a lease; 0 means DefaultMaxKeys.
	MaxKeys int
	Clock   *boottime.Clock // nil: the system's
}

// DefaultMaxKeys bounds the leases of a Store unless Config says otherwise. A lease takes
// under 400 bytes: 352 at 100,000 leases, 368 at a million.
const DefaultMaxKeys = 1_000_000

const (
	shardCount = 64
	workers    = 32
	maxJobs    = 4096
	sweepEvery = 10 * time.Millisecond
)

// Store is a limiter.Store that spends leases and passes other checks to the next store.
type Store struct {
	next, grants limiter.FullStore
	nodes        func() int
	returns      time.Duration
	clock        *boottime.Clock
	perShard     int
	seed         maphash.Seed
	heat         heat
	shards       [shardCount]shard
	leases       atomic.Int64
	resets       atomic.Uint64
	usages       sync.Map // *usage by rule
	rests        sync.Pool
	holds        atomic.Pointer[func(*limiter.Limit) bool]

	jobs   chan job
	mu     sync.Mutex
	later  []job // returns for the sweeper to queue
	closed atomic.Bool
	stop   chan struct{}
	ended  sync.WaitGroup
}

type shard struct {
	sync.Mutex
	leases map[string]*lease
	due    queue
	_      [24]byte // keeps neighboring locks out of this cache line
}

// rest holds the checks of a request that the next store decides.
type rest struct {
	checks   []limiter.Check
	decision limiter.Decision
}

var _ limiter.FullStore = (*Store)(nil)

// New starts a Store. Close returns the units it holds.
func New(c Config) *Store {
	if c.MaxKeys <= 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	if c.Clock == nil {
		c.Clock = boottime.New(nil)
	}
	s := &Store{
		next: c.Next, grants: c.Grants, nodes: c.Nodes, returns: c.Returns, clock: c.Clock,
		perShard: max(1, c.MaxKeys/shardCount), seed: maphash.MakeSeed(),
		jobs: make(chan job, maxJobs), stop: make(chan struct{}),
		rests: sync.Pool{New: func() any { return &rest{} }},
	}
	for i := range s.shards {
		s.shards[i].leases = map[string]*lease{}
	}
	for range workers {
		s.ended.Go(s.work)
	}
	s.ended.Go(s.sweep)
	return s
}

// Take spends units that this node holds. The store decides checks without enough units; if
// it refuses, the units spent here go back.
func (s *Store) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	if !leasable(checks) || s.closed.Load() {
		return s.next.Take(ctx, checks, d)
	}
	now := s.clock.Now()
	d.Reset(len(checks))
	decided := 0
	d.Allowed = true
	for i := range checks {
		if c, r := &checks[i], &d.Results[i]; c.Limit.Leased && s.spend(c, r, now) {
			decided++
			d.Allowed = d.Allowed && !r.Refuses(c)
		}
	}
	switch {
	case !d.Allowed:
		s.unspendAll(checks, d)
		return nil
	case decided == len(checks):
		return nil
	}
	resets := s.resets.Load()
	var err error
	if decided == 0 {
		err = s.next.Take(ctx, checks, d)
	} else {
		err = s.takeRest(ctx, checks, d)
	}
	if err == nil && !d.Allowed {
		s.heed(checks, d, now, resets)
	}
	return err
}

func leasable(checks []limiter.Check) bool {
	for i := range checks {
		if checks[i].Limit.Leased && !checks[i].Peek {
			return true
		}
	}
	return false
}

// takeRest lets the next store decide the remaining checks.
func (s *Store) takeRest(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	r := s.rests.Get().(*rest)
	defer s.rests.Put(r)
	r.checks = r.checks[:0]
	for i := range checks {
		if d.Results[i].Source == limiter.SourceNone {
			r.checks = append(r.checks, checks[i])
		}
	}
	err := s.next.Take(ctx, r.checks, &r.decision)
	d.Allowed, d.StoreUnavailable = err == nil && r.decision.Allowed, err == nil && r.decision.StoreUnavailable
	if !d.Allowed {
		s.unspendAll(checks, d)
	}
	at := 0
	for i := range checks {
		if err == nil && d.Results[i].Source == limiter.SourceNone {
			d.Results[i] = r.decision.Results[at]
			at++
		}
	}
	return err
}

// spend tries to decide a check locally and reports whether it could: it takes the cost
// from the lease, or refuses while the key is quiet (see saturated.go).
func (s *Store) spend(c *limiter.Check, r *limiter.Result, now time.Duration) bool {
	hash := maphash.Bytes(s.seed, c.Key)
	sh := &s.shards[hash%shardCount]
	sh.Lock()
	defer sh.Unlock()
	l := sh.leases[string(c.Key)]
	if l == nil {
		if n := s.heat.add(hash, now/c.Limit.LeaseTime()); n >= hotAt {
			s.begin(sh, c, n, now)
		}
		return false
	}
	if l.limit != c.Limit {
		if !l.limit.Equal(c.Limit) {
			return false // another tier, or a request still running under the old rules
		}
		l.limit = c.Limit
	}
	if l.older.units > 0 && now >= l.older.until {
		for _, j := range l.lapsed(now) {
			s.queue(j)
		}
	}
	p := l.from(c.Cost, now)
	if p == nil && l.refuses(c.Cost, now) {
		l.hide(now)
		*r = l.refusal(c, now)
		return true
	}
	l.observe(c.Cost, now)
	if p != nil {
		p.units -= c.Cost
		*r = limiter.Result{
			Allowed: true, Charged: c.Cost > 0, Source: limiter.SourceLease, Limit: c.Limit.Limit,
			Remaining: l.remaining + l.older.units + l.newer.units, ResetAfter: max(0, l.reset-now), TakenAt: p.takenAt,
		}
	}
	if want := l.wants(now); want > 0 {
		s.ask(l, want)
	}
	return p != nil
}

// unspendAll puts back the units that a refused request took from leases.
func (s *Store) unspendAll(checks []limiter.Check, d *limiter.Decision) {
	for i := range checks {
		if d.Results[i].Source == limiter.SourceLease {
			s.unspend(&checks[i], &d.Results[i])
		}
	}
}

// unspend puts units back into this node's lease, or returns them to the store if that
// lease has ended.
func (s *Store) unspend(c *limiter.Check, r *limiter.Result) {
	if !r.Charged {
		return
	}
	r.Charged = false
	r.Remaining += c.Cost
	sh := s.shard(c.Key)
	sh.Lock()
	defer sh.Unlock()
	l := sh.leases[string(c.Key)]
	if l != nil && l.unspend(c.Cost, r.TakenAt) {
		return
	}
	if l == nil || l.forgotten < r.TakenAt {
		s.queue(job{limit: c.Limit, key: string(c.Key), units: c.Cost, takenAt: r.TakenAt, use: s.usage(c.Limit), spent: true})
	}
}

// begin gives a key that has become hot an empty lease, which a grant will fill.
func (s *Store) begin(sh *shard, c *limiter.Check, requests int64, now time.Duration) {
	if holds := s.holds.Load(); s.closed.Load() || holds != nil && !(*holds)(c.Limit) {
		return
	}
	if len(sh.leases) >= s.perShard && !s.evict(sh, requests*c.Cost) {
		return
	}
	l := &lease{
		shard: sh, limit: c.Limit, key: string(c.Key), use: s.usage(c.Limit),
		time: c.Limit.LeaseTime(), pace: requests * c.Cost, trip: firstTrip,
	}
	l.period = now + l.time
	l.due = l.period
	sh.leases[l.key] = l
	sh.due.add(l)
	s.leases.Add(1)
	l.use.leases.Add(1)
	if want := l.wants(now); want > 0 {
		s.ask(l, want)
	}
}

// evict ends one of a few sampled leases, if it is used less than the new one.
func (s *Store) evict(sh *shard, pace int64) bool {
	const samples = 4
	var least *lease
	seen := 0
	for _, l := range sh.leases {
		if least == nil || l.pace < least.pace {
			least = l
		}
		if seen++; seen == samples {
			break
		}
	}
	if least == nil || least.pace >= pace {
		return false
	}
	s.end(least)
	for _, j := range least.leave() {
		s.queue(j)
	}
	return true
}

// end removes a lease from its shard, which is locked.
func (s *Store) end(l *lease) {
	l.ended = true
	delete(l.shard.leases, l.key)
	s.leases.Add(-1)
	l.use.leases.Add(-1)
}

// Return gives back the charges in d, each where it was taken.
func (s *Store) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	r := s.rests.Get().(*rest)
	defer s.rests.Put(r)
	r.checks, r.decision.Results = r.checks[:0], r.decision.Results[:0]
	for i := range checks {
		if res := &d.Results[i]; res.Source == limiter.SourceLease {
			s.unspend(&checks[i], res)
		} else {
			r.checks, r.decision.Results = append(r.checks, checks[i]), append(r.decision.Results, *res)
		}
	}
	if len(r.checks) == 0 {
		return nil
	}
	return s.next.Return(ctx, r.checks, &r.decision)
}

// Reset resets these keys in the store and drops the units this node holds for them. Other
// nodes may spend theirs until their leases end.
func (s *Store) Reset(ctx context.Context, checks []limiter.Check) error {
	err := s.next.Reset(ctx, checks)
	s.resets.Add(1)
	for i := range checks {
		sh := s.shard(checks[i].Key)
		sh.Lock()
		if l := sh.leases[string(checks[i].Key)]; l != nil {
			l.forget()
		}
		sh.Unlock()
	}
	return err
}

// ForgetInactive ends the leases of limits that are no longer active and returns their units in the
// background. holds may be called later, by several goroutines.
func (s *Store) ForgetInactive(holds func(*limiter.Limit) bool) {
	s.holds.Store(&holds)
	s.postpone(s.endAll(func(l *limiter.Limit) bool { return !holds(l) }))
	s.forgetRules(holds)
}

func (s *Store) shard(key []byte) *shard { return &s.shards[maphash.Bytes(s.seed, key)%shardCount] }

// endAll ends the leases of the limits that which selects, and returns their units.
func (s *Store) endAll(which func(*limiter.Limit) bool) (unspent []job) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		for _, l := range sh.leases {
			if which(l.limit) {
				s.end(l)
				unspent = append(unspent, l.leave()...)
			}
		}
		sh.Unlock()
	}
	return unspent
}

// Close returns the units this node holds; later requests go to the next store. It takes
// about closeWithin at most.
func (s *Store) Close() {
	if s.closed.Swap(true) {
		return
	}
	unspent := s.endAll(func(*limiter.Limit) bool { return true })
	close(s.stop)
	s.ended.Wait()
	unspent = append(unspent, s.postponed()...)
	for len(s.jobs) > 0 {
		if j := <-s.jobs; j.lease == nil {
			unspent = append(unspent, j)
		}
	}
	s.giveBackAll(unspent)
}
