package ctl

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const drainHelp = `Takes a PoP out of DNS on purpose, and waits until its clients have left:

  1. refuses a PoP that nobody knows, and one without which nothing healthy would be left
     (--force drains it all the same; if nothing else is healthy, DNS answers with it still)
  2. asks (--yes does not), and writes who, why and since when to every region
  3. waits until the answers that resolvers keep have run out (--ttl, and two seconds) and
     its edges get no more than stray requests; at most --wait

The edges go on serving: whoever still comes is served. After this the PoP can be stopped.

The word of one region is enough, so a region that cannot be reached keeps nobody from
draining (status 3); running the same command again tells it, too. Draining again changes
who and why, and not since when.

Exits with 0, or with 3 if a region could not be told, an edge that still passes could not
be asked, or requests still came at the end: clients that ignore the TTL, do not come by
DNS, or take long.`

const undrainHelp = `Puts a PoP back into DNS, in every region. A region that cannot be reached still says that
it is drained, so DNS goes on leaving it out (status 3) as far as routers reach that region;
running the same command again finishes the job.

That the PoP is not drained is no error.`

// drainOptions are the flags of drain and undrain.
type drainOptions struct {
	reason, by string
	yes, force bool
	wait, ttl  time.Duration
}

func (p *program) drainCommand() *cobra.Command {
	var o drainOptions
	c := command("drain POP", "take a PoP out of DNS, and wait until its clients have left", drainHelp,
		`  regionctl drain ams1 --reason "kernel update, CHG-77"
  regionctl drain ams1 --reason "smoke in the room" --yes --wait 0`,
		func(ctx context.Context, args []string) error { return p.drain(ctx, args[0], &o) })
	f := c.Flags()
	f.StringVar(&o.reason, "reason", "", "`TEXT`: why; shown to everybody who asks")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.force, "force", false, "also if nothing healthy would be left")
	f.DurationVar(&o.wait, "wait", time.Minute, "how long to wait at most for clients to leave; 0 does not wait")
	f.DurationVar(&o.ttl, "ttl", 20*time.Second, "that of regionctl dns")
	f.StringVar(&o.by, "by", "", "`NAME`: who (default: WEIR_USER, or user@host)")
	c.ValidArgsFunction = p.completePoPs(false)
	return c
}

func (p *program) undrainCommand() *cobra.Command {
	var o drainOptions
	c := command("undrain POP", "put a PoP back into DNS", undrainHelp,
		`  regionctl undrain ams1
  regionctl undrain ams1 --yes`,
		func(ctx context.Context, args []string) error { return p.undrain(ctx, args[0], &o) })
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	c.ValidArgsFunction = p.completePoPs(true)
	return c
}

// completePoPs offers the PoPs, or only the drained ones.
func (p *program) completePoPs(drained bool) completion {
	complete := completeFromConsul(p, rulesKind, &[]string{}, func(ctx context.Context, t *target) ([]string, error) {
		s, err := siteOf(ctx, t)
		if err != nil {
			return nil, err
		}
		if drained {
			return sortedKeys(s.drains), nil
		}
		return s.pops(), nil
	})
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, text)
	}
}

// sites is what one region's Consul says of PoPs.
type sites struct {
	topology *region.Topology // nil: none that can be read
	drains   map[string]region.Drain
	nodes    []region.Node // of this region
}

func siteOf(ctx context.Context, t *target) (*sites, error) {
	h, err := hold(ctx, t)
	if err != nil {
		return nil, err
	}
	s := &sites{topology: h.Topology}
	var wrong []error
	if s.drains, wrong, err = t.consul.Drains(ctx); err != nil {
		return nil, err
	}
	for _, e := range wrong {
		t.warn("%s: %v", t.name, e)
	}
	s.nodes, err = t.nodes(ctx)
	return s, err
}

func (s *sites) pops() (names []string) {
	if s.topology != nil {
		for _, r := range s.topology.Regions {
			for _, p := range r.PoPs {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

// draining is a drain, or the end of one, under way.
type draining struct {
	p       *program
	pop     string
	answers []answer[*sites]
	results []*drainResult
}

// drainResult is what became of one region.
type drainResult struct {
	Region string        `json:"region"`
	Result string        `json:"result"`
	Error  string        `json:"error,omitempty"`
	Before *region.Drain `json:"before,omitempty"`
}

// drainReport is what drain and undrain print with -o json.
type drainReport struct {
	PoP     string         `json:"pop"`
	Drain   *region.Drain  `json:"drain"` // null: it is not
	Regions []*drainResult `json:"regions"`
	Nodes   []trafficLeft  `json:"nodes,omitempty"`
}

// look asks all regions, and refuses a PoP that nobody knows.
func (p *program) lookAtPoP(ctx context.Context, targets []*target, pop string) (*draining, error) {
	d := &draining{p: p, pop: pop, answers: ask(ctx, p, targets, siteOf)}
	away, err := failures(d.answers)
	if len(away) == len(targets) {
		return nil, failed("nothing was changed, no region can be reached:\n%w", err)
	}
	var known []string
	for _, a := range d.answers {
		if a.err == nil {
			known = append(known, a.value.pops()...)
			for _, n := range a.value.nodes {
				known = append(known, n.PoP)
			}
		}
	}
	known = distinct(known)
	slices.Sort(known)
	_, drained := d.before()
	switch {
	case slices.Contains(known, pop), drained:
	case len(known) == 0:
		return nil, misused("no PoP %q, nor any other: there is no topology; regionctl topology apply FILE publishes one", pop)
	default:
		return nil, misused("no PoP %q in the topology; it has %s", pop, orDashes(known))
	}
	for _, a := range d.answers {
		r := &drainResult{Region: a.target.name, Result: untouched}
		if a.err != nil {
			r.Result, r.Error = unreachable, a.err.Error()
		} else if had, is := a.value.drains[pop]; is {
			r.Before = &had
		}
		d.results = append(d.results, r)
	}
	return d, nil
}

// before is the oldest drain that a region holds.
func (d *draining) before() (oldest region.Drain, is bool) {
	for _, a := range d.answers {
		if a.err != nil {
			continue
		}
		if had, here := a.value.drains[d.pop]; here && (!is || had.Since.Before(oldest.Since)) {
			oldest, is = had, true
		}
	}
	return oldest, is
}

// left are the PoPs that would still be answered with: in the topology, not drained by
// any region's word, with an edge that passes.
func (d *draining) left() []string {
	serving, drained, listed := map[string]bool{}, map[string]bool{d.pop: true}, map[string]bool{}
	for _, a := range d.answers {
		if a.err != nil {
			continue
		}
		for _, name := range a.value.pops() {
			listed[name] = true
		}
		for name := range a.value.drains {
			drained[name] = true
		}
		for _, n := range a.value.nodes {
			serving[n.PoP] = serving[n.PoP] || n.Passing
		}
	}
	var names []string
	for _, name := range sortedKeys(listed) {
		if serving[name] && !drained[name] {
			names = append(names, name)
		}
	}
	return names
}

func (p *program) drain(ctx context.Context, pop string, o *drainOptions) error {
	if o.reason == "" {
		return misused("--reason TEXT is missing; whoever wonders where the clients went will see it")
	}
	if err := checkText("--reason", o.reason, 500); err != nil {
		return err
	}
	if o.wait < 0 || o.ttl < 0 {
		return misused("--wait and --ttl must be 0 or above")
	}
	who, err := whoami(o.by)
	if err != nil {
		return err
	}
	targets, closeAll, err := p.targets(nil)
	if err != nil {
		return err
	}
	defer closeAll()
	d, err := p.lookAtPoP(ctx, targets, pop)
	if err != nil {
		return err
	}
	next := region.Drain{Who: who, Why: o.reason, Since: time.Now().UTC().Truncate(time.Second)}
	before, was := d.before()
	if was && !before.Since.IsZero() {
		next.Since = before.Since
		if before.Why == o.reason {
			next.Who = before.Who
		}
		p.say("%s is drained already, by %s since %s: %s", pop, before.Who, stamp(before.Since), before.Why)
	} else if left := d.left(); len(left) == 0 {
		if !o.force {
			return failed("nothing was changed: without %s no healthy PoP would be left that is not drained, and DNS would go on answering with it; put another back with regionctl undrain, or --force", pop)
		}
		p.warn("without %s no healthy PoP is left that is not drained: DNS goes on answering with it", pop)
	}
	if !was {
		if err := p.confirm(ctx, o.yes, "Drain %s?", pop); err != nil {
			return err
		}
	}
	outcome := d.tell(ctx, targets, func(r *drainResult) bool { return r.Before != nil && sameDrain(r.Before, &next) },
		func(ctx context.Context, t *target) error { return t.consul.Drain(ctx, pop, next) })
	if len(d.with(applied, alreadyThere)) == 0 {
		return failed("nothing was changed:\n%w", outcome)
	}
	report := drainReport{PoP: pop, Drain: &next, Regions: d.results}
	if outcome != nil {
		outcome = partial("the word of %s is enough for routers that see it; the same command again tells the others:\n%w", strings.Join(d.with(applied, alreadyThere), ", "), outcome)
	}
	var waiting error
	if o.wait > 0 {
		began := next.Since
		if len(d.with(applied)) > 0 {
			began = time.Now()
		}
		w := &leaving{p: p, pop: pop, ttl: o.ttl, limit: o.wait, began: began}
		report.Nodes, waiting = w.run(ctx, d.nodes())
	}
	return cmp.Or(outcome, waiting, p.show(report, func(b *bytes.Buffer, s style) { report.write(b, s) }))
}

func (p *program) undrain(ctx context.Context, pop string, o *drainOptions) error {
	targets, closeAll, err := p.targets(nil)
	if err != nil {
		return err
	}
	defer closeAll()
	d, err := p.lookAtPoP(ctx, targets, pop)
	if err != nil {
		return err
	}
	if before, was := d.before(); was {
		p.say("%s is drained by %s since %s: %s", pop, before.Who, stamp(before.Since), before.Why)
		if err := p.confirm(ctx, o.yes, "Put %s back?", pop); err != nil {
			return err
		}
	}
	outcome := d.tell(ctx, targets, func(r *drainResult) bool { return r.Before == nil }, func(ctx context.Context, t *target) error { return t.consul.Undrain(ctx, pop) })
	report := drainReport{PoP: pop, Regions: d.results}
	if outcome != nil {
		outcome = partial("%s may go on saying that %s is drained; the same command again finishes the job:\n%w", strings.Join(d.with(unreachable, unsuccessful), ", "), pop, outcome)
	}
	return cmp.Or(outcome, p.show(report, func(b *bytes.Buffer, s style) { report.write(b, s) }))
}

// tell writes to all regions at once that can be reached and do not know it yet. Its
// error names those that were not told.
func (d *draining) tell(ctx context.Context, targets []*target, known func(*drainResult) bool, write func(context.Context, *target) error) error {
	written := ask(ctx, d.p, targets, func(ctx context.Context, t *target) (string, error) {
		r := d.results[slices.Index(targets, t)]
		switch {
		case r.Result == unreachable:
			return unreachable, fmt.Errorf("%s", r.Error)
		case known(r):
			return alreadyThere, nil
		}
		if err := write(ctx, t); err != nil {
			return unsuccessful, err
		}
		return applied, nil
	})
	for i, a := range written {
		d.results[i].Result = a.value
		if a.err != nil {
			d.results[i].Error = a.err.Error()
		}
	}
	_, err := failures(written)
	return err
}

func (d *draining) with(results ...string) (names []string) {
	for _, r := range d.results {
		if slices.Contains(results, r.Result) {
			names = append(names, r.Region)
		}
	}
	return names
}

// nodes are those of the PoP, with whom to ask.
func (d *draining) nodes() (list []nodeAt) {
	for _, a := range d.answers {
		if a.err != nil {
			continue
		}
		for _, n := range a.value.nodes {
			if n.PoP == d.pop {
				list = append(list, nodeAt{a.target, n})
			}
		}
	}
	return list
}

func (r *drainReport) write(b *bytes.Buffer, s style) {
	t := table{}
	t.row("REGION", "RESULT")
	for _, c := range r.Regions {
		t.row(c.Region, s.result(c.Result))
	}
	t.write(b)
	if r.Drain != nil {
		fmt.Fprintf(b, "%s is drained by %s since %s: %s\n", s.bold(printable(r.PoP)), printable(r.Drain.Who), stamp(r.Drain.Since), printable(r.Drain.Why))
	} else {
		fmt.Fprintf(b, "%s is not drained\n", s.bold(printable(r.PoP)))
	}
}
