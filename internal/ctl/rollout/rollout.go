// Package rollout changes the fleet: the first region and then all others, under a lock of
// them all, and only if none has changed since the operator saw the difference. It treats
// all kinds of documents alike and prints nothing: it records what happened in each region's
// outcome, which the caller puts into words.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Subject is what a change writes, one value in each region: the pointer to a document, or
// the topology. S is such a value as read, even if it is damaged or missing.
type Subject[S any] struct {
	Name string // the name of its lock: rules, topology
	// Store, which may be nil, prepares a region for Write: it stores the document.
	Store func(context.Context, *Region[S]) error
	// Look reads what a region holds. An error means that Consul did not answer.
	Look func(context.Context, *Region[S]) (S, error)
	// Unchanged reports whether nothing was written between two looks.
	Unchanged func(a, b S) bool
	// Holds reports whether a region that holds s has what this change brings.
	Holds func(r *Region[S], s S) bool
	// Write writes if the region is still as it was seen, and locked as its Fence says.
	// False means that someone else was faster. A *consul.LockLostError and a StatusError below
	// 500 mean that nothing was written; other errors leave that open.
	Write func(context.Context, *Region[S]) (bool, error)
}

// Result is what a change did to one region.
type Result struct {
	Name    string
	Outcome Outcome
	Err     error // why, if it is unreachable, failed or unknown
}

// Locker manages the locks of a region. A *consul.Client is one.
type Locker interface {
	// Locked returns the lock that would block a change, or nil.
	Locked(ctx context.Context, name string) (*consul.Seen, error)
	// Lock returns the lock that blocks mine, unless its index is over; or the index of
	// mine, which is now held. An error other than a StatusError below 500 leaves open
	// whether it is.
	Lock(ctx context.Context, name string, mine consul.Lock, over uint64) (uint64, *consul.Seen, error)
	// Renew returns the new index, or a *consul.LockLostError.
	Renew(ctx context.Context, name string, mine consul.Lock, index uint64) (uint64, error)
	Unlock(ctx context.Context, name string, mine consul.Lock) error
}

// Region is one region of a change.
type Region[S any] struct {
	Result
	Locks Locker
	Fence consul.Fence // for Write
	Seen  S            // when the operator saw the difference
	Now   S            // what someone else wrote there, if the change lost
}

func NewRegion[S any](name string, locks Locker) *Region[S] {
	return &Region[S]{Result: Result{Name: name}, Locks: locks}
}

func (r *Region[S]) end(o Outcome, err error) { r.Outcome, r.Err = o, err }

func (r *Region[S]) lose(now S) { r.end(Lost, nil); r.Now = now }

// Change writes a subject to some regions.
type Change[S any] struct {
	Subject[S]
	Regions []*Region[S] // the first is locked and written first
	By      string       // for the lock
	Partial bool         // continue without regions that cannot be reached
	Timeout time.Duration
	// LockWait is how long to wait for other changes. BreakLock takes over existing locks,
	// even if their holders are active.
	LockWait  time.Duration
	BreakLock bool
	// Edits: changes that others make later, without these locks, build on this one.
	Edits bool

	// Ready is called under the lock, before the first write; its error stops the change.
	Ready func(context.Context) error
	// Report receives what takes long, or needs an operator's attention.
	Report Reporter

	Wrote     bool     // at least one region was written, whatever it has now
	Broke     []string // whose locks BreakLock took
	Displaced *Stop    // why regions were not written after others were: a lock was lost
}

// Reporter receives the progress of a change.
type Reporter interface {
	// Waits says that another change holds the lock of a region.
	Waits(region string, other consul.Lock)
	// Takes says that the locks of from were taken over, because they were not renewed or
	// were to be broken.
	Takes(regions []string, from string, broken bool)
	// StaysLocked says that a lock could not be released.
	StaysLocked(region string, err error)
}

// Stop says why a change stopped before it wrote anything.
type Stop struct {
	Why    Reason
	Region string       // where, but for Interrupted
	Err    error        // Unanswered: why not
	Other  *consul.Lock // Busy and Displaced: of whom; nil if that is unknown
}

// Reason is why a change stopped.
type Reason int

// The reasons.
const (
	Interrupted Reason = iota
	Unanswered         // a region does not answer
	Busy               // another change holds the lock of a region for too long
	Moved              // someone has changed regions: those are Lost
	NotStored          // regions did not store the document: those are Failed
	Displaced          // the lock of a region was lost
)

func (s *Stop) Error() string {
	switch s.Why {
	case Interrupted:
		return "interrupted"
	case Unanswered:
		return fmt.Sprintf("%s: %v", s.Region, s.Err)
	case Busy:
		return fmt.Sprintf("%s: %s is changing it", s.Region, s.Other.By)
	case Displaced:
		return s.Region + ": the lock was lost"
	}
	return s.Region + ": changed or not stored"
}

func (s *Stop) Unwrap() error { return s.Err }

// With returns the regions with one of these outcomes.
func With[S any](regions []*Region[S], outcomes ...Outcome) []*Region[S] {
	return fleet.Filter(regions, func(r *Region[S]) bool { return slices.Contains(outcomes, r.Outcome) })
}

func (c *Change[S]) Results() []Result {
	list := make([]Result, len(c.Regions))
	for i, r := range c.Regions {
		list[i] = r.Result
	}
	return list
}

// Prepare reads what all regions hold, with what the caller needs to show the difference.
// Regions that do not answer are Unreachable.
func (c *Change[S]) Prepare(ctx context.Context, read func(context.Context, *Region[S]) (S, error)) {
	c.each(c.Regions, func(r *Region[S]) {
		brief, cancel := c.bounded(ctx)
		defer cancel()
		seen, err := read(brief, r)
		if err != nil {
			r.end(Unreachable, err)
			return
		}
		r.Seen = seen
	})
}

// Compare finds the regions that already have what the change brings, and marks them
// AlreadyThere.
func (c *Change[S]) Compare() {
	for _, r := range With(c.Regions, Untouched) {
		if c.Holds(r, r.Seen) {
			r.Outcome = AlreadyThere
		}
	}
}

// Store prepares all regions that answered, including those that should already be
// prepared. Its error is a *Stop; with Partial, regions that fail are left out.
func (c *Change[S]) Store(ctx context.Context) error {
	regions := With(c.Regions, Untouched, AlreadyThere)
	c.each(regions, func(r *Region[S]) {
		brief, cancel := c.bounded(ctx)
		defer cancel()
		if err := c.Subject.Store(brief, r); err != nil {
			r.end(Failed, err)
		}
	})
	failed := With(regions, Failed)
	if len(failed) == 0 || c.Partial && len(failed) < len(regions) {
		return nil
	}
	return &Stop{Why: NotStored, Region: failed[0].Name, Err: failed[0].Err}
}

// Tell writes all regions that answered concurrently, without a lock: for a subject where
// one region's record is decisive.
func (c *Change[S]) Tell(ctx context.Context) {
	c.each(With(c.Regions, Untouched), func(r *Region[S]) { _ = c.writeOne(ctx, r) }) // without a lock, none can be lost
}

// Write writes all regions that are Untouched: the first and, if that succeeds, all others
// concurrently, so that a slow one does not delay the rest. If two changes somehow meet
// without locks, the first region admits only one. If Write loses a lock, it starts no more
// writes. Its error, a *Stop or that of Ready, means that nothing was written.
func (c *Change[S]) Write(ctx context.Context) error {
	locks, err := c.lock(ctx, With(c.Regions, Untouched, AlreadyThere))
	if err != nil {
		return err
	}
	defer locks.free()
	if err := c.unmoved(ctx); err != nil {
		return err
	}
	if c.Ready != nil {
		if err := c.Ready(ctx); err != nil {
			return err
		}
	}
	// Wait for a write that was sent, because otherwise its outcome would be unknown.
	detached := context.WithoutCancel(ctx)
	write := func(r *Region[S]) {
		if locks.still(detached) != nil {
			return
		}
		_ = locks.fenced(r, func(f consul.Fence) error { // if the lock is lost, that is recorded
			r.Fence = f
			return c.writeOne(detached, r)
		})
	}
	todo := With(c.Regions, Untouched)
	first := min(1, len(todo))
	for i, wave := range [][]*Region[S]{todo[:first], todo[first:]} {
		if ctx.Err() != nil {
			break
		}
		c.each(wave, write)
		c.Displaced, c.Wrote = locks.lostOne(), len(With(todo, Applied)) > 0
		if c.Displaced != nil && len(With(todo, Untouched, AlreadyThere)) == len(todo) {
			return c.Displaced
		}
		if i == 0 && len(With(wave, Applied, AlreadyThere)) < len(wave) {
			return nil
		}
		if c.Displaced != nil {
			break
		}
	}
	if !c.Edits {
		c.Verify(detached)
	}
	return nil
}

// unmoved checks all regions again, so that the second of two changes writes nothing,
// unless both want the same.
func (c *Change[S]) unmoved(ctx context.Context) error {
	regions := With(c.Regions, Untouched, AlreadyThere)
	now, errs := c.look(ctx, regions)
	for i, r := range regions {
		switch {
		case ctx.Err() != nil:
			return &Stop{Why: Interrupted}
		case errs[i] != nil && !c.Partial:
			return &Stop{Why: Unanswered, Region: r.Name, Err: errs[i]}
		case errs[i] != nil:
			r.end(Unreachable, errs[i])
		case c.Unchanged(r.Seen, now[i]):
		case c.Holds(r, now[i]):
			r.Seen, r.Outcome = now[i], AlreadyThere
		default:
			r.lose(now[i])
		}
	}
	if moved := With(c.Regions, Lost); len(moved) > 0 {
		return &Stop{Why: Moved, Region: moved[0].Name}
	}
	if len(With(c.Regions, Untouched, AlreadyThere)) == 0 {
		return &Stop{Why: Unanswered, Region: regions[0].Name, Err: errs[0]}
	}
	return nil
}

// writeOne returns a *consul.LockLostError if the region is not written because its lock was
// lost.
func (c *Change[S]) writeOne(ctx context.Context, r *Region[S]) error {
	done, err := c.Subject.Write(ctx, r)
	var lost *consul.LockLostError
	switch {
	case done:
		r.end(Applied, nil)
		return nil
	case errors.As(err, &lost):
		return err
	case refused(err):
		r.end(Failed, err)
		return nil
	}
	brief, cancel := c.bounded(ctx)
	defer cancel()
	now, unseen := c.Look(brief, r)
	switch {
	case unseen != nil && err == nil:
		r.end(Lost, unseen)
	case unseen != nil:
		r.end(Unknown, err)
	case c.Holds(r, now) && err == nil:
		r.Seen = now
		r.end(AlreadyThere, nil) // someone else wants the same
	case c.Holds(r, now):
		r.end(Applied, nil)
	case c.Unchanged(r.Seen, now):
		r.end(Unknown, err) // it may still be on its way
	default:
		r.lose(now)
	}
	return nil
}

// Verify finds regions that another change has taken since they were written or seen: one
// that took these locks over, because this process was suspended, or broke them. Of two
// such changes, at least the one that checks after the other has written notices.
func (c *Change[S]) Verify(ctx context.Context) {
	regions := With(c.Regions, Applied, AlreadyThere)
	now, errs := c.look(ctx, regions)
	for i, r := range regions {
		// A region that does not answer now was written, and nothing says that it has
		// changed.
		if errs[i] == nil && !c.Holds(r, now[i]) {
			r.lose(now[i])
		}
	}
}

func (c *Change[S]) look(ctx context.Context, regions []*Region[S]) ([]S, []error) {
	now, errs := make([]S, len(regions)), make([]error, len(regions))
	c.eachOf(regions, func(i int, r *Region[S]) {
		brief, cancel := c.bounded(ctx)
		defer cancel()
		now[i], errs[i] = c.Look(brief, r)
	})
	return now, errs
}

func (c *Change[S]) each(regions []*Region[S], f func(*Region[S])) {
	c.eachOf(regions, func(_ int, r *Region[S]) { f(r) })
}

func (c *Change[S]) eachOf(regions []*Region[S], f func(int, *Region[S])) {
	var all sync.WaitGroup
	for i, r := range regions {
		all.Go(func() { f(i, r) })
	}
	all.Wait()
}

// bounded limits one question to a Consul.
func (c *Change[S]) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %s", c.Timeout))
}
