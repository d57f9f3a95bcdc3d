package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// point switches the regions over, while nobody else does. It stops at the first one if
// that fails, and goes on after that: a fleet should not stay divided because one region
// is away.
func (c *change) point(ctx context.Context) error {
	todo := c.with(untouched)
	if len(todo) == 0 {
		return nil
	}
	var targets []*target
	for _, r := range c.with(untouched, alreadyThere) {
		targets = append(targets, r.target)
	}
	unlock, err := c.p.lock(ctx, targets, targets[0].kind.name, c.by)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.unmoved(ctx, targets); err != nil {
		return err
	}
	if c.stillGood != nil {
		if err := c.stillGood(ctx); err != nil {
			return err
		}
	}
	c.at = time.Now().UTC().Round(0)
	var history sync.WaitGroup
	defer history.Wait()
	for i, r := range todo {
		if ctx.Err() != nil {
			break
		}
		// What is on its way is seen through, or nobody would know how it ended.
		detached := context.WithoutCancel(ctx)
		pointer := c.pointer(r)
		done, err := r.target.docs.Point(detached, pointer, r.index)
		var answer *region.StatusError
		switch {
		case errors.As(err, &answer) && answer.Code < 500:
			r.fail(unsuccessful, err)
		case err != nil:
			r.fail(unknown, err)
		case !done:
			r.lose(detached, c.p)
		default:
			c.pointed, r.Result = true, applied
			history.Go(func() { c.record(detached, r, pointer) })
		}
		if i == 0 && !c.pointed {
			return nil
		}
	}
	c.verify(context.WithoutCancel(ctx), targets)
	return nil
}

// unmoved looks again at all regions, so that whoever comes second changes nothing.
func (c *change) unmoved(ctx context.Context, targets []*target) error {
	for _, a := range ask(ctx, c.p, targets, lookAtPointer) {
		switch r := c.region(a.target.name); {
		case ctx.Err() != nil:
			return interrupted("interrupted; nothing was changed")
		case a.err != nil:
			return failed("nothing was changed: %s: %w", r.Region, a.err)
		case a.value.index != r.index:
			r.loseTo(a.value)
		}
	}
	if moved := c.with(lost); len(moved) > 0 {
		return conflict("nothing was changed anywhere: %s: %s", moved[0].Region, moved[0].Error)
	}
	return nil
}

// verify finds regions that another change has taken since they were written, or seen to
// have the version: one that came when the locks of this one had run out, because it was
// stopped for a while. Each of the two sees it who looks after the other has written.
func (c *change) verify(ctx context.Context, targets []*target) {
	for _, a := range ask(ctx, c.p, targets, lookAtPointer) {
		r := c.region(a.target.name)
		switch {
		case a.err != nil: // what it has was written, and not known to be gone
		case r.Result == applied && !c.wrote(r, a.value.pointer), r.Result == alreadyThere && a.value.index != r.index:
			r.loseTo(a.value)
		}
	}
}

// wrote reports whether a pointer is the one that this change gave a region.
func (c *change) wrote(r *regionChange, p *region.Pointer) bool {
	return p != nil && p.Version == r.next.version() && p.AppliedAt.Equal(c.at) && p.AppliedBy == c.by
}

// pointer is what a region is pointed at.
func (c *change) pointer(r *regionChange) region.Pointer {
	p := r.next.pointer(c.by, c.at)
	p.ExpiresAt, p.Then = c.expires(), r.Then
	if r.ends {
		p.ExpiresAt = &c.at
	}
	return p
}

// lose finds out who was faster.
func (r *regionChange) lose(ctx context.Context, p *program) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	now, err := lookAtPointer(ctx, r.target)
	if err != nil {
		now = &published{broken: err}
	}
	r.loseTo(now)
}

func (r *regionChange) loseTo(now *published) {
	if now.broken != nil {
		r.fail(lost, fmt.Errorf("someone changed the %s meanwhile, and who cannot be read: %w", r.target.kind.what, now.broken))
		return
	}
	r.Result, r.Now, r.Error = lost, now.pointer, r.target.kind.whoMoved(now.pointer)
}

// record adds to a region's history that pointer is in force, unless it says so.
func (c *change) record(ctx context.Context, r *regionChange, pointer region.Pointer) {
	entry := region.Change{Pointer: pointer, Message: c.message}
	if pointer.AppliedBy != c.by {
		entry.Message = "" // that is not why
	}
	err := func() error {
		if r.version() != pointer.Version {
			entry.Replaced = r.version()
			return r.target.docs.Record(ctx, entry)
		}
		// Written again, or written by someone who could not record it.
		changes, _, err := r.target.docs.History(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(changes, func(c region.Change) bool { return wrote(c, &pointer) }) {
			return nil
		}
		m := memory{kind: r.target.kind, pointer: r.Before, changes: changes}
		entry.Replaced, _ = m.replaced() // not known is good enough
		return r.target.docs.Record(ctx, entry)
	}()
	if err != nil {
		c.p.warn("%s: the %s are in force, but the history was not written: %v", r.Region, r.target.kind.what, err)
	}
}

// complete does what an earlier change, which put the version in force, may have left
// undone in the regions that are there already.
func (c *change) complete(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range c.with(alreadyThere) {
		if r.Before != nil {
			all.Go(func() {
				ctx, cancel := c.p.bounded(ctx)
				defer cancel()
				c.record(ctx, r, *r.Before)
			})
		}
	}
}

// endCanaries has all edges of the regions that have the version follow it.
func (c *change) endCanaries(ctx context.Context) {
	var targets []*target
	for _, r := range c.with(applied, alreadyThere) {
		if r.target.kind.canaries {
			targets = append(targets, r.target)
		}
	}
	now := time.Now()
	for _, a := range ask(ctx, c.p, targets, func(ctx context.Context, t *target) (ended []string, err error) {
		canaries, _, err := t.docs.Canaries(ctx)
		for _, pop := range sortedKeys(canaries) {
			if wrong := t.docs.EndCanary(ctx, pop); wrong != nil {
				err = errors.Join(err, wrong)
			} else if p := canaries[pop]; !p.Expired(now) {
				ended = append(ended, fmt.Sprintf("canary of %s on %s ended", orDash(p.AppliedBy), pop))
			}
		}
		return ended, err
	}) {
		for _, text := range a.value {
			c.p.say("%s: %s", a.target.name, text)
		}
		if a.err != nil {
			c.p.warn("%s: its canaries could not be ended: %v", a.target.name, a.err)
		}
	}
}

// outcome is what is wrong after the regions were pointed, nil if nothing is.
func (c *change) outcome(ctx context.Context) error {
	have, left, losing, unclear := c.with(applied, alreadyThere), c.with(untouched), c.with(lost), c.with(unknown)
	failing := c.with(unknown, unsuccessful, unreachable)
	without := c.with(untouched, lost, unsuccessful, unreachable)
	var reasons []string
	for _, r := range append(slices.Clone(losing), failing...) {
		reasons = append(reasons, r.Region+": "+r.Error)
	}
	why := strings.Join(reasons, "\n")
	var parts []string
	if len(have) > 0 {
		parts = append(parts, namesOf(have)+" has "+runsAll(have))
	}
	if len(without) > 0 {
		parts = append(parts, namesOf(without)+" has not")
	}
	if len(unclear) > 0 {
		parts = append(parts, "in "+namesOf(unclear)+" it may have taken effect")
	}
	divided := strings.Join(parts, " and ")
	switch {
	case len(losing) > 0 && c.pointed && len(have)+len(unclear) == 0:
		return conflict("this was in force for a moment:\n%s", why)
	case len(losing) > 0 && !c.pointed && len(unclear) == 0:
		return conflict("nothing was changed anywhere: %s", why)
	case len(losing) > 0:
		return conflict("the fleet is divided: %s:\n%s", divided, why)
	case len(without)+len(unclear) == 0:
		return nil
	case len(left) > 0 && ctx.Err() != nil && len(have)+len(unclear) == 0:
		return interrupted("interrupted; nothing was changed")
	case len(left) > 0 && ctx.Err() != nil:
		return interrupted("interrupted: %s; running this again finishes it", divided)
	case len(have)+len(unclear) == 0:
		return failed("nothing was changed: %s", why)
	case len(have) == 0:
		return failed("%s may have taken effect in %s; run this again:\n%s", runsAll(unclear), namesOf(unclear), why)
	}
	return partial("%s:\n%s\nrunning this again finishes it", divided, why)
}
