package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

const (
	// grace is how long a canary outlives its bake if nobody ends it: promoting must
	// be done by then.
	grace = time.Minute
	// canaryStart bounds the wait for the canary's edges, so that most of grace is
	// left after it.
	canaryStart = 30 * time.Second
	// cleanupTime bounds taking a canary back.
	cleanupTime = 10 * time.Second
	// outsideLooks in a row end a canary: one may be a coincidence.
	outsideLooks = 2
)

// trial is a change that is tried on one site before it is made.
type trial struct {
	*canaryOptions
	c       *change
	p       *program
	targets []*target // all regions of the change
	homes   []*target // those that have the site
	pointer region.Pointer
	set     []*target          // where the canary was set, or may have been
	before  map[*target]uint64 // the index of what the site followed on its own

	canary, others tally
	silent         map[string]bool // nodes whose last scrape failed
	outside        int
	excess         string
}

// newTrial finds the site. Nothing is changed.
func (c *change) newTrial(ctx context.Context, targets []*target, o *canaryOptions) (*trial, error) {
	t := &trial{canaryOptions: o, c: c, p: c.p, silent: map[string]bool{}, before: map[*target]uint64{}}
	for _, r := range c.with(untouched, alreadyThere) {
		t.targets = append(t.targets, r.target)
	}
	type site struct {
		here  bool
		pops  []string
		other *region.Pointer
		index uint64
	}
	answers := ask(ctx, c.p, t.targets, func(ctx context.Context, target *target) (s site, err error) {
		nodes, err := target.nodes(ctx)
		if err != nil {
			return s, err
		}
		for _, n := range nodes {
			s.pops = append(s.pops, n.PoP)
			s.here = s.here || n.PoP == o.pop && n.Passing
		}
		if s.here {
			s.other, s.index, err = target.docs.Canary(ctx, o.pop)
			if s.index != 0 {
				err = nil // nonsense in its place is overwritten
			}
		}
		return s, err
	})
	if _, err := failures(answers); err != nil {
		return nil, failed("nothing was changed: %w", err)
	}
	var pops []string
	for _, a := range answers {
		pops = append(pops, a.value.pops...)
		if !a.value.here {
			continue
		}
		t.homes = append(t.homes, a.target)
		t.before[a.target] = a.value.index
		if other := a.value.other; other != nil && !other.Expired(time.Now()) && other.Version != c.doc.version() {
			return nil, conflict("nothing was changed: %s: %s has been trying %s on %s since %s, until %s; wait for that, or end it with regionctl rules apply or rollback without --canary", a.target.name,
				printable(other.AppliedBy), other.Version, o.pop, stamp(other.AppliedAt), until(other))
		}
	}
	if len(t.homes) == 0 {
		return nil, misused("--canary %s: no edge of that site passes its check; there are edges in %s (nothing was changed)", o.pop, orDashes(distinct(pops)))
	}
	return t, nil
}

// run tries, and then applies or takes back. However it ends, the canary is removed.
func (t *trial) run(ctx context.Context) error {
	err := t.try(ctx)
	if err != nil {
		removed := t.remove(ctx)
		return t.c.report(t.report(err), t.settle(ctx, err, removed), nil)
	}
	t.p.say("%s is within the bounds after %s: %s", t.pop, t.bake, t.figures())
	report := t.report(nil)
	t.c.stillGood = t.still
	var removed error
	err = t.c.switchOver(ctx, report, func() {
		report.Promoted = len(t.c.with(applied)) > 0
		removed = t.remove(ctx)
	})
	if removed != nil {
		t.p.warn("%v", removed)
	} else if !report.Promoted {
		t.p.say("the canary was removed")
	}
	return err
}

// settle joins why a trial ended with how its canary was removed.
func (t *trial) settle(ctx context.Context, err, removed error) error {
	status := statusFailed
	var f *failure
	switch {
	case errors.As(err, &f):
		status = f.status
	case ctx.Err() != nil:
		status, err = statusInterrupted, errors.New("interrupted")
	}
	after := "the canary was removed, and no region was changed"
	if removed != nil {
		after = removed.Error()
	}
	return &failure{status, fmt.Errorf("canary on %s: %w\n%s", t.pop, err, after)}
}

func (t *trial) report(err error) *canaryReport {
	r := &canaryReport{PoP: t.pop, Regions: regionNames(t.homes), Canary: t.canary.total, Others: t.others.total}
	if err != nil {
		r.Why = err.Error()
	}
	return r
}

// try returns nil if the canary may be promoted.
func (t *trial) try(ctx context.Context) error {
	now := time.Now()
	t.pointer = region.NewPointer(t.c.doc.bytes, t.c.by, now)
	expires := now.Add(t.bake + grace).UTC().Round(0)
	t.pointer.ExpiresAt = &expires
	for _, home := range t.homes {
		t.set = append(t.set, home)
		brief, cancel := t.p.bounded(ctx)
		done, err := home.docs.SetCanary(brief, t.pop, t.pointer, t.before[home])
		cancel()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", home.name, err)
		case !done:
			return t.moved(home)
		}
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	return t.watch(ctx)
}

// start waits until the site's edges run the candidate.
func (t *trial) start(ctx context.Context) error {
	limit := canaryStart
	if t.c.wait > 0 {
		limit = min(limit, t.c.wait)
	}
	w := &awaiting{p: t.p, version: func(*target) string { return t.c.doc.version() }, wanted: func(n region.Node) bool { return n.PoP == t.pop && n.Passing },
		moved: func(_ *target, v *regionView) bool { return !t.isMine(v.Canaries) }}
	for _, a := range w.run(ctx, t.homes, limit) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case a.moved:
			return t.moved(a.target)
		case a.empty || a.err == nil && a.view != nil && len(a.view.Nodes) == 0:
			return fmt.Errorf("%s: its edges are gone", a.target.name)
		case len(a.refused) > 0:
			n := a.refused[0]
			return fmt.Errorf("%s: node %s refuses %s:\n    %s\n  correct the document", a.target.name, printable(n.ID), t.c.doc.version(), indented(n.reasons()))
		case a.err != nil:
			return fmt.Errorf("%s: %w", a.target.name, a.err)
		case !a.arrived():
			why := "not known yet"
			if a.view != nil && len(a.view.behind()) > 0 {
				why = a.view.behind()[0].why()
			}
			return fmt.Errorf("%s: its edges did not all follow within %s: %s; see regionctl rules status", a.target.name, limit, why)
		}
	}
	return nil
}

func (t *trial) isMine(canaries map[string]region.Pointer) bool {
	c, ok := canaries[t.pop]
	return ok && c.Version == t.pointer.Version && c.AppliedAt.Equal(t.pointer.AppliedAt)
}

func (t *trial) moved(where *target) error {
	return conflict("%s: someone else ended it, or began another; see regionctl rules status", where.name)
}

// watch compares the site with the others until the bake is over.
func (t *trial) watch(ctx context.Context) error {
	progress := &lines{w: t.p.errOut, live: t.p.live, width: t.p.width}
	ends := time.Now().Add(t.bake)
	if err := t.look(ctx); err != nil {
		return err
	}
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
		progress.update([]string{fmt.Sprintf("%s: %s; %s left", t.pop, t.figures(), left)})
		if t.outside == outsideLooks {
			return failed("outside the bounds twice in a row: %s", t.excess)
		}
		if left > 0 || time.Now().Before(ends) {
			continue
		}
		return t.verdict()
	}
}

// verdict is the one at the end of the bake.
func (t *trial) verdict() error {
	canary := &t.canary.total
	switch {
	case !t.enough(canary):
		return failed("not promoted: it had only %.0f requests in %s, and is judged by at least %d; bake longer, or lower --min-requests", canary.Requests, t.bake, t.minRequests)
	case t.outside > 0:
		return failed("outside the bounds at the end: %s", t.excess)
	case len(t.silent) > 0:
		return failed("not promoted: the figures of %s could not be read at the end", strings.Join(sortedKeys(t.silent), ", "))
	}
	return nil
}

func (t *trial) figures() string {
	c, o := &t.canary.total, &t.others.total
	return fmt.Sprintf("%.0f requests, limited %s (others %s), 5xx %s (others %s of %.0f)", c.Requests,
		percent(c.limitedShare()), percent(o.limitedShare()), percent(c.errorShare()), percent(o.errorShare()), o.Requests)
}

// look takes the figures of all edges once, and makes sure that the trial still is
// what it was.
func (t *trial) look(ctx context.Context) error {
	type counted struct {
		node   region.Node
		sample *sample
		err    error
	}
	// Nodes that do not answer must not keep those that do from being judged.
	brief, cancel := context.WithTimeout(ctx, t.p.look)
	defer cancel()
	answers := askUnbounded(brief, t.targets, func(ctx context.Context, target *target) ([]counted, error) {
		if err := t.unchanged(ctx, target); err != nil {
			return nil, err
		}
		nodes, err := target.nodes(ctx)
		if err != nil {
			return nil, err
		}
		list := make([]counted, len(nodes))
		each(nodes, func(i int, n region.Node) {
			s, err := target.admin.scrape(ctx, n)
			list[i] = counted{n, s, err}
		})
		return list, nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	clear(t.silent)
	edges := 0
	for _, a := range answers {
		if a.err != nil {
			var f *failure
			if errors.As(a.err, &f) {
				return a.err
			}
			return fmt.Errorf("%s: %w", a.target.name, a.err)
		}
		for _, n := range a.value {
			group := &t.others
			if n.node.PoP == t.pop {
				group = &t.canary
				edges++
				switch {
				case n.err != nil:
					t.silent[fmt.Sprintf("%s (%v)", printable(n.node.ID), n.err)] = true
				case n.sample.version != t.pointer.Version:
					t.silent[fmt.Sprintf("%s (it runs %s)", printable(n.node.ID), orDash(n.sample.version))] = true
					continue // its figures are those of other rules
				}
			}
			if n.err == nil {
				group.add(a.target.name+" "+n.node.ID, n.sample)
			}
		}
	}
	if edges == 0 {
		return failed("its edges are gone")
	}
	t.excess = ""
	if t.enough(&t.canary.total) {
		t.excess = t.canaryOptions.excess(&t.canary.total, &t.others.total)
	}
	if t.excess == "" {
		t.outside = 0
	} else {
		t.outside++
	}
	return nil
}

// unchanged makes sure that nobody has changed the rules or ended the canary.
func (t *trial) unchanged(ctx context.Context, target *target) error {
	ctx, cancel := t.p.bounded(ctx)
	defer cancel()
	r := t.c.region(target.name)
	now, index, err := target.docs.Current(ctx)
	if err != nil && index == 0 {
		return err
	}
	if index != r.index {
		r.Now = now
		return conflict("%s: %s", target.name, rulesKind.whoMoved(now))
	}
	for _, home := range t.homes {
		if home != target {
			continue
		}
		canary, index, err := target.docs.Canary(ctx, t.pop)
		if err != nil && index == 0 {
			return err
		}
		if canary == nil || !t.isMine(map[string]region.Pointer{t.pop: *canary}) {
			return t.moved(target)
		}
	}
	return nil
}

// still makes sure that nobody has ended the canary while others were waited for.
func (t *trial) still(ctx context.Context) error {
	for _, a := range ask(ctx, t.p, t.homes, func(ctx context.Context, target *target) (struct{}, error) {
		return struct{}{}, t.unchanged(ctx, target)
	}) {
		if a.err != nil {
			return fmt.Errorf("nothing was changed: canary on %s: %w", t.pop, a.err)
		}
	}
	if t.pointer.Expired(time.Now()) {
		return conflict("nothing was changed: the canary on %s has ended by itself while another change was waited for", t.pop)
	}
	return nil
}

// until is when a canary ends by itself.
func until(p *region.Pointer) string {
	if p.ExpiresAt == nil {
		return "it is ended"
	}
	return stamp(*p.ExpiresAt)
}

// remove takes the canary back wherever it was set, also when ctx has ended. One that
// somebody else has put in its place is left alone.
func (t *trial) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	answers := ask(ctx, t.p, t.set, func(ctx context.Context, target *target) (struct{}, error) {
		canary, index, err := target.docs.Canary(ctx, t.pop)
		if err == nil && canary != nil && t.isMine(map[string]region.Pointer{t.pop: *canary}) {
			_, err = target.docs.DeleteCanary(ctx, t.pop, index) // false: it is not ours any more
		}
		return struct{}{}, err
	})
	if _, err := failures(answers); err != nil {
		return fmt.Errorf("the canary could not be removed; its edges end it by themselves at %s:\n%w", stamp(*t.pointer.ExpiresAt), err)
	}
	return nil
}
