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
	probe   func(context.Context) error
	onState func(up bool)

	failures atomic.Int32
	open     atomic.Bool
	stop     context.CancelFunc
	ctx      context.Context
}

const (
	// Failures in a row that open the breaker. A few, so that one slow reply does
	// not; not many, since each costs a client the whole time budget.
	breakerThreshold = 3
	// Pause between probes: short against a failover, long against a round trip.
	breakerProbeEvery = 50 * time.Millisecond
)

var _ TakeReturner = (*Breaker)(nil)

// NewBreaker guards next. probe asks the shard anything that only a working one
// answers, within the budget of its own; onState, which may be nil, hears of each change.
func NewBreaker(next TakeReturner, probe func(context.Context) error, onState func(up bool)) *Breaker {
	if onState == nil {
		onState = func(bool) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Breaker{next: next, probe: probe, onState: onState, ctx: ctx, stop: cancel}
}

// Take asks next, or returns ErrBroken at once while the shard is failing.
func (b *Breaker) Take(ctx context.Context, checks []Check, d *Decision) error {
	if b.open.Load() {
		return ErrBroken
	}
	err := b.next.Take(ctx, checks, d)
	b.record(err)
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

func (b *Breaker) record(err error) {
	if err == nil || errors.Is(err, ErrReply) || errors.Is(err, context.Canceled) {
		if b.failures.Load() != 0 {
			b.failures.Store(0)
		}
		return
	}
	if b.failures.Add(1) >= breakerThreshold && b.open.CompareAndSwap(false, true) {
		b.onState(false)
		go b.untilBack()
	}
}

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
