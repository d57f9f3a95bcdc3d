package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// grace is how long a canary outlives its soak if it is not ended: promoting must be
	// done by then.
	grace = time.Minute
	// canaryStart bounds the wait for the canary's edges, so that most of grace is
	// left after it.
	canaryStart = 30 * time.Second
	// cleanupTime bounds taking a canary back.
	cleanupTime = 10 * time.Second
)

// trial is a stage of one site, which only tries the change.
type trial struct {
	c       *Change
	soak    time.Duration
	pop     string
	pointer consul.Pointer
	homes   []*fleet.Target          // the regions that have the site
	before  map[*fleet.Target]uint64 // the index of what the site followed on its own
}

// newTrial finds the site. It changes nothing.
func (c *Change) newTrial(ctx context.Context, pop string) (*trial, error) {
	t := &trial{c: c, soak: c.Staging.Soak, pop: pop, before: map[*fleet.Target]uint64{}}
	type site struct {
		here  bool
		pops  []string
		other *consul.Pointer
		index uint64
	}
	answers := fleet.Ask(ctx, TargetsOf(c.With(rollout.Untouched, rollout.AlreadyThere)), func(ctx context.Context, target *fleet.Target) (s site, err error) {
		nodes, err := target.Nodes(ctx)
		if err != nil {
			return s, err
		}
		for _, n := range nodes {
			s.pops = append(s.pops, n.PoP)
			s.here = s.here || n.PoP == pop && n.Passing
		}
		if s.here {
			s.other, s.index, err = target.Docs.Canary(ctx, pop)
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
		t.homes = append(t.homes, a.Target)
		t.before[a.Target] = a.Value.index
		if other := a.Value.other; other != nil && !other.Expired(a.Target.Consul.Now()) && other.Version != c.Doc.Version() {
			return nil, term.Conflict("nothing was changed: %s: %s has been trying %s on %s since %s, until %s; wait for that, or end it with regionctl %s apply without --canary", a.Target.Name,
				term.Printable(other.AppliedBy), other.Version, pop, term.Stamp(other.AppliedAt), report.Until(other), c.Doc.Kind.Name)
		}
	}
	if len(t.homes) == 0 {
		return nil, term.Misused("--canary %s: no edge of that site passes its check; there are edges in %s (nothing was changed)", pop, term.OrDashes(term.Distinct(pops)))
	}
	return t, nil
}

// endEarlier ends what an earlier run of this trial left, so that the site's past is without
// it.
func (t *trial) endEarlier(ctx context.Context) error {
	_, err := fleet.Failures(fleet.Ask(ctx, t.homes, func(ctx context.Context, target *fleet.Target) (struct{}, error) {
		p, index, err := target.Docs.Canary(ctx, t.pop)
		switch {
		case index != t.before[target]: // no longer what it was
		case p != nil:
			err = t.c.endCanary(ctx, target, t.pop, p, index, "it begins again")
		case index != 0: // it cannot be read
			_, err = target.Docs.DeleteCanary(ctx, t.pop, index)
		}
		return struct{}{}, err
	}))
	if err != nil {
		return term.Failed("nothing was changed: %w", err)
	}
	clear(t.before)
	return nil
}

// endCanary makes the edges of a site follow the region again, if their canary is still p. If the
// region has not got what the site tried, the history says who ended the trial, and why; "" is the
// outcome of the region's change. One that expired before ended then.
func (c *Change) endCanary(ctx context.Context, t *fleet.Target, pop string, p *consul.Pointer, index uint64, why string) (err error) {
	expired := p.Expired(cmp.Or(c.at, t.Consul.Now()))
	if r := c.region(t.Name); r.region.Outcome.Has() && r.runs() == p.Version && !expired {
		_, err = t.Docs.DeleteCanary(ctx, pop, index) // false: it is no longer p
		return err
	}
	if r := c.region(t.Name); why == "" {
		why = fmt.Sprintf("the change in %s: %s%s", t.Name, r.region.Outcome, term.Reason(c.Message))
	}
	now := c.Program.Now().UTC().Round(0)
	if expired {
		now, why = *p.ExpiresAt, "it expired, as "+c.By+" found later"
	}
	e := consul.Change{Pointer: consul.Pointer{Version: p.Version, SHA256: p.SHA256, AppliedAt: now, AppliedBy: c.By, ExpiresAt: &now}, Canary: pop, Token: t.Identity(ctx)}
	e.Message = term.Clip(fmt.Sprintf("canary on %s, begun by %s at %s to last until %s, ended: %s", pop, term.Printable(p.AppliedBy), term.Stamp(p.AppliedAt), report.Until(p), term.Printable(why)), 1024)
	_, err = t.Docs.WithdrawCanary(ctx, e, index)
	return err
}

// begin makes the site follow the version, and waits until its edges do.
func (t *trial) begin(ctx context.Context) error {
	if err := t.set(ctx); err != nil {
		return err
	}
	return t.start(ctx)
}

// fail takes the version back from the site, and reports why.
func (t *trial) fail(ctx context.Context, err error) error {
	status, why := term.StatusFailed, err
	var f *term.Failure
	switch {
	case errors.As(err, &f):
		status = f.Status
	case ctx.Err() != nil:
		status, err = term.StatusInterrupted, errors.New("interrupted")
	}
	removed := t.remove(ctx, firstLine(err)+term.Reason(t.c.Message))
	t.c.lookAgain(ctx)
	t.report(why)
	after := "the canary was removed, and no region was changed"
	if status == term.StatusConflict {
		after = "the canary is gone, and this changed no region"
	}
	if removed != nil {
		after = removed.Error()
	}
	return t.c.Report(&term.Failure{Status: status, Err: fmt.Errorf("canary on %s: %w\n%s", t.pop, err, after)}, nil)
}

// end takes the version back from the site once the regions have it, or will not get it.
func (t *trial) end(ctx context.Context) {
	t.report(nil)
	t.c.canary.Promoted = len(t.c.With(rollout.Applied)) > 0
	if err := t.remove(ctx, ""); err != nil {
		t.c.Program.Warn("%v", err)
	} else if !t.c.canary.Promoted {
		t.c.Program.Say("the canary was removed")
	}
}

// report describes the trial in the change's report.
func (t *trial) report(err error) {
	w := t.c.watch
	t.c.canary = &canaryReport{PoP: t.pop, Regions: command.RegionNames(t.homes), Canary: w.Mine, Others: w.Others}
	if err != nil {
		t.c.canary.Why = err.Error()
	}
}

// set makes the site follow the candidate, under the lock, so that it is not pruned
// meanwhile.
func (t *trial) set(ctx context.Context) error {
	homes := fleet.Filter(t.c.Engine.Regions, func(r *rollout.Region[fleet.Current]) bool {
		return slices.Contains(t.homes, t.c.region(r.Name).target)
	})
	if failed := rollout.With(homes, rollout.Failed); len(failed) > 0 { // with --partial
		return t.c.stopped(&rollout.Stop{Why: rollout.NotStored, Region: failed[0].Name})
	}
	begin := func(ctx context.Context) error {
		now := t.c.Program.Now() // after the wait for other changes, which is no part of the bake
		t.pointer = consul.NewPointer(t.c.Doc.Bytes, t.c.By, now)
		expires := now.Add(t.soak + grace).UTC().Round(0)
		t.pointer.ExpiresAt = &expires
		return t.c.restore(ctx)
	}
	err := t.c.Engine.Under(ctx, homes, begin, func(r *rollout.Region[fleet.Current], fenced func(func(consul.Fence) error) error) error {
		return fenced(func(f consul.Fence) error { return t.point(ctx, t.c.region(r.Name).target, f) })
	})
	var stop *rollout.Stop
	if errors.As(err, &stop) && stop.Why != rollout.Moved {
		return t.c.stopped(stop)
	}
	return t.moved(err)
}

// point makes the site follow the version in one home, unless someone else was faster.
func (t *trial) point(ctx context.Context, home *fleet.Target, under consul.Fence) error {
	ctx, cancel := home.Bounded(ctx)
	defer cancel()
	done, err := home.Docs.Fenced(under).SetCanary(ctx, t.pop, t.pointer, t.before[home])
	var lost *consul.LockLostError
	switch {
	case errors.As(err, &lost):
		return err
	case err != nil:
		return &rollout.Stop{Why: rollout.Unanswered, Region: home.Name, Err: err}
	case !done:
		return &rollout.Stop{Why: rollout.Moved, Region: home.Name}
	}
	return nil
}

// mine reports whether p is this trial.
func (t *trial) mine(p *consul.Pointer) bool {
	return p != nil && p.Version == t.pointer.Version && p.AppliedAt.Equal(t.pointer.AppliedAt)
}

// start waits until the site's edges run the candidate.
func (t *trial) start(ctx context.Context) error {
	limit := canaryStart
	if t.c.Wait > 0 {
		limit = min(limit, t.c.Wait)
	}
	w := report.Edges{Version: func(*fleet.Target) string { return t.c.Doc.Version() }, Wanted: func(n consul.Node) bool { return n.PoP == t.pop && n.Passing },
		Moved: func(_ *fleet.Target, v *fleet.RegionView) bool {
			p, follows := v.Canaries[t.pop]
			return !follows || !t.mine(&p)
		}}
	for _, a := range report.Await(ctx, t.c.Program, w, t.homes, limit) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case a.State == rollout.Superseded:
			return t.moved(&rollout.Stop{Why: rollout.Moved, Region: a.Target.Name})
		case a.State != rollout.Unseen && a.Err == nil && len(a.View.Nodes) == 0:
			return fmt.Errorf("%s: its edges are gone", a.Target.Name)
		case a.State == rollout.Refusing:
			n := a.Refused[0]
			return fmt.Errorf("%s: node %s refuses %s:\n    %s\n  correct the document", a.Target.Name, term.Printable(n.ID), t.c.Doc.Version(), term.Indented(report.Refusal(&n)))
		case a.Err != nil:
			return fmt.Errorf("%s: %w", a.Target.Name, a.Err)
		case a.State != rollout.Arrived:
			reason := "not known yet"
			if behind := a.View.Behind(); len(behind) > 0 {
				reason = report.Behind(&behind[0])
			}
			return fmt.Errorf("%s: its edges did not all follow within %s: %s; see %s", a.Target.Name, limit, reason, t.c.Doc.Kind.Look)
		}
	}
	return nil
}

// moved says that someone else has ended the trial, if that is what err means.
func (t *trial) moved(err error) error {
	var stop *rollout.Stop
	if errors.As(err, &stop) && stop.Why == rollout.Moved {
		return term.Conflict("%s: someone else ended it, or began another; see %s", stop.Region, t.c.Doc.Kind.Look)
	}
	return err
}

// check verifies that a region of the site still has the trial, if it has begun.
func (t *trial) check(ctx context.Context, target *fleet.Target) error {
	if t.pointer.ExpiresAt == nil || !slices.Contains(t.homes, target) {
		return nil
	}
	p, index, err := target.Docs.Canary(ctx, t.pop)
	switch {
	case err != nil && index == 0:
		return err
	case !t.mine(p):
		return t.moved(&rollout.Stop{Why: rollout.Moved, Region: target.Name})
	}
	return nil
}

// expired reports whether the site's edges no longer follow the version by themselves.
func (t *trial) expired() bool { return t.pointer.Expired(t.c.Program.Now()) }

// remove ends the trial wherever it is set, even if ctx has ended. One that someone else has begun
// instead is left alone.
func (t *trial) remove(ctx context.Context, why string) error {
	if t.pointer.ExpiresAt == nil {
		return nil // it ended before anything was set
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if _, err := fleet.Failures(fleet.Ask(ctx, t.homes, func(ctx context.Context, home *fleet.Target) (struct{}, error) {
		p, index, err := home.Docs.Canary(ctx, t.pop)
		if err == nil && t.mine(p) {
			err = t.c.endCanary(ctx, home, t.pop, p, index, why)
		}
		return struct{}{}, err
	})); err != nil {
		return fmt.Errorf("the canary could not be removed; it expires at %s:\n%w", term.Stamp(*t.pointer.ExpiresAt), err)
	}
	return nil
}

// canaryReport is the outcome of a canary.
type canaryReport struct {
	PoP      string   `json:"pop"`
	Regions  []string `json:"regions"`
	Promoted bool     `json:"promoted"`
	// Why says why it was not promoted.
	Why    string        `json:"why,omitempty"`
	Canary fleet.Traffic `json:"canary"`
	Others fleet.Traffic `json:"others"`
}
