package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/region"
)

// topologyChange puts a topology in force. Its regions are written one after another,
// under a lock of them all and on condition that nobody has touched any since the
// difference was shown; whoever comes second has changed nothing.
type topologyChange struct {
	p            *program
	yes, partial bool
	by           string

	next    *region.Topology
	text    string // of next as JSON
	regions []*topologyResult
}

func (c *topologyChange) apply(ctx context.Context, file string) (err error) {
	if c.by, err = whoami(""); err != nil {
		return err
	}
	targets, closeAll, err := c.p.targets(nil)
	if err != nil {
		return err
	}
	defer closeAll()
	if c.next, err = c.p.parseTopology(file, regionNames(targets)); err != nil {
		return err
	}
	text, err := json.Marshal(c.next)
	if err != nil {
		return err
	}
	c.text = string(text)
	if err := c.prepare(ctx, targets); err != nil {
		return err
	}
	todo := c.with(untouched)
	if len(todo) == 0 {
		return c.report(c.missing())
	}
	if err := c.p.confirm(ctx, c.yes, "Apply to %s?", strings.Join(todo, ", ")); err != nil {
		return err
	}
	return c.report(c.write(ctx))
}

// prepare reads what all regions hold, and shows the difference.
func (c *topologyChange) prepare(ctx context.Context, targets []*target) error {
	answers := ask(ctx, c.p, targets, hold)
	away, err := failures(answers)
	if len(away) == len(targets) {
		return failed("nothing was changed, no region can be reached:\n%w", err)
	}
	if err != nil && !c.partial {
		return failed("nothing was changed, because %s cannot be reached:\n%w\nrepair that, or go on without with --partial", strings.Join(away, ", "), err)
	}
	var b bytes.Buffer
	w, s := c.p.out, c.p.outStyle()
	if c.p.wantsJSON() {
		w, s = c.p.errOut, c.p.errStyle()
	}
	shown := map[string][]string{} // regions by what they hold
	var order []heldTopology
	for _, a := range answers {
		r := &topologyResult{Region: a.target.name, Result: untouched, target: a.target, held: a.value}
		c.regions = append(c.regions, r)
		if a.err != nil {
			r.Result, r.Error = unreachable, a.err.Error()
			continue
		}
		if r.held.text == c.text {
			r.Result = alreadyThere
		}
		id := a.value.text + errorText(a.value.broken)
		if shown[id] == nil {
			order = append(order, a.value)
		}
		shown[id] = append(shown[id], a.target.name)
	}
	for _, h := range order {
		where := s.bold(strings.Join(shown[h.text+errorText(h.broken)], ", "))
		switch {
		case h.broken != nil:
			fmt.Fprintf(&b, "%s: what is there cannot be read, and will be replaced\n  %s\n", where, indented(clean(h.broken.Error())))
		case h.Topology == nil:
			fmt.Fprintf(&b, "%s: no topology published yet\n", where)
			writeTopologyDiff(&b, s, &region.Topology{}, c.next)
		case h.text == c.text:
			fmt.Fprintf(&b, "%s: no difference\n", where)
		default:
			fmt.Fprintf(&b, "%s:\n", where)
			writeTopologyDiff(&b, s, h.Topology, c.next)
		}
	}
	if err != nil {
		fmt.Fprintf(&b, "%s: %s\n", s.bold(strings.Join(away, ", ")), s.yellow("cannot be reached, goes without"))
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// with are the regions with one of these results.
func (c *topologyChange) with(results ...string) (names []string) {
	for _, r := range c.regions {
		for _, result := range results {
			if r.Result == result {
				names = append(names, r.Region)
			}
		}
	}
	return names
}

// write writes all regions that lack it, while nobody else does.
func (c *topologyChange) write(ctx context.Context) error {
	var targets []*target
	var todo []*topologyResult
	for _, r := range c.regions {
		if r.Result != unreachable {
			targets = append(targets, r.target)
		}
		if r.Result == untouched {
			todo = append(todo, r)
		}
	}
	unlock, err := c.p.lock(ctx, targets, "topology", c.by)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.unmoved(ctx, targets); err != nil {
		return err
	}
	for i, r := range todo {
		if i > 0 {
			ctx = context.WithoutCancel(ctx) // a divided fleet is worse than a late end
		}
		c.writeOne(ctx, r)
		if i == 0 && r.Result == lost {
			return moved(r.Region)
		}
		if i == 0 && r.Result == unsuccessful {
			return failed("nothing was changed: %s: %s", r.Region, r.Error)
		}
	}
	c.verify(ctx, targets)
	if names := c.with(lost); len(names) > 0 {
		return partial("someone else has changed the topology of %s meanwhile; look with regionctl topology show --region, agree, and apply again", strings.Join(names, ", "))
	}
	return c.missing()
}

// unmoved looks again at all regions, so that whoever comes second changes nothing.
func (c *topologyChange) unmoved(ctx context.Context, targets []*target) error {
	for _, a := range ask(ctx, c.p, targets, hold) {
		switch r := c.region(a.target); {
		case ctx.Err() != nil:
			return interrupted("interrupted; nothing was changed")
		case a.err != nil:
			return failed("nothing was changed: %s: %w", a.target.name, a.err)
		case a.value.index != r.held.index:
			r.Result = lost
		}
	}
	if names := c.with(lost); len(names) > 0 {
		return moved(strings.Join(names, ", "))
	}
	return nil
}

// verify finds regions that another change has taken since they were written, or seen to
// have the topology, when the locks of this one had run out.
func (c *topologyChange) verify(ctx context.Context, targets []*target) {
	for _, a := range ask(context.WithoutCancel(ctx), c.p, targets, hold) {
		r := c.region(a.target)
		if (r.Result == applied || r.Result == alreadyThere) && a.err == nil && a.value.text != c.text {
			r.Result = lost
		}
	}
}

func (c *topologyChange) region(t *target) *topologyResult {
	return c.regions[slices.IndexFunc(c.regions, func(r *topologyResult) bool { return r.target == t })]
}

func moved(regions string) error {
	return conflict("nothing was changed: someone else has changed the topology of %s meanwhile; look with regionctl topology show, and apply again if yours should win", regions)
}

// writeOne writes one region. When the answer is lost it looks what became of it.
func (c *topologyChange) writeOne(ctx context.Context, r *topologyResult) {
	brief, cancel := c.p.bounded(ctx)
	done, err := r.target.consul.SetTopology(brief, c.next, r.held.index)
	cancel()
	if err == nil && done {
		r.Result = applied
		return
	}
	brief, cancel = c.p.bounded(context.WithoutCancel(ctx))
	defer cancel()
	now, lookErr := hold(brief, r.target)
	switch {
	case lookErr == nil && now.text == c.text:
		r.Result = applied // by this, or by someone who wants the same
	case err == nil, lookErr == nil && now.index != r.held.index:
		r.Result = lost
	case lookErr == nil:
		r.Result, r.Error = unsuccessful, err.Error()
	default:
		r.Result, r.Error = unknown, err.Error()
	}
}

// missing reports on the regions that have not got it.
func (c *topologyChange) missing() error {
	var errs []string
	for _, r := range c.regions {
		if r.Error != "" {
			errs = append(errs, r.Region+": "+r.Error)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	have := cmp.Or(strings.Join(c.with(applied, alreadyThere), ", "), "nobody")
	return partial("%s has the topology, and the same command again finishes the job:\n%s", have, strings.Join(errs, "\n"))
}

func (c *topologyChange) report(outcome error) error {
	r := topologyReport{Zone: c.next.Zone, Regions: c.regions}
	return cmp.Or(outcome, c.p.show(r, func(b *bytes.Buffer, s style) { r.write(b, s) }))
}
