package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// measure reads the figures of all edges for a short time before the trial begins. A site
// that cannot be measured now is judged only against the others.
func (t *trial) measure(ctx context.Context) error {
	var canary, others fleet.Tally
	t.p.Progress().Update([]string{fmt.Sprintf("%s: measured for %s before the trial", t.pop, t.baseline())})
	err := t.twice(ctx, func() error {
		counts, lost, err := t.p.count(ctx, t.targets, func(context.Context, *fleet.Target) error { return nil })
		for _, n := range counts {
			switch {
			case n.err != nil:
			case n.node.PoP == t.pop:
				canary.Add(n.region+" "+n.node.ID, n.figures)
			default:
				others.Add(n.region+" "+n.node.ID, n.figures)
			}
		}
		return cmp.Or(err, unseen(lost))
	})
	t.before = sample{canary: canary.Total, others: others.Total}
	return err
}

// baseline returns how long sites are measured before a change.
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

// counted holds the figures of one edge.
type counted struct {
	region  string
	node    consul.Node
	figures *fleet.Figures
	err     error
}

// count reads the figures of all edges once, after a check of each region. lost says why
// regions could not be read. A *term.Failure from check is final.
func (p *program) count(ctx context.Context, targets []*fleet.Target, check func(context.Context, *fleet.Target) error) (all []counted, lost map[string]error, err error) {
	// Nodes that do not answer must not prevent judging those that do.
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
		return nil, nil, ctx.Err()
	}
	lost = map[string]error{}
	for _, a := range answers {
		var f *term.Failure
		if errors.As(a.Err, &f) {
			return nil, nil, a.Err
		} else if a.Err != nil {
			lost[a.Target.Name] = fmt.Errorf("%s: %w", a.Target.Name, a.Err)
		}
		all = append(all, a.Value...)
	}
	return all, lost, nil
}

// unseen joins the reasons why regions could not be read.
func unseen(lost map[string]error) error {
	var errs []error
	for _, name := range sortedKeys(lost) {
		errs = append(errs, lost[name])
	}
	return errors.Join(errs...)
}

// look reads the figures of all edges once, and checks that the trial has not changed.
func (t *trial) look(ctx context.Context) error {
	counts, lost, err := t.p.count(ctx, t.targets, t.unchanged)
	if err != nil {
		return err
	}
	clear(t.silent)
	for name := range lost {
		if !slices.ContainsFunc(t.site.Homes, func(home *fleet.Target) bool { return home.Name == name }) {
			delete(lost, name) // it is not on trial
			continue
		}
		t.silent[lost[name].Error()] = true
	}
	// A single look without an answer does not end a trial.
	if t.unanswered++; len(lost) == 0 {
		t.unanswered = 0
	} else if t.unanswered < outsideLooks {
		return nil
	} else {
		return unseen(lost)
	}
	edges := 0
	for _, n := range counts {
		group := &t.others
		if n.node.PoP == t.pop {
			group = &t.canary
			edges++
			switch {
			case n.err != nil:
				t.silent[fmt.Sprintf("%s (%v)", term.Printable(n.node.ID), n.err)] = true
			case n.figures.Version(t.c.doc.Kind) != t.site.Pointer.Version:
				t.silent[fmt.Sprintf("%s (it runs %s)", term.Printable(n.node.ID), term.OrDash(n.figures.Version(t.c.doc.Kind)))] = true
				continue // its figures belong to another version
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

// judge compares the whole trial and its end with the other sites and with the site's own
// past.
func (t *trial) judge(at time.Time) {
	now := sample{at, t.canary.Total, t.others.Total}
	t.excess = ""
	late, others, long := t.late.add(now)
	if t.excess = t.wrong(now); t.excess == "" {
		t.excess = lately(long, t.wrong(sample{at, late, others}))
	}
	if t.excess == "" {
		t.outside = 0
	} else {
		t.outside++
	}
}

// wrong says which figure of the site is outside the bounds, or "" if none is or it had too
// few requests to be judged.
func (t *trial) wrong(now sample) string {
	if !t.enough(&now.canary) {
		return ""
	}
	return cmp.Or(t.canaryOptions.excess(&now.canary, &now.others), t.fallen("it", t.before, now, false), t.slower("it", t.before, now))
}

// lately adds to a reason, if there is one, that it is about the end of the period.
func lately(long time.Duration, why string) string {
	if why == "" {
		return ""
	}
	return fmt.Sprintf("in the last %s, %s", long.Round(time.Second), why)
}
