package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// grace is how long a canary outlives its bake if it is not ended: promoting must be
	// done by then.
	grace = time.Minute
	// canaryStart bounds the wait for the canary's edges, so that most of grace is
	// left after it.
	canaryStart = 30 * time.Second
	// longestMeasure bounds the measurement of a site before its trial.
	longestMeasure = 30 * time.Second
	// outsideLooks in a row end a canary: one may be a coincidence.
	outsideLooks = 2
)

// trial is a change that is tried on one site before it is made.
type trial struct {
	*canaryOptions
	c       *change
	p       *program
	targets []*fleet.Target // all regions of the change
	site    *rollout.Canary

	before         sample // what happened on the sites just before it began
	canary, others fleet.Tally
	late           *window
	silent         map[string]bool // nodes whose last scrape failed
	outside        int
	excess         string
	unanswered     int // consecutive looks
}

// newTrial finds the site. It changes nothing.
func (c *change) newTrial(ctx context.Context, targets []*fleet.Target, o *canaryOptions) (*trial, error) {
	t := &trial{canaryOptions: o, c: c, p: c.p, late: newWindow(o.bake, o.minRequests), silent: map[string]bool{},
		site: &rollout.Canary{PoP: o.pop, Before: map[*fleet.Target]uint64{}}}
	for _, r := range c.with(rollout.Untouched, rollout.AlreadyThere) {
		t.targets = append(t.targets, r.target)
	}
	type site struct {
		here  bool
		pops  []string
		other *consul.Pointer
		index uint64
	}
	answers := fleet.Ask(ctx, t.targets, func(ctx context.Context, target *fleet.Target) (s site, err error) {
		nodes, err := target.Nodes(ctx)
		if err != nil {
			return s, err
		}
		for _, n := range nodes {
			s.pops = append(s.pops, n.PoP)
			s.here = s.here || n.PoP == o.pop && n.Passing
		}
		if s.here {
			s.other, s.index, err = target.Docs.Canary(ctx, o.pop)
			if s.index != 0 {
				err = nil // invalid data in its place is overwritten
			}
		}
		return s, err
	})
	if _, err := fleet.Failures(answers); err != nil {
		return nil, term.Failed("nothing was changed: %w", err)
	}
	var pops []string
	for _, a := range answers {
		pops = append(pops, a.Value.pops...)
		if !a.Value.here {
			continue
		}
		t.site.Homes = append(t.site.Homes, a.Target)
		t.site.Before[a.Target] = a.Value.index
		if other := a.Value.other; other != nil && !other.Expired(a.Target.Consul.Now()) && other.Version != c.doc.Version() {
			return nil, term.Conflict("nothing was changed: %s: %s has been trying %s on %s since %s, until %s; wait for that, or end it with regionctl %s apply or rollback without --canary", a.Target.Name,
				term.Printable(other.AppliedBy), other.Version, o.pop, term.Stamp(other.AppliedAt), until(other), c.doc.Kind.Name)
		}
	}
	if len(t.site.Homes) == 0 {
		return nil, term.Misused("--canary %s: no edge of that site passes its check; there are edges in %s (nothing was changed)", o.pop, term.OrDashes(distinct(pops)))
	}
	return t, nil
}

// run tries the change, and then applies it or takes it back. However it ends, the canary
// is removed.
func (t *trial) run(ctx context.Context) error {
	err := t.try(ctx)
	if err != nil {
		removed := t.remove(ctx)
		t.c.lookAgain(ctx)
		return t.c.report(t.report(err), t.settle(ctx, err, removed), nil)
	}
	t.p.Say("%s is within the bounds after %s: %s", t.pop, t.bake, t.figures())
	report := t.report(nil)
	t.c.ready = t.still
	var removed error
	err = t.c.switchOver(ctx, report, func() {
		report.Promoted = len(t.c.with(rollout.Applied)) > 0
		removed = t.remove(ctx)
	})
	if removed != nil {
		t.p.Warn("%v", removed)
	} else if !report.Promoted {
		t.p.Say("the canary was removed")
	}
	return err
}

// settle combines why a trial ended with how its canary was removed.
func (t *trial) settle(ctx context.Context, err, removed error) error {
	status := term.StatusFailed
	var f *term.Failure
	switch {
	case errors.As(err, &f):
		status = f.Status
	case ctx.Err() != nil:
		status, err = term.StatusInterrupted, errors.New("interrupted")
	}
	after := "the canary was removed, and no region was changed"
	if status == term.StatusConflict {
		after = "the canary is gone, and this changed no region"
	}
	if removed != nil {
		after = removed.Error()
	}
	return &term.Failure{Status: status, Err: fmt.Errorf("canary on %s: %w\n%s", t.pop, err, after)}
}

func (t *trial) report(err error) *canaryReport {
	r := &canaryReport{PoP: t.pop, Regions: regionNames(t.site.Homes), Canary: t.canary.Total, Others: t.others.Total}
	if err != nil {
		r.Why = err.Error()
	}
	return r
}

// try returns nil if the canary may be promoted.
func (t *trial) try(ctx context.Context) error {
	if err := t.measure(ctx); err != nil {
		return err
	}
	if err := t.set(ctx); err != nil {
		return err
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	return t.watch(ctx)
}

// set makes the site follow the candidate, under the lock, so that it is not pruned
// meanwhile.
func (t *trial) set(ctx context.Context) error {
	homes := fleet.Filter(t.c.engine.Regions, func(r *rollout.Region[fleet.Current]) bool {
		return slices.Contains(t.site.Homes, t.c.region(r.Name).target)
	})
	if failed := rollout.With(homes, rollout.Failed); len(failed) > 0 { // with --partial
		return t.c.stopped(&rollout.Stop{Why: rollout.NotStored, Region: failed[0].Name})
	}
	begin := func(ctx context.Context) error {
		now := t.p.now() // after the wait for other changes, which is no part of the bake
		t.site.Pointer = consul.NewPointer(t.c.doc.Bytes, t.c.by, now)
		expires := now.Add(t.bake + grace).UTC().Round(0)
		t.site.Pointer.ExpiresAt = &expires
		return t.c.restore(ctx)
	}
	err := t.c.engine.Under(ctx, homes, begin, func(r *rollout.Region[fleet.Current], fenced func(func(consul.Fence) error) error) error {
		return fenced(func(f consul.Fence) error { return t.site.Set(ctx, t.c.region(r.Name).target, f) })
	})
	var stop *rollout.Stop
	if errors.As(err, &stop) && stop.Why != rollout.Moved {
		return t.c.stopped(stop)
	}
	return t.moved(err)
}

// start waits until the site's edges run the candidate.
func (t *trial) start(ctx context.Context) error {
	limit := canaryStart
	if t.c.wait > 0 {
		limit = min(limit, t.c.wait)
	}
	w := edges{version: func(*fleet.Target) string { return t.c.doc.Version() }, wanted: func(n consul.Node) bool { return n.PoP == t.pop && n.Passing },
		moved: func(_ *fleet.Target, v *fleet.RegionView) bool {
			p, follows := v.Canaries[t.pop]
			return !follows || !t.site.Mine(&p)
		}}
	for _, a := range t.p.await(ctx, w, t.site.Homes, limit) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case a.State == rollout.Superseded:
			return t.moved(&rollout.Stop{Why: rollout.Moved, Region: a.Target.Name})
		case a.State != rollout.Unseen && a.Err == nil && len(a.View.Nodes) == 0:
			return fmt.Errorf("%s: its edges are gone", a.Target.Name)
		case a.State == rollout.Refusing:
			n := a.Refused[0]
			return fmt.Errorf("%s: node %s refuses %s:\n    %s\n  correct the document", a.Target.Name, term.Printable(n.ID), t.c.doc.Version(), indented(reasons(&n)))
		case a.Err != nil:
			return fmt.Errorf("%s: %w", a.Target.Name, a.Err)
		case a.State != rollout.Arrived:
			reason := "not known yet"
			if behind := a.View.Behind(); len(behind) > 0 {
				reason = why(&behind[0])
			}
			return fmt.Errorf("%s: its edges did not all follow within %s: %s; see %s", a.Target.Name, limit, reason, saidOf(t.c.doc.Kind).look)
		}
	}
	return nil
}

// moved says that someone else has ended the trial, if that is what err means.
func (t *trial) moved(err error) error {
	var stop *rollout.Stop
	if errors.As(err, &stop) && stop.Why == rollout.Moved {
		return term.Conflict("%s: someone else ended it, or began another; see %s", stop.Region, saidOf(t.c.doc.Kind).look)
	}
	return err
}

// watch compares the site with the others until the bake is over.
func (t *trial) watch(ctx context.Context) error {
	progress := t.p.Progress()
	if err := t.look(ctx); err != nil {
		return err
	}
	// The first look only shows where the counters stand, and may take as long as a bake.
	ends := time.Now().Add(t.bake)
	if len(t.silent) > 0 {
		return fmt.Errorf("the figures of %s cannot be read, so it cannot be judged", strings.Join(sortedKeys(t.silent), ", "))
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(t.interval, max(0, time.Until(ends)))):
		}
		if err := t.look(ctx); err != nil {
			return err
		}
		left := max(0, time.Until(ends)).Round(time.Second)
		progress.Update([]string{fmt.Sprintf("%s: %s; %s left", t.pop, t.figures(), left)})
		if t.outside == outsideLooks {
			return term.Failed("outside the bounds twice in a row: %s", t.excess)
		}
		if left > 0 || time.Now().Before(ends) {
			continue
		}
		return t.verdict()
	}
}

// verdict returns the verdict at the end of the bake.
func (t *trial) verdict() error {
	canary := &t.canary.Total
	switch {
	case !t.enough(canary):
		return term.Failed("not promoted: it had only %.0f requests in %s, and needs at least %d; bake longer, or lower --min-requests", canary.Requests, t.bake, t.minRequests)
	case t.outside > 0:
		return term.Failed("outside the bounds at the end: %s", t.excess)
	case len(t.silent) > 0:
		return term.Failed("not promoted: the figures of %s could not be read at the end", strings.Join(sortedKeys(t.silent), ", "))
	}
	return nil
}

func (t *trial) figures() string {
	c, o := &t.canary.Total, &t.others.Total
	return fmt.Sprintf("%.0f requests, limited %s (others %s), 5xx %s (others %s of %.0f)", c.Requests,
		percent(c.LimitedShare()), percent(o.LimitedShare()), percent(c.ErrorShare()), percent(o.ErrorShare()), o.Requests)
}

// unchanged checks that the rules are unchanged and the canary has not been ended.
func (t *trial) unchanged(ctx context.Context, target *fleet.Target) error {
	ctx, cancel := target.Bounded(ctx)
	defer cancel()
	r := t.c.region(target.Name)
	now, index, err := target.Docs.Current(ctx)
	if err != nil && index == 0 {
		return err
	}
	if index != r.region.Seen.Index {
		r.region.Now.Pointer = now
		return term.Conflict("%s: %s", target.Name, whoMoved(target.Kind, now))
	}
	if !slices.Contains(t.site.Homes, target) {
		return nil
	}
	return t.moved(t.site.Check(ctx, target))
}

// still checks that the canary was not ended during the wait for other changes.
func (t *trial) still(ctx context.Context) error {
	for _, a := range fleet.Ask(ctx, t.site.Homes, func(ctx context.Context, target *fleet.Target) (struct{}, error) {
		return struct{}{}, t.unchanged(ctx, target)
	}) {
		if a.Err != nil {
			return fmt.Errorf("nothing was changed: canary on %s: %w", t.pop, a.Err)
		}
	}
	if t.site.Pointer.Expired(t.p.now()) {
		return term.Conflict("nothing was changed: the canary on %s expired while this waited for another change", t.pop)
	}
	return t.c.journal.own(ctx)
}

// until returns when a canary expires.
func until(p *consul.Pointer) string {
	if p.ExpiresAt == nil {
		return "it is ended"
	}
	return term.Stamp(*p.ExpiresAt)
}

func (t *trial) remove(ctx context.Context) error {
	if t.site.Pointer.ExpiresAt == nil {
		return nil // it ended before anything was set
	}
	if err := t.site.Remove(ctx); err != nil {
		return fmt.Errorf("the canary could not be removed; it expires at %s:\n%w", term.Stamp(*t.site.Pointer.ExpiresAt), err)
	}
	return nil
}
