package limiter

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Breaker stops calls to a shard that does not answer, so that not every request pays the
// time budget, and probes the shard until it recovers. One Breaker guards one shard.
type Breaker struct {
	next    FullStore
	spacing time.Duration
	probe   func(context.Context) error
	onState func(err error)

	failures atomic.Int32
	counted  atomic.Int64 // time of the last failure, in nanoseconds since born
	born     time.Time
	open     atomic.Bool
	stop     context.CancelFunc
	ctx      context.Context
}

const (
	// Failing round trips in a row that open the breaker: more than one, so that a single
	// slow reply does not open it, but few, since each costs its clients the whole time
	// budget.
	breakerThreshold = 3
	// Failures closer together than the budget count as one. This caps that distance, so
	// that even with a long budget, a server that refuses connections opens the breaker.
	maxSpacing = 50 * time.Millisecond
	// Pause between probes: short against a failover, long against a round trip.
	breakerProbeEvery = 50 * time.Millisecond
)

var _ FullStore = (*Breaker)(nil)

// NewBreaker guards next, whose calls take at most budget: failures closer together belong
// to one round trip and count as one. probe checks whether the shard answers and bounds its
// own time. onState, if not nil, receives the error that opened the breaker, each different
// error that a probe meets afterwards, and nil when the breaker closes.
func NewBreaker(next FullStore, budget time.Duration, probe func(context.Context) error, onState func(err error)) *Breaker {
	if onState == nil {
		onState = func(error) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Breaker{next: next, spacing: min(budget, maxSpacing), probe: probe, onState: onState, born: time.Now(), ctx: ctx, stop: cancel}
}

// Take calls next, or returns ErrBroken immediately while the shard is failing.
func (b *Breaker) Take(ctx context.Context, checks []Check, d *Decision) error {
	if b.open.Load() {
		return ErrBroken
	}
	err := b.next.Take(ctx, checks, d)
	b.Record(err)
	return err
}

// Return calls next, or fails immediately while the shard is failing.
func (b *Breaker) Return(ctx context.Context, checks []Check, d *Decision) error {
	if b.open.Load() {
		return ErrBroken
	}
	return b.next.Return(ctx, checks, d)
}

// Reset calls next even while open: the operator who asked wants to see the error.
func (b *Breaker) Reset(ctx context.Context, checks []Check) error {
	return b.next.Reset(ctx, checks)
}

// Close stops probing.
func (b *Breaker) Close() { b.stop() }

// Record counts the outcome of Take's call, or of one that bypassed Take, such as a health check
// of an idle shard. Failures in a row open the breaker.
func (b *Breaker) Record(err error) {
	// The caller had less time than the budget, or another shard is at fault.
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrElsewhere) {
		return
	}
	// An error reply costs no time and proves that the shard is reachable.
	if err == nil || errors.Is(err, ErrReply) || errors.Is(err, context.Canceled) {
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
		b.Trip(err)
	}
}

// Trip opens the breaker because of err. It closes when the shard answers a probe.
func (b *Breaker) Trip(err error) {
	if b.open.CompareAndSwap(false, true) {
		b.onState(err)
		go b.untilBack(err)
	}
}

// Open reports whether calls are stopped now.
func (b *Breaker) Open() bool { return b.open.Load() }

// untilBack probes until the shard answers, then closes the breaker. The reason may change
// along the way: a shard that comes back may, for example, reject the password.
func (b *Breaker) untilBack(why error) {
	tick := time.NewTicker(breakerProbeEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
			err := b.probe(b.ctx)
			switch {
			case err == nil:
				b.failures.Store(0)
				b.onState(nil) // before the shard can fail again, so that reports arrive in order
				b.open.Store(false)
				return
			case b.ctx.Err() == nil && err.Error() != why.Error():
				why = err
				b.onState(err)
			}
		}
	}
}
