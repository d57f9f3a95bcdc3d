package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// lockWait is how long a change waits for others, longer than a lock of some regions
// lasts whose holder died.
const lockWait = time.Minute

// lockNews tells the person about locks.
type lockNews struct {
	p    *program
	what string
}

// Waits implements rollout.Reporter.
func (n *lockNews) Waits(region string, other consul.Lock) {
	n.p.Say("%s: waiting for %s, who is changing the %s; should that never end, until %s", region, term.OrDash(other.By), n.what, term.Stamp(other.Until))
}

// StaysLocked implements rollout.Reporter.
func (n *lockNews) StaysLocked(region string, lock consul.Lock, err error) {
	n.p.Warn("%s: it may still be locked, so that nobody else can change the %s before %s: %v", region, n.what, term.Stamp(lock.Until), err)
}

// stopped says why a change of what stopped before it wrote anything; moved is the word for
// regions that somebody else has changed.
func stopped(err error, what string, moved func() error) error {
	var stop *rollout.Stop
	if !errors.As(err, &stop) {
		return err
	}
	switch stop.Why {
	case rollout.Interrupted:
		return term.Interrupted("interrupted; nothing was changed")
	case rollout.Unanswered:
		return term.Failed("nothing was changed: %w", err)
	case rollout.Busy:
		return term.Conflict("nothing was changed: %s: %s is changing the %s since %s; should that never end, because its regionctl was killed, the way is free at %s",
			stop.Region, term.OrDash(stop.Other.By), what, term.Stamp(stop.Other.Since), term.Stamp(stop.Other.Until))
	}
	return moved()
}

// unreachable names the regions that did not answer, with their errors.
func unreachable[S any](regions []*rollout.Region[S]) (names []string, err error) {
	var errs []error
	for _, r := range rollout.With(regions, rollout.Unreachable) {
		names = append(names, r.Name)
		errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.Err))
	}
	return names, errors.Join(errs...)
}

// showDifference shows what a change does, and which regions it goes without. With -o json
// that is not the result.
func (p *program) showDifference(away []string, write func(*bytes.Buffer, term.Style)) error {
	var b bytes.Buffer
	w, s := p.Out, p.OutStyle()
	if p.WantsJSON() {
		w, s = p.ErrOut, p.ErrStyle()
	}
	write(&b, s)
	if len(away) > 0 {
		fmt.Fprintf(&b, "%s: %s\n", s.Bold(strings.Join(away, ", ")), s.Yellow("cannot be reached, goes without"))
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// point points the regions at the document.
func (c *change) point(ctx context.Context) error {
	if len(c.with(rollout.Untouched)) == 0 {
		return nil
	}
	return stopped(c.engine.Write(ctx), c.engine.Name, func() error {
		moved := c.with(rollout.Lost)[0]
		return term.Conflict("nothing was changed anywhere: %s: %s", moved.target.Name, moved.why())
	})
}

// lookAgain finds regions that somebody else has changed while this change did not.
func (c *change) lookAgain(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	regions := c.with(rollout.Untouched, rollout.AlreadyThere)
	for i, a := range fleet.Ask(ctx, targetsOf(regions), fleet.LookAtPointer) {
		if r := regions[i].region; a.Err == nil && !c.engine.Same(r.Seen, a.Value) {
			r.Outcome, r.Now = rollout.Lost, a.Value
		}
	}
}

// record adds to a region's history that pointer is active and which version was before,
// unless it says so.
func (c *change) record(ctx context.Context, r *regionChange, before string, pointer consul.Pointer) {
	entry := consul.Change{Pointer: pointer, Message: c.message}
	if pointer.AppliedBy != c.by {
		entry.Message = "" // that is not why
	}
	err := func() error {
		if before != pointer.Version {
			entry.Replaced = before
			return r.target.Docs.Record(ctx, entry)
		}
		// Written again, or written by someone who could not record it.
		changes, _, err := r.target.Docs.History(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(changes, func(c consul.Change) bool { return wrote(c, &pointer) }) {
			return nil
		}
		m := memory{kind: r.target.Kind, pointer: r.region.Seen.Pointer, changes: changes}
		entry.Replaced, _ = m.replaced() // not known is good enough
		return r.target.Docs.Record(ctx, entry)
	}()
	if err != nil {
		c.p.Warn("%s: the %s are active, but the history was not written: %v", r.target.Name, r.target.Kind.What, err)
	}
}

// complete does what an earlier change, which applied the version, may have left
// undone in the regions that are there already.
func (c *change) complete(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, r := range c.with(rollout.AlreadyThere) {
		if pointer := r.region.Seen.Pointer; pointer != nil {
			all.Go(func() {
				ctx, cancel := r.target.Bounded(ctx)
				defer cancel()
				c.record(ctx, r, r.region.Seen.Version(), *pointer)
			})
		}
	}
}

// endCanaries has all edges of the regions that have the version follow it.
func (c *change) endCanaries(ctx context.Context) {
	var targets []*fleet.Target
	for _, r := range c.with(rollout.Applied, rollout.AlreadyThere) {
		if r.target.Kind.Canaries {
			targets = append(targets, r.target)
		}
	}
	now := time.Now()
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (ended []string, err error) {
		canaries, _, err := t.Docs.Canaries(ctx)
		for _, pop := range sortedKeys(canaries) {
			if wrong := t.Docs.EndCanary(ctx, pop); wrong != nil {
				err = errors.Join(err, wrong)
			} else if p := canaries[pop]; !p.Expired(now) {
				ended = append(ended, fmt.Sprintf("canary of %s on %s ended", term.OrDash(p.AppliedBy), pop))
			}
		}
		return ended, err
	}) {
		for _, text := range a.Value {
			c.p.Say("%s: %s", a.Target.Name, text)
		}
		if a.Err != nil {
			c.p.Warn("%s: its canaries could not be ended: %v", a.Target.Name, a.Err)
		}
	}
}

// outcome is what is wrong after the regions were pointed, nil if nothing is.
func (c *change) outcome(ctx context.Context) error {
	have, left := c.with(rollout.Applied, rollout.AlreadyThere), c.with(rollout.Untouched)
	losing, unclear := c.with(rollout.Lost), c.with(rollout.Unknown)
	failing := c.with(rollout.Unknown, rollout.Failed, rollout.Unreachable)
	without := c.with(rollout.Untouched, rollout.Lost, rollout.Failed, rollout.Unreachable)
	var reasons []string
	for _, r := range append(slices.Clone(losing), failing...) {
		reasons = append(reasons, r.target.Name+": "+r.why())
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
	case len(losing) > 0 && c.engine.Wrote && len(have)+len(unclear) == 0:
		return term.Conflict("this was active for a moment:\n%s", why)
	case len(losing) > 0 && !c.engine.Wrote && len(unclear) == 0:
		return term.Conflict("nothing was changed anywhere: %s", why)
	case len(losing) > 0:
		return term.Conflict("the fleet is divided: %s:\n%s", divided, why)
	case len(without)+len(unclear) == 0:
		return nil
	case len(left) > 0 && ctx.Err() != nil && len(have)+len(unclear) == 0:
		return term.Interrupted("interrupted; nothing was changed")
	case len(left) > 0 && ctx.Err() != nil:
		return term.Interrupted("interrupted: %s; running this again finishes it", divided)
	case len(have)+len(unclear) == 0:
		return term.Failed("nothing was changed: %s", why)
	case len(have) == 0:
		return term.Failed("%s may have taken effect in %s; run this again:\n%s", runsAll(unclear), namesOf(unclear), why)
	}
	return term.Partial("%s:\n%s\nrunning this again finishes it", divided, why)
}
