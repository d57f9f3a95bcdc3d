package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// measure takes the figures of all edges for a short time before the trial begins. A site
// that cannot be measured now is judged by the others alone.
func (t *trial) measure(ctx context.Context) error {
	var canary, others fleet.Tally
	t.p.Progress().Update([]string{fmt.Sprintf("%s: measured for %s before the trial", t.pop, t.baseline())})
	err := t.twice(ctx, func() error {
		counts, err := t.p.count(ctx, t.targets, func(context.Context, *fleet.Target) error { return nil })
		for _, n := range counts {
			switch {
			case n.err != nil:
			case n.node.PoP == t.pop:
				canary.Add(n.region+" "+n.node.ID, n.figures)
			default:
				others.Add(n.region+" "+n.node.ID, n.figures)
			}
		}
		return err
	})
	t.before = sample{canary: canary.Total, others: others.Total}
	return err
}

// baseline is how long sites are measured before a change.
func (o *canaryOptions) baseline() time.Duration {
	return min(o.bake/10, longestMeasure, 10*o.interval)
}

// twice looks at the beginning and at the end of the baseline.
func (o *canaryOptions) twice(ctx context.Context, look func() error) error {
	if err := look(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.baseline()):
	}
	return look()
}

// counted is the figures of one edge.
type counted struct {
	region  string
	node    consul.Node
	figures *fleet.Figures
	err     error
}

// count takes the figures of all edges once, after a check of each region.
func (p *program) count(ctx context.Context, targets []*fleet.Target, check func(context.Context, *fleet.Target) error) (all []counted, err error) {
	// Nodes that do not answer must not keep those that do from being judged.
	brief, cancel := context.WithTimeout(ctx, p.look)
	defer cancel()
	answers := fleet.AskUnbounded(brief, targets, func(ctx context.Context, target *fleet.Target) ([]counted, error) {
		if err := check(ctx, target); err != nil {
			return nil, err
		}
		nodes, err := target.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		list := make([]counted, len(nodes))
		fleet.Each(nodes, func(i int, n consul.Node) {
			s, err := target.Admin.Figures(ctx, n)
			list[i] = counted{target.Name, n, s, err}
		})
		return list, nil
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, a := range answers {
		if a.Err != nil {
			var f *term.Failure
			if errors.As(a.Err, &f) {
				return nil, a.Err
			}
			return nil, fmt.Errorf("%s: %w", a.Target.Name, a.Err)
		}
		all = append(all, a.Value...)
	}
	return all, nil
}

// look takes the figures of all edges once, and makes sure that the trial still is
// what it was.
func (t *trial) look(ctx context.Context) error {
	counts, err := t.p.count(ctx, t.targets, t.unchanged)
	if err != nil {
		return err
	}
	clear(t.silent)
	edges := 0
	for _, n := range counts {
		group := &t.others
		if n.node.PoP == t.pop {
			group = &t.canary
			edges++
			switch {
			case n.err != nil:
				t.silent[fmt.Sprintf("%s (%v)", term.Printable(n.node.ID), n.err)] = true
			case n.figures.Rules != t.site.Pointer.Version:
				t.silent[fmt.Sprintf("%s (it runs %s)", term.Printable(n.node.ID), term.OrDash(n.figures.Rules))] = true
				continue // its figures are those of other rules
			}
		}
		if n.err == nil {
			group.Add(n.region+" "+n.node.ID, n.figures)
		}
	}
	if edges == 0 {
		return term.Failed("its edges are gone")
	}
	t.judge(time.Now())
	return nil
}

// judge compares all of the trial and its end with the other sites and with the site's own
// past.
func (t *trial) judge(at time.Time) {
	now := sample{at, t.canary.Total, t.others.Total}
	t.excess = ""
	if t.enough(&now.canary) {
		t.excess = cmp.Or(t.canaryOptions.excess(&now.canary, &now.others), t.fallen(t.before, now))
	}
	if late, others, long := t.late.add(now); t.excess == "" && t.enough(&late) {
		if why := cmp.Or(t.canaryOptions.excess(&late, &others), t.fallen(t.before, sample{at, late, others})); why != "" {
			t.excess = fmt.Sprintf("in the last %s, %s", long.Round(time.Second), why)
		}
	}
	if t.excess == "" {
		t.outside = 0
	} else {
		t.outside++
	}
}
