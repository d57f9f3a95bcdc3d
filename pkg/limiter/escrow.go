package limiter

import "context"

// A limit in escrow is divided: each region has a part of it in each window, and its store
// enforces that part. Rights, the units of a part that nobody has spent, may move to another
// region. The giver's store charges them first, as if they had been spent; only then does
// the receiver's store add them to what may be spent in the window of the same start. So in
// each window all regions together pass at most the limit, whatever is lost, late or doubled.

// Move moves rights of one key and window between this region and another. Each region counts
// what it gave to and got from each other in that window. Both counts only grow, so a move
// that is repeated, late, or made by several nodes does no harm.
type Move struct {
	Limit  *Limit // this region's part
	Key    []byte
	Region string // the other
	Start  int64  // of the window, in Unix microseconds
	// Got is how much the other region has given in this window, in all.
	Got int64
	// Upto is how much this one is to have given, in all, and Keep what it keeps at least.
	Upto, Keep int64
	// Burn charges all that is left, and lets nothing that others give count any more: the
	// store has lost what was spent in this window.
	Burn bool

	// Err says why there is no answer.
	Err error
	// Gave is how much this region has given in this window, in all.
	Gave int64
	// Left is what it may still spend; 0 in another window.
	Left int64
	// Known is how much the store has added of what the other gave. Burned is set if the
	// window is.
	Known  int64
	Burned bool
}

// Mover is a store of limits in escrow. It answers every element, each with its own error,
// within a bound of its own, after the moves are as safe as the store can make them.
type Mover interface {
	Move(ctx context.Context, moves []Move)
}
