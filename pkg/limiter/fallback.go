package limiter

import (
	"context"
	"errors"
)

// Fallback applies each rule's failure policy when the shared store cannot answer: local
// counts in this process against this node's share of the limit, open admits, closed
// refuses. This favors availability over consistency, with a known bound: while the store
// is unreachable, each node charges at most ceil(limit / nodes). A request that costs more than
// this share is charged the share, so that it can pass.
type Fallback struct {
	shared FullStore
	local  FullStore
	nodes  func() int
	onErr  func(error)
	slots  *orphans
}

var _ FullStore = (*Fallback)(nil)

// NewFallback falls back from shared to local. nodes returns how many edge nodes currently
// share a limit; onErr, if not nil, receives every error of shared. Close stops it.
func NewFallback(shared, local FullStore, nodes func() int, onErr func(error)) *Fallback {
	if onErr == nil {
		onErr = func(error) {}
	}
	slots := &orphans{store: shared, stop: make(chan struct{})}
	return &Fallback{shared: shared, local: local, nodes: nodes, onErr: onErr, slots: slots}
}

// Take calls the shared store and, if that fails, applies the rules' failure policies. It
// never returns an error.
func (f *Fallback) Take(ctx context.Context, checks []Check, d *Decision) error {
	err := f.shared.Take(ctx, checks, d)
	if err == nil {
		return nil
	}
	f.onErr(err)
	if !errors.Is(err, ErrBroken) { // the charge may have happened, with only the answer lost
		f.slots.adopt(checks, nil)
	}
	left := lateCall(err)
	if err := f.TakeLocal(ctx, checks, d); err != nil || !d.Allowed {
		left.refused()
		return err
	}
	for i := range d.Results { // a slot's charge is given back anyway, and its return means nothing to others
		if checks[i].Limit.Algorithm != Concurrency {
			d.Results[i].late = left
		}
	}
	return nil
}

// TakeLocal applies the rules' failure policies without calling the shared store.
func (f *Fallback) TakeLocal(ctx context.Context, checks []Check, d *Decision) error {
	d.Reset(len(checks))
	d.Allowed = true
	for i := range checks {
		c, r := &checks[i], &d.Results[i]
		r.Source, r.Limit, r.Failed = SourceFallback, c.Limit.Limit, true
		r.Allowed = c.Limit.OnFailure == Open
		if c.Limit.OnFailure == Closed && r.Refuses(c) {
			d.Allowed, d.StoreUnavailable = false, true
		}
	}
	local, at := f.localChecks(checks)
	if len(local) == 0 {
		return nil
	}
	if !d.Allowed { // refused already: peek, charge nothing
		for i := range local {
			local[i].Peek = !local[i].Limit.Overdraft
		}
	}
	var ld Decision
	if err := f.local.Take(ctx, local, &ld); err != nil {
		return err
	}
	for i, pos := range at {
		d.Results[pos] = ld.Results[i]
		d.Results[pos].Source = SourceFallback
	}
	if !ld.Allowed {
		// An exhausted limit is a better reason than an unreachable store.
		d.Allowed, d.StoreUnavailable = false, false
	}
	return nil
}

// localChecks returns the checks that this node counts itself, limited to its share, and
// their indexes.
func (f *Fallback) localChecks(checks []Check) (local []Check, at []int) {
	n := f.nodes()
	for i := range checks {
		if checks[i].Limit.OnFailure != Local {
			continue
		}
		c := checks[i]
		c.Limit = c.Limit.Share(n)
		if !c.Limit.Overdraft {
			c.Cost = min(c.Cost, c.Limit.MaxCost()) // otherwise it could never fit a small share
		}
		local, at = append(local, c), append(at, i)
	}
	return local, at
}

// Return gives back to the store that charged, and to the shared store what it charged too
// late. A concurrency slot that the shared store cannot take back now is returned later.
func (f *Fallback) Return(ctx context.Context, checks []Check, d *Decision) error {
	for i := range d.Results {
		if d.Results[i].Source == SourceFallback {
			return f.returnLocal(ctx, checks, d)
		}
	}
	err := f.shared.Return(ctx, checks, d)
	if err != nil && f.slots.adopt(checks, d) {
		return nil
	}
	return err
}

func (f *Fallback) returnLocal(ctx context.Context, checks []Check, d *Decision) error {
	local, at := f.localChecks(checks)
	var ld Decision
	for _, pos := range at {
		ld.Results = append(ld.Results, d.Results[pos])
	}
	for i := range d.Results {
		d.Results[i].late.refused()
	}
	return f.local.Return(ctx, local, &ld)
}

// Reset resets both stores and returns the shared one's error.
func (f *Fallback) Reset(ctx context.Context, checks []Check) error {
	if err := f.local.Reset(ctx, checks); err != nil {
		return err
	}
	return f.shared.Reset(ctx, checks)
}

// Close stops returning slots.
func (f *Fallback) Close() { f.slots.close() }
