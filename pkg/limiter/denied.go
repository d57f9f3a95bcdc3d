package limiter

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Denied remembers refusals until they can end. For every algorithm but
// concurrency nothing frees capacity before a refusal's RetryAfter, so answering
// from here is exact, and a flood on one refused key costs the store about one
// call per RetryAfter. Only an operator's Reset and new rules end it sooner:
// Reset forgets the key, and new rules are new *Limits, which an old memory does
// not match.
//
// Over Spread one more thing frees capacity: what a request charged in one slot is
// returned when another slot refuses it. There a refusal is first remembered for a
// moment longer than that takes, and in full when it is then confirmed.
type Denied struct {
	next     Store
	confirm  time.Duration // 0: the first refusal holds
	perShard int
	seed     maphash.Seed
	shards   [deniedShards]deniedShard
	resets   atomic.Uint64
	now      func() time.Time
}

const deniedShards = 64

type deniedShard struct {
	sync.RWMutex
	refusals map[string]refusal
	_        [32]byte // keeps neighbours' locks out of this cache line
}

type refusal struct {
	limit *Limit
	cost  int64     // this or more was refused
	until time.Time // when to ask again
	retry time.Time // when it can pass
	reset time.Time
	room  int64 // what remained: less than cost
	taken int64
}

var _ TakeReturner = (*Denied)(nil)

// confirmWithin is how soon a second refusal must follow to confirm the first.
const confirmWithin = 10 * time.Second

// NewDenied returns a memory of at most size refusals in front of next. confirm is how
// long a first refusal is remembered where charges may be returned, and 0 elsewhere.
func NewDenied(next Store, size int, confirm time.Duration) *Denied {
	d := &Denied{next: next, confirm: confirm, perShard: max(1, size/deniedShards), seed: maphash.MakeSeed(), now: time.Now}
	for i := range d.shards {
		d.shards[i].refusals = map[string]refusal{}
	}
	return d
}

// Take refuses from memory if one of the enforced checks is known to be refused,
// and asks next otherwise.
func (m *Denied) Take(ctx context.Context, checks []Check, d *Decision) error {
	now := m.now() // before the call, so that memory never outlives the refusal
	if len(checks) > 0 && checks[0].Peek {
		return m.peek(ctx, checks, d, now)
	}
	if m.known(checks, d, now) {
		return nil
	}
	resets := m.resets.Load()
	if err := m.next.Take(ctx, checks, d); err != nil {
		return err
	}
	if !d.Allowed {
		m.remember(checks, d, now, resets)
	}
	return nil
}

// Known answers from memory alone: if one of the enforced checks is known to be
// refused, it fills d as Take would and returns true. Otherwise d is as it was, and it
// is for Take to decide. Checks that only peek are not known.
func (m *Denied) Known(checks []Check, d *Decision) bool {
	return len(checks) > 0 && !checks[0].Peek && m.known(checks, d, m.now())
}

// peek asks next about every check, and then says which ones are known to be
// refused here: whoever looks wants to see them all.
func (m *Denied) peek(ctx context.Context, checks []Check, d *Decision, now time.Time) error {
	var known Decision
	refused := m.known(checks, &known, now)
	if err := m.next.Take(ctx, checks, d); err != nil || !refused {
		return err
	}
	d.Allowed, d.Unavailable = false, false
	for i, r := range known.Results {
		if r.Source == SourceDenied {
			d.Results[i] = r
		}
	}
	return nil
}

func (m *Denied) shard(key []byte) *deniedShard {
	return &m.shards[maphash.Bytes(m.seed, key)%deniedShards]
}

func (m *Denied) known(checks []Check, d *Decision, now time.Time) bool {
	for i := range checks {
		if checks[i].Limit.CountDenied { // the store has to hear of every attempt
			return false
		}
	}
	refused := false
	for i := range checks {
		c := &checks[i]
		if c.Limit.Shadow || !c.Limit.RefusalHolds() {
			continue
		}
		sh := m.shard(c.Key)
		sh.RLock()
		r, ok := sh.refusals[string(c.Key)]
		sh.RUnlock()
		// Less than what was refused might pass; another tier's limit, too.
		if !ok || r.limit != c.Limit || c.Cost < r.cost || !now.Before(r.until) {
			continue
		}
		if !refused {
			d.Reset(len(checks))
			refused = true
		}
		d.Results[i] = Result{
			Source:     SourceDenied,
			Limit:      c.Limit.Limit,
			Remaining:  r.room,
			RetryAfter: r.retry.Sub(now),
			ResetAfter: r.reset.Sub(now),
			TakenAt:    r.taken,
		}
	}
	return refused
}

// remember keeps the refusals in d, unless a Reset came since resets was read: they
// may be from before it.
func (m *Denied) remember(checks []Check, d *Decision, now time.Time, resets uint64) {
	for i := range checks {
		c, r := &checks[i], &d.Results[i]
		// A fallback's refusal is this node's own and ends when the store is back.
		if !r.Refuses(c) || r.Source == SourceFallback || r.Failed || c.Peek || !c.Limit.RefusalHolds() || r.RetryAfter <= 0 {
			continue
		}
		sh := m.shard(c.Key)
		sh.Lock()
		if m.resets.Load() != resets {
			sh.Unlock()
			return
		}
		if len(sh.refusals) >= m.perShard {
			sh.makeRoom(m.perShard, now)
		}
		retry := now.Add(r.RetryAfter)
		until := retry
		if m.confirm > 0 && r.RetryAfter > m.confirm {
			before, known := sh.refusals[string(c.Key)]
			since := now.Sub(before.until)
			if !known || before.limit != c.Limit || since < 0 || since > confirmWithin {
				until = now.Add(m.confirm)
			}
		}
		sh.refusals[string(c.Key)] = refusal{
			limit: c.Limit, cost: c.Cost, room: r.Remaining, taken: r.TakenAt,
			until: until, retry: retry, reset: now.Add(max(r.RetryAfter, r.ResetAfter)),
		}
		sh.Unlock()
	}
}

// makeRoom drops a few refusals that have ended, and any one if there is still no
// room: forgetting costs one call to the store, never a wrong answer.
func (sh *deniedShard) makeRoom(limit int, now time.Time) {
	const samples = 8
	seen := 0
	for key, r := range sh.refusals {
		if seen++; !now.Before(r.until) || (seen >= samples && len(sh.refusals) >= limit) {
			delete(sh.refusals, key)
		}
		if seen >= samples {
			return
		}
	}
	if len(sh.refusals) >= limit { // fewer than samples, all live
		clear(sh.refusals)
	}
}

// Return passes on: a refusal charges nothing.
func (m *Denied) Return(ctx context.Context, checks []Check, d *Decision) error {
	if r, ok := m.next.(Returner); ok {
		return r.Return(ctx, checks, d)
	}
	return nil
}

// Reset forgets the refusals of these checks, here and in next.
func (m *Denied) Reset(ctx context.Context, checks []Check) error {
	var err error
	if r, ok := m.next.(Resetter); ok {
		err = r.Reset(ctx, checks)
	}
	// After the store; and a refusal that is under way must not be remembered again.
	m.resets.Add(1)
	for i := range checks {
		sh := m.shard(checks[i].Key)
		sh.Lock()
		delete(sh.refusals, string(checks[i].Key))
		sh.Unlock()
	}
	return err
}
