package limiter

import (
	"context"
	"time"
)

// Each window of a limit in escrow starts with new rights, so a region never loses what it
// holds: only windows to come are promised, or not. Each region's store promises windows of
// each region's part, up to a time, and never the same window to two holders. A region holds a
// window that a majority of all stores has promised it. Two majorities share a store, so no
// window has two holders, whatever clocks say and whatever is lost, late or doubled; clocks
// only say when a promise ends and when an owner is taken for dead.

const (
	// TermLasts is up to when, after it was asked, a store promises windows: a region that
	// reaches no majority spends nothing of windows that begin later.
	TermLasts = 60 * time.Second
	// TermSilence is for how long an owner must have asked for nothing before its heir is
	// promised its windows: a term and a tenth.
	TermSilence = TermLasts + TermLasts/10
	// LongestTerm bounds a promise to an asker whose clock is ahead.
	LongestTerm = TermLasts + MaxClockBack
	// TermForgotten is for how long promises may hold that a store has forgotten: its clock may
	// have been ahead of the one that it has now.
	TermForgotten = LongestTerm + MaxClockBack
)

// Term asks a store for a promise. An answer may come twice or late: promises are never taken
// back.
type Term struct {
	// Division identifies the regions among which limits are divided.
	Division int64
	// Part is the region whose part it is, Holder the one that asks to hold it.
	Part, Holder string
	// Until is the start of the last window that it asks for, in Unix microseconds.
	Until int64
	// Life identifies what the owner's store has kept since it was empty, if the owner asks;
	// 0 for a store that is asked by its own region.
	Life int64
	// Draw becomes the life of this store if it has none. Settle says, once, what the store of
	// that Life is, if it is still this one.
	Draw   int64
	Settle Settling
	// Others are the regions of whose stores this one must have heard to be settled as the first.
	Others []string

	// Err says why there is no answer.
	Err error
	// Promised is set if windows that begin in [From, To] are promised. What begins before
	// Sure is so only if this store has not forgotten what it promised to others.
	Promised       bool
	From, To, Sure int64
	// Own is this store's life, and Settled what it is.
	Own     int64
	Settled Settling
	// First is set if this store has heard of no other life of the owner's store, and has not
	// forgotten any.
	First bool
}

// Settling says whether a region's store may be spent from.
type Settling uint8

// What a store is settled as.
const (
	Unsettled    Settling = iota // not yet
	SettledFirst                 // it is the first store of its region
	SettledLater                 // what was spent from one before it is lost
	WouldBeFirst                 // asks whether it would be settled as the first, and as an answer says so
)

// TermStore is a store that promises windows. It answers every element, each with its own
// error, within a bound of its own, after the promises are as safe as the store can make them.
type TermStore interface {
	Renew(ctx context.Context, terms []Term)
	// Open lets parts of limits be spent in windows that began before the store was empty:
	// it never held anything that could have been lost. Otherwise they begin with the next
	// window.
	Open(ctx context.Context) error
	// Reopen lets parts of limits be spent in windows that begin in a while: the store has lost
	// what was spent. Without it that while begins with the first request. It is bounded, too.
	Reopen(ctx context.Context) error
}

// MaxLife bounds the numbers of lives: a Lua number holds them exactly.
const MaxLife = 1 << 52
