package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
)

// topologyChange publishes a topology in every region.
type topologyChange struct {
	p            *program
	yes, partial bool
	by           string

	next   *region.Topology
	text   string // of next as JSON
	engine *rollout.Change[heldTopology]
}

func (c *topologyChange) apply(ctx context.Context, file string) (err error) {
	if c.by, err = whoami(""); err != nil {
		return err
	}
	targets, err := c.p.targets(nil)
	if err != nil {
		return err
	}
	if c.next, err = c.p.parseTopology(file, regionNames(targets)); err != nil {
		return err
	}
	text, err := json.Marshal(c.next)
	if err != nil {
		return err
	}
	c.text = string(text)
	c.begin(targets)
	if err := c.prepare(ctx); err != nil {
		return err
	}
	todo := c.with(rollout.Untouched)
	if len(todo) == 0 {
		return c.report(c.outcome(ctx))
	}
	if err := c.p.Confirm(ctx, c.yes, "Apply to %s?", strings.Join(todo, ", ")); err != nil {
		return err
	}
	if err := c.engine.Write(ctx); err != nil {
		return c.report(stopped(err, c.engine.Name, func() error { return movedTopology(c.with(rollout.Lost)) }))
	}
	return c.report(c.outcome(ctx))
}

func (c *topologyChange) begin(targets []*fleet.Target) {
	type place = rollout.Region[heldTopology]
	c.engine = &rollout.Change[heldTopology]{
		Subject: rollout.Subject[heldTopology]{
			Name:  "topology",
			Look:  func(ctx context.Context, r *place) (heldTopology, error) { return hold(ctx, r.Consul) },
			Same:  func(a, b heldTopology) bool { return a.index == b.index },
			Holds: func(_ *place, now heldTopology) bool { return now.text == c.text },
			Write: func(ctx context.Context, r *place) (bool, error) {
				return region.PublishTopology(ctx, r.Consul, c.next, r.Seen.index)
			},
		},
		By: c.by, Partial: c.partial, Timeout: c.p.timeout, LockWait: c.p.lockWait, Report: &lockNews{c.p, "topology"},
	}
	for _, t := range targets {
		c.engine.Regions = append(c.engine.Regions, &place{Name: t.Name, Consul: t.Consul})
	}
}

// prepare reads what all regions hold, and shows the difference.
func (c *topologyChange) prepare(ctx context.Context) error {
	c.engine.Prepare(ctx, c.engine.Look)
	away, err := unreachable(c.engine.Regions)
	switch {
	case len(away) == len(c.engine.Regions):
		return term.Failed("nothing was changed, no region can be reached:\n%w", err)
	case err != nil && !c.partial:
		return term.Failed("nothing was changed, because %s cannot be reached:\n%w\nrepair that, or continue without it with --partial", strings.Join(away, ", "), err)
	}
	return c.p.showDifference(away, c.writeDifference)
}

// writeDifference joins regions that hold the same.
func (c *topologyChange) writeDifference(b *bytes.Buffer, s term.Style) {
	shown := map[string][]string{}
	var order []heldTopology
	for _, r := range rollout.With(c.engine.Regions, rollout.Untouched, rollout.AlreadyThere) {
		id := r.Seen.text + errorText(r.Seen.broken)
		if shown[id] == nil {
			order = append(order, r.Seen)
		}
		shown[id] = append(shown[id], r.Name)
	}
	for _, h := range order {
		where := s.Bold(strings.Join(shown[h.text+errorText(h.broken)], ", "))
		switch {
		case h.broken != nil:
			fmt.Fprintf(b, "%s: what is there cannot be read, and will be replaced\n  %s\n", where, indented(term.Clean(h.broken.Error())))
		case h.topology == nil:
			fmt.Fprintf(b, "%s: no topology published yet\n", where)
			writeTopologyDiff(b, s, &region.Topology{}, c.next)
		case h.text == c.text:
			fmt.Fprintf(b, "%s: no difference\n", where)
		default:
			fmt.Fprintf(b, "%s:\n", where)
			writeTopologyDiff(b, s, h.topology, c.next)
		}
	}
}

// with are the regions with one of these outcomes.
func (c *topologyChange) with(outcomes ...rollout.Outcome) (names []string) {
	for _, r := range rollout.With(c.engine.Regions, outcomes...) {
		names = append(names, r.Name)
	}
	return names
}

func movedTopology(regions []string) error {
	return term.Conflict("nothing was changed: someone else has changed the topology of %s meanwhile; look with regionctl topology show, and apply again if yours should win", strings.Join(regions, ", "))
}

// outcome is what is wrong after the regions were written, nil if nothing is.
func (c *topologyChange) outcome(ctx context.Context) error {
	var errs []string
	for _, r := range c.engine.Regions {
		if r.Err != nil && r.Outcome != rollout.Lost {
			errs = append(errs, r.Name+": "+r.Err.Error())
		}
	}
	lost, left := c.with(rollout.Lost), c.with(rollout.Untouched)
	have := cmp.Or(strings.Join(c.with(rollout.Applied, rollout.AlreadyThere), ", "), "nobody")
	switch {
	case len(lost) > 0 && !c.engine.Wrote:
		return movedTopology(lost)
	case len(lost) > 0:
		return term.Partial("someone else has changed the topology of %s meanwhile; look with regionctl topology show --region, agree, and apply again", strings.Join(lost, ", "))
	case len(left) > 0 && ctx.Err() != nil && !c.engine.Wrote:
		return term.Interrupted("interrupted; nothing was changed")
	case len(left) > 0 && ctx.Err() != nil:
		return term.Interrupted("interrupted: %s has the topology and %s has not; running this again finishes it", have, strings.Join(left, ", "))
	case len(c.with(rollout.Failed)) > 0 && !c.engine.Wrote:
		return term.Failed("nothing was changed: %s", strings.Join(errs, "\n"))
	case len(errs) > 0:
		return term.Partial("%s has the topology, and the same command again finishes the job:\n%s", have, strings.Join(errs, "\n"))
	}
	return nil
}

func (c *topologyChange) report(outcome error) error {
	v := topologyReport{Zone: c.next.Zone}
	for _, r := range c.engine.Regions {
		v.Regions = append(v.Regions, &topologyResult{r.Name, r.Outcome, errorText(r.Err)})
	}
	return cmp.Or(outcome, c.p.Show(v, func(b *bytes.Buffer, s term.Style) { v.write(b, s) }))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
