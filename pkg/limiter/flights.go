package limiter

import (
	"context"
	"slices"
	"time"
)

// While a batch is in flight, the next one leaves after usualRoundTrip plus what Redis needs for
// the calls in flight (Limit.Weight), with room to spare. On a network with a shorter round
// trip, batches therefore follow one another, as large as they can be; on a slower one,
// batches leave about as often and are no smaller. So a slow network costs a request one
// round trip instead of two, without reducing a shard's throughput.
//
// A second batch of fullBatch calls leaves at once: while Redis runs one, the node reads and
// answers the requests of the other. After a batch of one call the next one leaves at once, too:
// there is time for it, and to wait would double what the decision takes. One place in flight is
// left for those that come together.
const (
	usualRoundTrip = 500 * time.Microsecond
	perCall        = 10 * time.Microsecond
	// fullBatch calls share the cost of starting a script so well that larger batches would
	// save Redis little (TABLES.md).
	fullBatch = 32
	// MaxBatchesInFlight bounds the batches in flight to one master within the budget.
	MaxBatchesInFlight = 4
	// MaxBatchesUnanswered adds those that are late, and so bounds the connections that batches use. When
	// it is reached the master is silent, so nothing more is sent to it, or charged.
	MaxBatchesUnanswered = 2 * MaxBatchesInFlight
)

// roundTrip is one round trip, with reusable memory.
type roundTrip struct {
	batch, ask []*Call
	leads      map[uint64]*Call
	left       time.Time
}

// dispatch lets the next batch leave, now or when it may. The queue is locked. The caller makes the
// round trip if dispatch returns true, because its call may lead; otherwise the first waiting call
// with enough of its budget left does. A new goroutine does if there is none, or if the queue is so
// long that one that makes round trip after round trip serves it faster.
func (c *Combine) dispatch(own *Call) (leads bool) {
	if c.batchPending || len(c.queue) == 0 {
		return false
	}
	now := time.Now()
	wait := c.untilDispatch(now)
	if wait > 0 {
		c.timer.Reset(wait)
		return false
	}
	c.timer.Stop()
	c.batchPending = true
	if own != nil && own.mayLead {
		return true
	}
	for _, call := range c.queue {
		if len(c.queue) >= fullBatch {
			break
		}
		if call.mayLead && call.by.Sub(now) >= c.budget/2 && call.state.CompareAndSwap(callWaiting, callChosen) {
			call.done <- struct{}{}
			return false
		}
	}
	go c.runBatches(time.Time{})
	return false
}

// untilDispatch returns how long the queue is still to wait.
func (c *Combine) untilDispatch(now time.Time) (linger time.Duration) {
	if c.linger > 0 && !c.closed && len(c.queue) < maxBatch {
		linger = c.linger - now.Sub(c.first)
	}
	// Batches that are late hold up no others.
	flights, calls, overdue := 0, 0, c.budget
	for _, f := range c.inFlight {
		if rest := c.budget - now.Sub(f.left); rest > 0 {
			flights, calls, overdue = flights+1, calls+len(f.batch), min(overdue, rest)
		}
	}
	switch {
	case len(c.inFlight) == c.maxBatchesInFlight*MaxBatchesUnanswered/MaxBatchesInFlight:
		return time.Hour // until one is answered
	case flights == c.maxBatchesInFlight:
		return max(linger, overdue)
	case flights == 0, c.linger == 0 && flights == 1 && len(c.queue) >= fullBatch,
		c.linger == 0 && flights < c.maxBatchesInFlight-1 && !c.crowded.Load():
		return linger
	}
	return max(linger, usualRoundTrip+time.Duration(calls)*perCall-now.Sub(c.last))
}

// runBatches makes a round trip for the queue and answers its calls. It returns by the given time, and
// leaves the rest to another goroutine. If the time is zero, it goes on while the queue is long.
func (c *Combine) runBatches(by time.Time) {
	if !by.IsZero() && !time.Now().Before(by) { // its caller ran too late to lead
		go c.runBatches(time.Time{})
		return
	}
	for c.runBatch(by) {
	}
}

// runBatch makes one round trip, and reports whether to make another.
func (c *Combine) runBatch(by time.Time) (again bool) {
	f := c.takeBatch()
	if f.ask = c.merge(f.batch, f.ask[:0], f.leads); len(f.ask) > 0 {
		c.onBatch(len(f.ask))
		if rest := c.shard.Do(context.Background(), f.ask, by); rest != nil {
			go func() {
				rest()
				c.finishBatch(f, false)
			}()
			return false
		}
	}
	return c.finishBatch(f, by.IsZero())
}

// takeBatch takes up to maxBatch calls of the queue.
func (c *Combine) takeBatch() *roundTrip {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		c.idle = append(c.idle, &roundTrip{leads: map[uint64]*Call{}})
	}
	last := len(c.idle) - 1
	f := c.idle[last]
	c.idle = c.idle[:last]
	n := min(len(c.queue), maxBatch)
	c.crowded.Store(n > 1)
	f.batch = append(f.batch[:0], c.queue[:n]...)
	c.queue = slices.Delete(c.queue, 0, n)
	f.left = time.Now()
	c.last, c.inFlight, c.batchPending = f.left, append(c.inFlight, f), false
	c.dispatch(nil)
	return f
}

// finishBatch answers a flight's calls and hands the queue on. A goroutine that did not ask keeps a
// long queue.
func (c *Combine) finishBatch(f *roundTrip, mayContinue bool) (again bool) {
	var elsewhere []*Call
	for _, lead := range f.ask {
		if lead.Elsewhere == nil {
			c.answer(lead)
			continue
		}
		for call := lead; call != nil; call = call.twin {
			call.state.CompareAndSwap(callWaiting, callFollowed)
		}
		elsewhere = append(elsewhere, lead)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle, c.inFlight = append(c.idle, f), slices.DeleteFunc(c.inFlight, func(o *roundTrip) bool { return o == f })
	if elsewhere != nil {
		c.following++
		go c.follow(elsewhere)
	}
	if mayContinue && !c.batchPending && len(c.queue) >= fullBatch && c.untilDispatch(time.Now()) <= 0 {
		c.batchPending = true
		return true
	}
	c.dispatch(nil)
	c.batchDone.Broadcast()
	return false
}

// follow gets the answers that another shard has.
func (c *Combine) follow(calls []*Call) {
	c.shard.Follow(context.Background(), calls)
	for _, lead := range calls {
		c.answer(lead)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.following--
	c.batchDone.Broadcast()
}
