package limiter

import (
	"context"
	"time"
)

// Front is how a request enters the layers, in two steps: what is known to be refused is
// refused without I/O, and the rest is decided. Between them the caller may refuse the
// request for a reason of its own, such as an overload.
//
// A layer in front of Denied implements both steps, because it may change the checks.
type Front interface {
	FullStore
	Prechecker
	Taker
}

// Prechecker is the first step.
type Prechecker interface {
	// Precheck reports whether a check is known to be refused; it then fills d as Take would.
	// Otherwise it leaves d alone, and TakeAfter decides. now is a recent reading of the
	// clock, taken before any call to the store, so that memory never outlives a refusal.
	// Nothing is known of checks that only peek.
	Precheck(checks []Check, d *Decision, now time.Time) PrecheckResult
}

// Taker is the second step.
type Taker interface {
	// TakeAfter decides what Precheck did not refuse.
	TakeAfter(ctx context.Context, checks []Check, d *Decision, look PrecheckResult) error
}

// PrecheckResult is the result of looking up a request.
type PrecheckResult struct {
	Refused       bool // the request is refused
	othersRefused bool // so are other requests for one of its keys, at another cost or under another limit
	// CheckedAt is when memory was consulted, which is before any call to the store.
	CheckedAt time.Time
	checkedAt time.Duration // by Denied's clock, which may miss a suspension that is yet to come
}

// TakeAt takes both steps at once.
func TakeAt(ctx context.Context, f Front, checks []Check, d *Decision, now time.Time) error {
	look := f.Precheck(checks, d, now)
	if look.Refused {
		return nil
	}
	return f.TakeAfter(ctx, checks, d, look)
}

// NoDenied is a Front for a store that remembers no refusals.
type NoDenied struct{ FullStore }

var _ Front = NoDenied{}

// Precheck implements Front.
func (NoDenied) Precheck(_ []Check, _ *Decision, now time.Time) PrecheckResult {
	return PrecheckResult{CheckedAt: now}
}

// TakeAfter implements Front.
func (f NoDenied) TakeAfter(ctx context.Context, checks []Check, d *Decision, _ PrecheckResult) error {
	return f.Take(ctx, checks, d)
}
