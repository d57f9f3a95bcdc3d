// Package limiter decides whether a request may pass.
//
// A request carries zero or more checks, and a Store decides them in one atomic step: the
// request passes only if every check passes, and if one refuses, no other is charged.
// Everything between the request path and the counters (the memory of refusals, batching,
// fallback) is a Store around a Store, so the layers compose and each can be read alone.
package limiter

import (
	"context"
	"errors"
	"time"
)

// Check is one limit that a request must pass.
type Check struct {
	Limit *Limit
	// Key names the counter: weir:{subject}:rule:tag[:rest]. The caller may reuse it as
	// soon as Take returns; a store that keeps it must copy it.
	Key []byte
	// Cost is charged as a unit; 0 only peeks. Only under an Overdraft may it be negative.
	Cost int64
	// Slot identifies this request among those in flight. Only concurrency uses it; it
	// must be unique in the region.
	Slot uint64
	// Peek decides as if charged, but charges nothing. A request's checks all peek, or none.
	Peek bool
	// Nodes, if not 0, asks for a lease instead of a decision: Cost is how many units this
	// node wants (at most MaxEntries in a sorted set), Nodes how many nodes share the
	// limit, and Result.Granted how many units it received. Such a check is the only one in
	// its call.
	Nodes int
}

// Source is the layer that gave an answer.
type Source uint8

// The sources, as the metrics name them. SourceNone marks a check that was not evaluated
// because another one had already refused.
const (
	SourceNone Source = iota
	SourceRedis
	SourceMemory
	SourceDenied
	SourceFallback
	SourceLease
	SourceReported
	sourceCount
)

// SourceCount is the number of sources, SourceNone included.
const SourceCount = int(sourceCount)

// String returns the value of the source label.
func (s Source) String() string {
	switch s {
	case SourceRedis:
		return "redis"
	case SourceMemory:
		return "memory"
	case SourceDenied:
		return "denied_memory"
	case SourceFallback:
		return "fallback"
	case SourceLease:
		return "lease"
	case SourceReported:
		return "reported"
	}
	return "none"
}

// Result is the answer to one check.
type Result struct {
	// Allowed reports whether this check alone would let the request pass.
	Allowed bool
	// Charged reports whether Return gives the cost back; it does not what an Overdraft charged.
	Charged bool
	// Failed marks a check whose store could not answer; Allowed then follows
	// the rule's failure policy.
	Failed bool
	Source Source
	// Limit is the limit that was enforced: the rule's or, in fallback, this node's share.
	Limit int64
	// Remaining is the cost that would still pass now; never negative.
	Remaining int64
	// RetryAfter is how long until the same request can pass at the earliest; 0 when
	// allowed, and for concurrency, where a slot may become free at any time.
	RetryAfter time.Duration
	// ResetAfter is the time until the whole limit is available again.
	ResetAfter time.Duration
	// TakenAt is the store's clock, in Unix microseconds, when it decided; for a charge
	// under a leased limit, the value of Limit.ChargedAt.
	TakenAt int64
	// Granted is the answer to a check with Nodes set: the units charged, which the asking
	// node may spend.
	Granted int64

	late *Call // of the store, left before this answer
}

// Decision is the answer to a request. Its owner may reuse it; Take overwrites it.
type Decision struct {
	// Allowed is the verdict: every enforced check passed.
	Allowed bool
	// StoreUnavailable is set if the request is refused only because a store could not answer
	// and a rule fails closed.
	StoreUnavailable bool
	// Results holds one answer per check, in the order of the checks.
	Results []Result
}

// Reset makes room for n results and clears them.
func (d *Decision) Reset(n int) {
	d.Allowed, d.StoreUnavailable = false, false
	if cap(d.Results) < n {
		d.Results = make([]Result, n)
		return
	}
	d.Results = d.Results[:n]
	clear(d.Results)
}

// Undecided answers that check i cannot be decided.
func (d *Decision) Undecided(checks []Check, i int) {
	d.Reset(len(checks))
	d.StoreUnavailable = true
	r := &d.Results[i]
	r.Source, r.Limit, r.Failed = SourceFallback, checks[i].Limit.Limit, true
}

// RetryAfter returns the longest wait among the enforced checks that refused.
func (d *Decision) RetryAfter(checks []Check) time.Duration {
	var longest time.Duration
	for i := range d.Results {
		if r := &d.Results[i]; r.Refuses(&checks[i]) && r.RetryAfter > longest {
			longest = r.RetryAfter
		}
	}
	return longest
}

// Refuses reports whether the answer stops the request: an enforced check refused.
func (r *Result) Refuses(c *Check) bool {
	return !r.Allowed && r.Source != SourceNone && !c.Limit.Shadow
}

// Store decides. Take fills d with one result per check, or returns an error and leaves d
// undefined. It must be safe for concurrent use and return within the store's time budget
// even if ctx has no deadline.
type Store interface {
	Take(ctx context.Context, checks []Check, d *Decision) error
}

// Returner gives back what a decision charged. d must be what Take answered for these
// checks. Only results with Charged set are returned. A return may make another request
// wait briefly, but never admits one that should be refused.
type Returner interface {
	Return(ctx context.Context, checks []Check, d *Decision) error
}

// Resetter clears counters at an operator's request.
type Resetter interface {
	Reset(ctx context.Context, checks []Check) error
}

// FullStore is a Store that can also give back and reset.
type FullStore interface {
	Store
	Returner
	Resetter
}

// Errors that a caller may branch on.
var (
	// ErrTimeout: the store did not answer within its budget. The charge may or may not
	// have happened.
	ErrTimeout = errors.New("store did not answer within its time budget")
	// ErrOverloaded: too many requests are already waiting for the store.
	ErrOverloaded = errors.New("store queue is full")
	// ErrBroken: this shard's breaker is open; no call was made.
	ErrBroken = errors.New("store shard is failing, breaker open")
	// ErrReply: the store replied with an error: out of memory, read only, loading, or
	// one about this call.
	ErrReply = errors.New("store refused the call")
	// ErrElsewhere: another shard has the keys and did not answer in time. This shard is not
	// at fault.
	ErrElsewhere = errors.New("another shard has the keys")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)
