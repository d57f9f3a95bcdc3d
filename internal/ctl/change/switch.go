package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Store writes the document to every region, including those that should already have it.
func (c *Change) Store(ctx context.Context) error { return c.stopped(c.Engine.Store(ctx)) }

func (c *Change) stopped(err error) error { return report.Stopped(err, c.Engine.Name, c.results()) }

// Outcome returns what is wrong after the regions were pointed, or nil.
func (c *Change) Outcome(ctx context.Context) error {
	return report.Outcome(ctx, c.results(), c.Engine.Wrote, c.Engine.Displaced, term.Conflict)
}

// Means reports whether a version is one of those that may be rolled back.
func (c *Change) Means(version string) bool {
	return len(c.Of) == 0 || slices.ContainsFunc(c.Of, func(v string) bool { return strings.HasPrefix(version, v) })
}

// Histories reads what the regions that the flags name have, and had before.
func (c *Change) Histories(ctx context.Context, k *fleet.Kind) (targets []*fleet.Target, answers []fleet.Answer[versions.History], err error) {
	if targets, err = c.Program.TargetsToChange(ctx, k, c.Regions, c.Partial); err != nil {
		return nil, nil, err
	}
	answers = fleet.Ask(ctx, targets, versions.ReadBefore)
	c.begin(targets)
	for i, a := range answers {
		if r := c.regions[i].region; a.Err != nil {
			r.Outcome, r.Err = rollout.Unreachable, a.Err
		}
	}
	_, err = c.reached()
	return targets, answers, err
}

// lookAgain finds regions that someone else has changed and this change has not.
func (c *Change) lookAgain(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	regions := c.With(rollout.Untouched, rollout.AlreadyThere)
	for i, a := range fleet.Ask(ctx, TargetsOf(regions), fleet.LookAtPointer) {
		if r := regions[i].region; a.Err == nil && !c.Engine.Unchanged(r.Seen, a.Value) {
			r.Outcome, r.Now = rollout.Lost, a.Value
		}
	}
}

// entry describes for the history that pointer makes a version active in a region.
func (c *Change) entry(ctx context.Context, r *regionChange, pointer consul.Pointer) consul.Change {
	e := consul.Change{Pointer: pointer, Replaced: r.step.From.Version()}
	if pointer.AppliedBy == c.By {
		e.Message, e.BrokeLockOf, e.Forced, e.Token = c.Message, strings.Join(c.Engine.Broke, ", "), c.forced, r.target.Identity(ctx)
		e.Tried, e.Unreached = c.tried, c.unreached
	}
	if e.Replaced == pointer.Version { // written again
		h := versions.History{Kind: r.target.Kind, Pointer: r.region.Seen.Pointer}
		h.Changes, _, _ = r.target.Docs.History(ctx, 64) // unknown is good enough
		e.Replaced, _ = h.Replaced()
	}
	return e
}

// complete records what another program made active in regions that already have the version.
func (c *Change) complete(ctx context.Context) {
	targets := TargetsOf(c.With(rollout.AlreadyThere))
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (struct{}, error) {
		r := c.region(t.Name)
		pointer := r.region.Seen.Pointer // there is one, or it would not have the version
		recorded, err := t.Docs.Recorded(ctx, *pointer)
		if err == nil && !recorded {
			err = t.Docs.Record(ctx, c.entry(ctx, r, *pointer))
		}
		return struct{}{}, err
	}) {
		if a.Err != nil {
			c.Program.Warn("%s: the %s %s active, but the history was not written: %v", a.Target.Name, a.Target.Kind.What, a.Target.Kind.Are, a.Err)
		}
	}
}

// endCanaries makes all edges of the regions that have the version follow it.
func (c *Change) endCanaries(ctx context.Context) {
	for _, a := range fleet.Ask(ctx, c.mayTry(rollout.Applied, rollout.AlreadyThere), func(ctx context.Context, t *fleet.Target) (ended []string, err error) {
		canaries, _, err := t.Docs.Canaries(ctx)
		for _, pop := range slices.Sorted(maps.Keys(canaries)) {
			p, index, wrong := t.Docs.Canary(ctx, pop)
			if wrong == nil && p != nil {
				wrong = c.endCanary(ctx, t, pop, p, index, "in favor of "+c.region(t.Name).runs()+term.Reason(c.Message))
			}
			if wrong != nil {
				err = errors.Join(err, wrong)
			} else if p != nil && !p.Expired(t.Consul.Now()) {
				ended = append(ended, fmt.Sprintf("canary of %s on %s ended", term.OrDash(p.AppliedBy), pop))
			}
		}
		return ended, err
	}) {
		for _, text := range a.Value {
			c.Program.Say("%s: %s", a.Target.Name, text)
		}
		if a.Err != nil {
			c.Program.Warn("%s: its canaries could not be ended: %v", a.Target.Name, a.Err)
		}
	}
}

// await waits for the edges of all regions that have the version.
func (c *Change) await(ctx context.Context) error {
	have := c.With(rollout.Applied, rollout.AlreadyThere)
	if c.Wait <= 0 || len(have) == 0 {
		return nil
	}
	limit := c.Wait
	if c.Lasts > 0 {
		limit = min(limit, c.Lasts)
	}
	version := func(t *fleet.Target) string { return c.region(t.Name).runs() }
	arrivals := report.Await(ctx, c.Program, report.Edges{Version: version, Edits: c.Engine.Edits, Moved: func(t *fleet.Target, v *fleet.RegionView) bool {
		p, step := v.Pointer, &c.region(t.Name).step
		return v.Error == "" && (p == nil || p.Version != step.Next.Version() && (!c.Engine.Edits || p.Version == step.From.Version()))
	}}, TargetsOf(have), limit)
	for i := range arrivals {
		a, r := &arrivals[i], have[i]
		if a.State == rollout.Unseen {
			continue
		}
		r.await = &a.View
		if a.State == rollout.Superseded {
			r.moved = a.View.Pointer
		}
		if len(a.View.Nodes) == 0 && a.Err == nil {
			c.edgeless = true
			c.Program.Warn("%s: no edge is registered there, or this token may not see them; nothing to wait for", r.target.Name)
		}
	}
	if ctx.Err() != nil {
		return c.interrupted("while waiting")
	}
	return report.Verdict(arrivals, version, limit)
}

// interrupted says where the version is, although the wait for its edges ended.
func (c *Change) interrupted(when string) error {
	return term.Interrupted("interrupted %s; %s, and %s shows who runs it", when, report.Holding(c.have()), c.regions[0].target.Kind.Look)
}
