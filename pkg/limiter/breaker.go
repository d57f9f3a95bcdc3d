package limiter

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Breaker stops asking a shard that does not answer, so that its clients do not
// pay the time budget at each request, and finds out by itself when it is back.
// One Breaker guards one shard.
type Breaker struct {
	next    TakeReturner
	spacing time.Duration
	probe   func(context.Context) error
	onState func(up bool)

	failures atomic.Int32
	counted  atomic.Int64 // when the last failure was, in nanoseconds since born
	born     time.Time
	open     atomic.Bool
	stop     context.CancelFunc
	ctx      context.Context
}

const (
	// Failing round trips in a row that open the breaker. A few, so that one slow
	// reply does not; not many, since each costs its clients the whole time budget.
	breakerThreshold = 3
	// Failures closer together than the budget count as one, but with a long budget a
	// server that refuses connections is not to be asked for ever.
	maxSpacing = 50 * time.Millisecond
	// Pause between probes: short against a failover, long against a round trip.
	breakerProbeEvery = 50 * time.Millisecond
)

var _ TakeReturner = (*Breaker)(nil)

// NewBreaker guards next, whose calls take at most budget: failures closer together
// are those of one round trip, and count as one. probe asks the shard whether it
// answers, within a bound of its own; onState, which may be nil, hears of each change.
func NewBreaker(next TakeReturner, budget time.Duration, probe func(context.Context) error, onState func(up bool)) *Breaker {
	if onState == nil {
		onState = func(bool) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Breaker{next: next, spacing: min(budget, maxSpacing), probe: probe, onState: onState, born: time.Now(), ctx: ctx, stop: cancel}
}

// Take asks next, or returns ErrBroken at once while the shard is failing.
func (b *Breaker) Take(ctx context.Context, checks []Check, d *Decision) error {
	if b.open.Load() {
		return ErrBroken
	}
	err := b.next.Take(ctx, checks, d)
	b.Record(err)
	return err
}

// Return gives back, or fails at once while the shard is failing.
func (b *Breaker) Return(ctx context.Context, checks []Check, d *Decision) error {
	if b.open.Load() {
		return ErrBroken
	}
	return b.next.Return(ctx, checks, d)
}

// Reset passes on even when open: an operator asked, and wants to hear the error.
func (b *Breaker) Reset(ctx context.Context, checks []Check) error {
	return b.next.Reset(ctx, checks)
}

// Close ends the probing.
func (b *Breaker) Close() { b.stop() }

// Record counts the outcome of a call that did not go through Take, such as a look at
// a shard that nobody asks just now.
func (b *Breaker) Record(err error) {
	// An error that the shard sends costs no time, and proves that it is there.
	if err == nil || errors.Is(err, ErrReply) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if b.failures.Load() != 0 {
			b.failures.Store(0)
		}
		return
	}
	now, last := int64(time.Since(b.born)), b.counted.Load()
	if b.failures.Load() > 0 && now-last < int64(b.spacing) || !b.counted.CompareAndSwap(last, now) {
		return
	}
	if b.failures.Add(1) >= breakerThreshold {
		b.Trip()
	}
}

// Trip opens the breaker. It closes when the shard answers a probe.
func (b *Breaker) Trip() {
	if b.open.CompareAndSwap(false, true) {
		b.onState(false)
		go b.untilBack()
	}
}

// Open reports whether calls are stopped now.
func (b *Breaker) Open() bool { return b.open.Load() }

// untilBack probes until the shard answers, then closes the breaker.
func (b *Breaker) untilBack() {
	tick := time.NewTicker(breakerProbeEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
			if b.probe(b.ctx) == nil {
				b.failures.Store(0)
				b.onState(true) // before it can fail again, so that news come in order
				b.open.Store(false)
				return
			}
		}
	}
}
