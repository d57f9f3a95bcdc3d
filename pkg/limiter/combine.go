package limiter

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Batcher executes calls on one shard in one round trip and fills in their answers. It
// reports failure in Call.Err and must bound its own time, which may exceed a caller's budget:
// a late answer still tells what was charged. Up to MaxBatchesUnanswered goroutines call it at a time.
type Batcher interface {
	// Do returns by the given time, unless that is zero. If it has not finished, it returns the
	// rest, for another goroutine.
	Do(ctx context.Context, calls []*Call, by time.Time) (rest func())
	// Follow gets the answers to calls that Do left to another shard (Call.Elsewhere). It may
	// take longer, so Combine runs it beside the batches in flight.
	Follow(ctx context.Context, calls []*Call)
}

// Combine batches naturally: while one round trip to its shard is in progress, arriving
// checks queue, and the next round trip takes them all. Unless told to linger, a lone
// request never waits. A goroutine that asks makes the round trip itself and then hands the
// queue to one that waits, so few goroutines wait for others to run (see flights).
// Identical checks in a batch are sent once. If a round trip is long or the next batch is
// large, that one leaves before it ends.
//
// Combine also enforces the time budget: whatever the shard does, Take returns within it.
type Combine struct {
	shard              Batcher
	budget             time.Duration
	maxBatchesInFlight int
	linger             time.Duration
	onBatch            func(calls int)

	calls  sync.Pool
	resets atomic.Uint64
	seed   maphash.Seed

	mu             sync.Mutex
	queue          []*Call
	first          time.Time   // when the oldest of the queue came, if it is to linger
	batchPending   bool        // a goroutine is about to take the queue
	crowded        atomic.Bool // the last batch had several calls
	timer          *time.Timer
	last           time.Time // when a batch left
	idle, inFlight []*roundTrip
	following      int
	batchDone      sync.Cond
	closed         bool
}

const (
	maxBatch = 512     // bounds how long one round trip can take
	maxQueue = 1 << 14 // a longer queue could not be served within the budget
)

var _ FullStore = (*Combine)(nil)

// NewCombine batches the calls to shard, with at most the given number of batches in
// flight. A batch leaves when its first call has waited for linger, which must be well below
// the budget: larger batches cost Redis less, and each decision takes longer. onBatch, if
// not nil, receives the size of each batch. Close stops it.
func NewCombine(shard Batcher, budget time.Duration, flights int, linger time.Duration, onBatch func(calls int)) *Combine {
	if onBatch == nil {
		onBatch = func(int) {}
	}
	c := &Combine{
		shard: shard, budget: budget, maxBatchesInFlight: max(1, min(flights, MaxBatchesInFlight)), linger: linger, onBatch: onBatch, seed: maphash.MakeSeed(),
	}
	c.batchDone.L = &c.mu
	c.calls.New = func() any { return newCall(c) }
	c.timer = time.AfterFunc(time.Hour, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dispatch(nil)
	})
	return c
}

// Take decides within the budget, or returns ErrTimeout.
func (c *Combine) Take(ctx context.Context, checks []Check, d *Decision) error {
	call := c.calls.Get().(*Call)
	call.set(checks)
	if err := c.ask(ctx, call); err != nil {
		return err
	}
	err := call.Err
	if err == nil {
		d.Allowed, d.StoreUnavailable = call.decision.Allowed, false
		d.Results = append(d.Results[:0], call.decision.Results...)
	}
	c.calls.Put(call)
	return err
}

// Return gives back the charges within the budget, or returns ErrTimeout.
func (c *Combine) Return(ctx context.Context, checks []Check, d *Decision) error {
	call := c.returning(checks, d.Results)
	if call == nil {
		return nil
	}
	if err := c.ask(ctx, call); err != nil {
		return err
	}
	err := call.Err
	c.calls.Put(call)
	return err
}

// returning returns a call that gives back the charged checks, or nil if there are none.
func (c *Combine) returning(checks []Check, results []Result) *Call {
	call := c.calls.Get().(*Call)
	call.set(checks)
	call.Return = true
	kept := call.Checks[:0]
	for i := range call.Checks {
		if results[i].Charged {
			kept = append(kept, call.Checks[i])
			call.TakenAt = append(call.TakenAt, results[i].TakenAt)
		}
	}
	if call.Checks = kept; len(kept) == 0 {
		c.calls.Put(call)
		return nil
	}
	return call
}

// ask queues the call and waits for its answer. After an error the call no longer
// belongs to the caller, who may only say that its request was refused (see lateCall).
func (c *Combine) ask(ctx context.Context, call *Call) error {
	call.by, call.mayLead = time.Now().Add(c.budget), ctx.Done() == nil
	c.mu.Lock()
	if c.closed || len(c.queue) >= maxQueue {
		closed := c.closed
		c.mu.Unlock()
		c.calls.Put(call)
		if closed {
			return ErrClosed
		}
		return ErrOverloaded
	}
	leads, yields := c.enqueue(call) && c.dispatch(call), len(c.inFlight) == 0
	c.mu.Unlock()
	if leads {
		if yields {
			c.yield()
		}
		c.runBatches(call.by)
		select {
		case <-call.done:
			return nil
		default:
		}
	}

	call.timer.Reset(time.Until(call.by))
	for {
		select {
		case <-call.done:
			if call.state.CompareAndSwap(callChosen, callWaiting) {
				c.yield()
				c.runBatches(call.by)
				continue
			}
			call.timer.Stop()
			return nil
		case <-call.timer.C:
			return c.leave(call, ErrTimeout)
		case <-ctx.Done():
			call.timer.Stop()
			return c.leave(call, context.Cause(ctx))
		}
	}
}

// yield lets requests that are ready to run go first, so that their checks join the batch. With few,
// it would only wake an idle thread, which costs more than the round trip.
func (c *Combine) yield() {
	if c.crowded.Load() {
		runtime.Gosched()
	}
}

// leave stops waiting for the answer, unless it arrived at the same instant.
func (c *Combine) leave(call *Call, err error) error {
	switch {
	case call.state.CompareAndSwap(callWaiting, callAbandoned):
	case call.state.CompareAndSwap(callChosen, callAbandoned):
		go c.runBatches(time.Time{})
	case call.state.CompareAndSwap(callFollowed, callAbandoned):
		err = fmt.Errorf("%w: %w", ErrElsewhere, err)
	default:
		<-call.done
		return nil
	}
	return &late{err, call}
}

// enqueue reports whether the next batch may leave because of this call. The queue is locked.
func (c *Combine) enqueue(call *Call) bool {
	c.queue = append(c.queue, call)
	first := len(c.queue) == 1
	if first && c.linger > 0 {
		c.first = time.Now()
	}
	return first || c.linger == 0 && len(c.queue) == fullBatch
}

// merge drops abandoned calls and makes identical ones twins of the first.
func (c *Combine) merge(batch, ask []*Call, leads map[uint64]*Call) []*Call {
	clear(leads)
	for _, call := range batch {
		if call.state.Load() >= callAbandoned && !call.Return {
			continue
		}
		if call.mergeable() {
			h := call.hash(c.seed)
			if lead := leads[h]; lead != nil && lead.same(call) && lead.room() {
				call.twin, lead.twin = lead.twin, call
				lead.Times++
				continue
			}
			leads[h] = call
		}
		ask = append(ask, call)
	}
	return ask
}

// answer delivers the result to a call and its twins. Grants go first to those that still wait.
func (c *Combine) answer(lead *Call) {
	var i int64
	var left *Call // those that do not wait
	for twin := lead.twin; twin != nil; {
		next := twin.twin
		if twin.claim() {
			twin.decide(lead, i)
			twin.done <- struct{}{}
			i++
		} else {
			twin.twin, left = left, twin
		}
		twin = next
	}
	waits := lead.claim()
	if waits {
		lead.decide(lead, i)
		i++
	} else {
		lead.twin, left = left, lead
	}
	for call := left; call != nil; call = call.twin {
		call.decide(lead, i)
		i++
	}
	if waits {
		lead.done <- struct{}{} // after those that were decided by its answers
	}
	for ; left != nil; left = left.twin {
		c.settleAbandoned(left)
	}
}

// settleAbandoned ends a call that was left. It stays charged, since its request may have passed by
// fallback, until the caller says that it was refused. Nobody can use its concurrency slot or
// the units of a lease.
func (c *Combine) settleAbandoned(call *Call) {
	c.giveBack(call, false)
	if !call.state.CompareAndSwap(callAbandoned, callAnsweredLate) {
		c.giveBack(call, true)
	}
}

// giveBack queues the return of what a call that was left charged: all, or only slots and leases.
func (c *Combine) giveBack(call *Call, all bool) {
	if call.Return || call.Err != nil {
		return
	}
	now, reset := slices.Clone(call.decision.Results), call.resets != c.resets.Load()
	for i := range now {
		check, r := &call.Checks[i], &call.decision.Results[i]
		switch {
		case check.Limit.Algorithm != Concurrency && (reset || !all && check.Nodes == 0): // a reset may have returned it
			now[i].Charged = false
			continue
		case check.Nodes > 0:
			check.Cost, check.Nodes = r.Granted, 0
		}
		r.Charged = false
	}
	if back := c.returning(call.Checks, now); back != nil {
		back.state.Store(callAbandoned)
		c.mu.Lock()
		c.enqueue(back) // even if closed: Close waits for it
		c.dispatch(nil)
		c.mu.Unlock()
	}
}

// Reset is not a decision, so it goes to the shard directly.
func (c *Combine) Reset(ctx context.Context, checks []Check) error {
	if r, ok := c.shard.(Resetter); ok {
		c.resets.Add(1)
		defer c.resets.Add(1)
		return r.Reset(ctx, checks)
	}
	return nil
}

// Close refuses new calls, answers the waiting ones, and stops.
func (c *Combine) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.dispatch(nil)
	for len(c.queue)+len(c.inFlight)+c.following > 0 {
		c.batchDone.Wait()
	}
	c.batchPending = true // nothing leaves any more
	c.timer.Stop()
}
