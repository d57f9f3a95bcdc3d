package limiter

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/boottime"
)

// Denied remembers refusals until they can end. For every algorithm but concurrency,
// nothing frees capacity before a refusal's RetryAfter, so answering from memory is exact,
// and a flood on one refused key costs the store about one call per RetryAfter. Only an
// operator's Reset or a new rule document ends a refusal sooner: Reset forgets the key, and
// ForgetInactive forgets refusals under limits that are gone. Four kinds of limit free capacity early and
// are remembered briefly: a leased one for a lease time, a region's part and an Overdraft for
// rightsArrive, one that follows load for a LoadTick. What an Overdraft charges is not answered.
//
// In front of Spread, capacity may also be freed because a charge in one slot is returned
// when another slot refuses the request. There, every refusal is remembered only for
// Spread.Returns.
type Denied struct {
	next     FullStore
	returns  time.Duration // 0: no charge of a refused request is returned
	perShard int
	seed     maphash.Seed
	shards   [deniedShards]deniedShard
	resets   atomic.Uint64
	holds    atomic.Pointer[func(*Limit) bool] // whether a limit belongs to the active rules; see ForgetInactive
	clock    *boottime.Clock
	now      func() time.Time
}

const deniedShards = 64

type deniedShard struct {
	sync.RWMutex
	refusals map[string]refusal
	_        [32]byte // keeps neighboring locks out of this cache line
}

type refusal struct {
	limit *Limit
	cost  int64         // the refused cost; a higher one waits longer
	until time.Duration // when to call the store again, by Denied.clock
	retry time.Duration // when the request can pass
	reset time.Duration
	room  int64 // what remained; less than cost
	taken int64
}

var _ Front = (*Denied)(nil)

// rightsArrive is how often to call the store for a key that may have received rights or hits back.
const rightsArrive = 100 * time.Millisecond

// NewDenied puts a memory of at most size refusals in front of next. returns is
// Spread.Returns if charges may be returned, and 0 if they never are.
func NewDenied(next FullStore, size int, returns time.Duration) *Denied {
	d := &Denied{next: next, returns: returns, perShard: max(1, size/deniedShards), seed: maphash.MakeSeed(), clock: boottime.New(nil), now: time.Now}
	for i := range d.shards {
		d.shards[i].refusals = map[string]refusal{}
	}
	return d
}

// Take refuses from memory if an enforced check is known to be refused; otherwise it
// calls next.
func (m *Denied) Take(ctx context.Context, checks []Check, d *Decision) error {
	return TakeAt(ctx, m, checks, d, m.now())
}

// Precheck implements Front: it answers from memory alone.
func (m *Denied) Precheck(checks []Check, d *Decision, now time.Time) PrecheckResult {
	look := PrecheckResult{CheckedAt: now, checkedAt: m.clock.At(now)}
	if !peeks(checks) {
		look.Refused, look.othersRefused = m.lookUp(checks, d, look.checkedAt)
	}
	return look
}

func peeks(checks []Check) bool { return len(checks) > 0 && checks[0].Peek }

// TakeAfter calls next for a request that Precheck did not refuse.
func (m *Denied) TakeAfter(ctx context.Context, checks []Check, d *Decision, look PrecheckResult) error {
	if peeks(checks) {
		return m.peek(ctx, checks, d, m.clock.At(m.now()))
	}
	resets := m.resets.Load()
	if err := m.next.Take(ctx, checks, d); err != nil {
		return err
	}
	switch {
	case !d.Allowed:
		m.record(checks, d, look.checkedAt, resets)
	case look.othersRefused:
		m.forget(checks) // the request that passed changes their wait
	}
	return nil
}

// peek calls next for every check and then marks those that memory refuses, because an
// operator who peeks wants to see all of them.
func (m *Denied) peek(ctx context.Context, checks []Check, d *Decision, now time.Duration) error {
	var known Decision
	refused, _ := m.lookUp(checks, &known, now)
	if err := m.next.Take(ctx, checks, d); err != nil || !refused {
		return err
	}
	d.Allowed, d.StoreUnavailable = false, false
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

// lookUp reports whether checks are known to be refused, and whether requests for the same
// keys at another cost or under another limit are.
func (m *Denied) lookUp(checks []Check, d *Decision, now time.Duration) (refused, others bool) {
	seen := false // by the store, which must be
	for i := range checks {
		owes := checks[i].Limit.Overdraft && checks[i].Cost != 0 // which changes how long others wait
		seen, others = seen || owes || checks[i].Limit.CountDenied, others || owes
	}
	if seen {
		return false, others
	}
	for i := range checks {
		c := &checks[i]
		if c.Limit.Shadow || !c.Limit.RefusalHolds() {
			continue
		}
		sh := m.shard(c.Key)
		sh.RLock()
		r, ok := sh.refusals[string(c.Key)]
		sh.RUnlock()
		if !ok || now >= r.until {
			continue
		}
		if !r.refuses(c) {
			others = true
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
			RetryAfter: r.retry - now,
			ResetAfter: r.reset - now,
			TakenAt:    r.taken,
		}
	}
	return refused, others
}

// refuses reports whether r also refuses this check. A lower cost or another limit
// might pass; a higher cost waits longer, unless the wait is for the end of a window.
func (r *refusal) refuses(c *Check) bool {
	return (c.Cost == r.cost || c.Cost > r.cost && c.Limit.Algorithm == FixedWindow) && r.limit.Equal(c.Limit)
}

// record keeps d's refusals, unless a Reset came since resets was read: they may be older.
func (m *Denied) record(checks []Check, d *Decision, now time.Duration, resets uint64) {
	m.clock.Follow()
	for i := range checks {
		c, r := &checks[i], &d.Results[i]
		// A fallback's refusal is local to this node and ends when the store recovers.
		if !r.Refuses(c) || r.Source == SourceFallback || r.Failed || c.Peek || !c.Limit.RefusalHolds() || r.RetryAfter <= 0 {
			continue
		}
		sh := m.shard(c.Key)
		sh.Lock()
		holds := m.holds.Load()
		if m.resets.Load() != resets || holds != nil && !(*holds)(c.Limit) {
			sh.Unlock()
			return
		}
		if len(sh.refusals) >= m.perShard {
			sh.makeRoom(m.perShard, now)
		}
		sh.refusals[string(c.Key)] = refusal{
			limit: c.Limit, cost: c.Cost, room: r.Remaining, taken: r.TakenAt,
			until: now + m.holdsFor(c.Limit, r.RetryAfter), retry: now + r.RetryAfter, reset: now + max(r.RetryAfter, r.ResetAfter),
		}
		sh.Unlock()
	}
}

// holdsFor returns how long to remember a refusal.
func (m *Denied) holdsFor(l *Limit, retry time.Duration) time.Duration {
	if m.returns > 0 {
		retry = min(retry, m.returns)
	}
	if l.Leased {
		retry = min(retry, l.LeaseTime())
	}
	if l.UnderLoad != nil { // a higher limit drains a bucket sooner
		retry = min(retry, LoadTick)
	}
	if l.Whole != nil || l.Overdraft {
		retry = min(retry, rightsArrive)
	}
	return retry
}

// makeRoom drops a few expired refusals, or an arbitrary one if none has expired.
// Forgetting a refusal costs one call to the store, never a wrong answer.
func (sh *deniedShard) makeRoom(limit int, now time.Duration) {
	const samples = 8
	seen := 0
	for key, r := range sh.refusals {
		if seen++; now >= r.until || (seen >= samples && len(sh.refusals) >= limit) {
			delete(sh.refusals, key)
		}
		if seen >= samples {
			return
		}
	}
	if len(sh.refusals) >= limit { // all sampled ones are live
		clear(sh.refusals)
	}
}

// Return calls next: a refusal charges nothing.
func (m *Denied) Return(ctx context.Context, checks []Check, d *Decision) error {
	return m.next.Return(ctx, checks, d)
}

// ForgetInactive forgets the refusals under limits that are no longer active, and stops remembering
// new ones from requests still running under the old rules. Otherwise, if such a limit
// became active again, a refusal could outlive counts and resets that happened in the
// meantime. holds may be called later, by several goroutines.
func (m *Denied) ForgetInactive(holds func(*Limit) bool) {
	m.holds.Store(&holds) // stored before the sweep: each refusal is then either swept or checked
	known := map[*Limit]bool{}
	for i := range m.shards {
		sh := &m.shards[i]
		sh.Lock()
		for key, r := range sh.refusals {
			keep, cached := known[r.limit]
			if !cached {
				keep = holds(r.limit)
				known[r.limit] = keep
			}
			if !keep {
				delete(sh.refusals, key)
			}
		}
		sh.Unlock()
	}
}

// Reset forgets the refusals of these checks, here and in next.
func (m *Denied) Reset(ctx context.Context, checks []Check) error {
	err := m.next.Reset(ctx, checks)
	// After the store, so that a refusal in flight is not remembered again.
	m.resets.Add(1)
	m.forget(checks)
	return err
}

func (m *Denied) forget(checks []Check) {
	for i := range checks {
		sh := m.shard(checks[i].Key)
		sh.Lock()
		delete(sh.refusals, string(checks[i].Key))
		sh.Unlock()
	}
}
