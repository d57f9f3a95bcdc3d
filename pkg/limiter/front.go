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
	Known
	Taker
}

// Known is the first step.
type Known interface {
	// Look reports whether a check is known to be refused; it then fills d as Take would.
	// Otherwise it leaves d alone, and TakeAfter decides. now is a recent reading of the
	// clock, taken before any call to the store, so that memory never outlives a refusal.
	// Nothing is known of checks that only peek.
	Look(checks []Check, d *Decision, now time.Time) Look
}

// Taker is the second step.
type Taker interface {
	// TakeAfter decides what Look did not refuse.
	TakeAfter(ctx context.Context, checks []Check, d *Decision, look Look) error
}

// Look is the result of looking up a request.
type Look struct {
	Refused bool // the request is refused
	others  bool // so are other requests for one of its keys, at another cost or under another limit
	// At is when memory was consulted, which is before any call to the store.
	At time.Time
	at time.Duration // by Denied's clock, which may miss a suspension that is yet to come
}

// TakeAt takes both steps at once.
func TakeAt(ctx context.Context, f Front, checks []Check, d *Decision, now time.Time) error {
	look := f.Look(checks, d, now)
	if look.Refused {
		return nil
	}
	return f.TakeAfter(ctx, checks, d, look)
}

// Forgetful is a Front for a store that remembers no refusals.
type Forgetful struct{ FullStore }

var _ Front = Forgetful{}

// Look implements Front.
func (Forgetful) Look(_ []Check, _ *Decision, now time.Time) Look { return Look{At: now} }

// TakeAfter implements Front.
func (f Forgetful) TakeAfter(ctx context.Context, checks []Check, d *Decision, _ Look) error {
	return f.Take(ctx, checks, d)
}
