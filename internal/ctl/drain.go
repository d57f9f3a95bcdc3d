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

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const drainHelp = `Takes a PoP out of DNS on purpose, and waits until its clients have left:

  1. refuses an unknown PoP, and the last healthy one (--force drains it anyway; while
     nothing else is healthy, DNS still answers with it)
  2. asks (--yes does not), and writes who, why and since when to every region
  3. waits until the answers in resolvers' caches have expired (--ttl and two seconds) and
     its edges get no more than stray requests; at most --wait

The edges keep serving the requests that still arrive. After this the PoP can be stopped.

One region's record is enough, so an unreachable region does not prevent draining
(status 3); running the same command again writes it there, too. Draining again changes
who and why, but not since when.

Exits with 0, or with 3 if a region could not be written, an edge that still passes could
not be asked, or requests still came at the end, from clients that ignore the TTL, do not
use DNS, or take long.`

const undrainHelp = `Puts a PoP back into DNS, in every region. An unreachable region still says that it is
drained, so routers that reach that region keep leaving it out (status 3); running the
same command again finishes the job.

Undraining a PoP that is not drained is not an error.`

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
	f.StringVar(&o.reason, "reason", "", "`TEXT`: why; shown by status and dns explain")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.force, "force", false, "drain it even if nothing healthy would be left")
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
	complete := completeFromConsul(p, rulesKind, &[]string{}, func(ctx context.Context, t *fleet.Target) ([]string, error) {
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
	nodes    []consul.Node // of this region
}

func siteOf(ctx context.Context, t *fleet.Target) (*sites, error) {
	h, err := hold(ctx, t.Consul)
	if err != nil {
		return nil, err
	}
	s := &sites{topology: h.topology}
	var wrong []error
	if s.drains, wrong, err = region.Drains(ctx, t.Consul); err != nil {
		return nil, err
	}
	for _, e := range wrong {
		t.Warn("%s: %v", t.Name, e)
	}
	s.nodes, err = t.Nodes(ctx)
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

// draining is a drain, or the end of one, in progress.
type draining struct {
	p       *program
	pop     string
	answers []fleet.Answer[*sites]
	results []*drainResult
}

// drainResult is the outcome in one region.
type drainResult struct {
	Region string          `json:"region"`
	Result rollout.Outcome `json:"result"`
	Error  string          `json:"error,omitempty"`
	Before *region.Drain   `json:"before,omitempty"`
}

// drainReport is what drain and undrain print with -o json.
type drainReport struct {
	PoP     string         `json:"pop"`
	Drain   *region.Drain  `json:"drain"` // null: it is not
	Regions []*drainResult `json:"regions"`
	Nodes   []trafficLeft  `json:"nodes,omitempty"`
}

// look asks all regions, and refuses a PoP that nobody knows.
func (p *program) lookAtPoP(ctx context.Context, targets []*fleet.Target, pop string) (*draining, error) {
	d := &draining{p: p, pop: pop, answers: fleet.Ask(ctx, targets, siteOf)}
	away, err := fleet.Failures(d.answers)
	if len(away) == len(targets) {
		return nil, term.Failed("nothing was changed, no region can be reached:\n%w", err)
	}
	var known []string
	for _, a := range d.answers {
		if a.Err == nil {
			known = append(known, a.Value.pops()...)
			for _, n := range a.Value.nodes {
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
		return nil, term.Misused("no PoP %q, nor any other: there is no topology; regionctl topology apply FILE publishes one", pop)
	default:
		return nil, term.Misused("no PoP %q in the topology; it has %s", pop, term.OrDashes(known))
	}
	for _, a := range d.answers {
		r := &drainResult{Region: a.Target.Name, Result: rollout.Untouched}
		if a.Err != nil {
			r.Result, r.Error = rollout.Unreachable, a.Err.Error()
		} else if had, is := a.Value.drains[pop]; is {
			r.Before = &had
		}
		d.results = append(d.results, r)
	}
	return d, nil
}

// before is the oldest drain that a region holds.
func (d *draining) before() (oldest region.Drain, is bool) {
	for _, a := range d.answers {
		if a.Err != nil {
			continue
		}
		if had, here := a.Value.drains[d.pop]; here && (!is || had.Since.Before(oldest.Since)) {
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
		if a.Err != nil {
			continue
		}
		for _, name := range a.Value.pops() {
			listed[name] = true
		}
		for name := range a.Value.drains {
			drained[name] = true
		}
		for _, n := range a.Value.nodes {
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
		return term.Misused("--reason TEXT is missing; it tells other operators where the clients went")
	}
	if err := checkText("--reason", o.reason, 500); err != nil {
		return err
	}
	if o.wait < 0 || o.ttl < 0 {
		return term.Misused("--wait and --ttl must be 0 or above")
	}
	who, err := whoami(o.by)
	if err != nil {
		return err
	}
	targets, err := p.targets(nil)
	if err != nil {
		return err
	}
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
		p.Say("%s is drained already, by %s since %s: %s", pop, before.Who, term.Stamp(before.Since), before.Why)
	} else if left := d.left(); len(left) == 0 {
		if !o.force {
			return term.Failed("nothing was changed: without %s no healthy PoP would be left that is not drained, and DNS would keep answering with it; put another back with regionctl undrain, or --force", pop)
		}
		p.Warn("without %s no healthy PoP is left that is not drained: DNS keeps answering with it", pop)
	}
	if !was {
		if err := p.Confirm(ctx, o.yes, "Drain %s?", pop); err != nil {
			return err
		}
	}
	outcome := d.tell(ctx, targets, func(r *drainResult) bool { return r.Before != nil && r.Before.Equal(next) },
		func(ctx context.Context, t *fleet.Target) error { return region.SetDrain(ctx, t.Consul, pop, next) })
	if len(d.with(rollout.Applied, rollout.AlreadyThere)) == 0 {
		return term.Failed("nothing was changed:\n%w", outcome)
	}
	report := drainReport{PoP: pop, Drain: &next, Regions: d.results}
	if outcome != nil {
		outcome = term.Partial("the word of %s is enough for routers that see it; the same command again tells the others:\n%w", strings.Join(d.with(rollout.Applied, rollout.AlreadyThere), ", "), outcome)
	}
	var waiting error
	if o.wait > 0 {
		began := next.Since
		if len(d.with(rollout.Applied)) > 0 {
			began = time.Now()
		}
		w := &leaving{p: p, pop: pop, ttl: o.ttl, limit: o.wait, began: began}
		report.Nodes, waiting = w.run(ctx, d.nodes())
	}
	return cmp.Or(outcome, waiting, p.Show(report, func(b *bytes.Buffer, s term.Style) { report.write(b, s) }))
}

func (p *program) undrain(ctx context.Context, pop string, o *drainOptions) error {
	targets, err := p.targets(nil)
	if err != nil {
		return err
	}
	d, err := p.lookAtPoP(ctx, targets, pop)
	if err != nil {
		return err
	}
	if before, was := d.before(); was {
		p.Say("%s is drained by %s since %s: %s", pop, before.Who, term.Stamp(before.Since), before.Why)
		if err := p.Confirm(ctx, o.yes, "Put %s back?", pop); err != nil {
			return err
		}
	}
	outcome := d.tell(ctx, targets, func(r *drainResult) bool { return r.Before == nil }, func(ctx context.Context, t *fleet.Target) error { return region.EndDrain(ctx, t.Consul, pop) })
	report := drainReport{PoP: pop, Regions: d.results}
	if outcome != nil {
		outcome = term.Partial("%s may still say that %s is drained; the same command again finishes the job:\n%w", strings.Join(d.with(rollout.Unreachable, rollout.Failed), ", "), pop, outcome)
	}
	return cmp.Or(outcome, p.Show(report, func(b *bytes.Buffer, s term.Style) { report.write(b, s) }))
}

// tell writes to all regions at once that can be reached and do not know it yet. Its
// error names those that were not told.
func (d *draining) tell(ctx context.Context, targets []*fleet.Target, known func(*drainResult) bool, write func(context.Context, *fleet.Target) error) error {
	written := fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (rollout.Outcome, error) {
		r := d.results[slices.Index(targets, t)]
		switch {
		case r.Result == rollout.Unreachable:
			return rollout.Unreachable, fmt.Errorf("%s", r.Error)
		case known(r):
			return rollout.AlreadyThere, nil
		}
		if err := write(ctx, t); err != nil {
			return rollout.Failed, err
		}
		return rollout.Applied, nil
	})
	for i, a := range written {
		d.results[i].Result = a.Value
		if a.Err != nil {
			d.results[i].Error = a.Err.Error()
		}
	}
	_, err := fleet.Failures(written)
	return err
}

func (d *draining) with(results ...rollout.Outcome) (names []string) {
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
		if a.Err != nil {
			continue
		}
		for _, n := range a.Value.nodes {
			if n.PoP == d.pop {
				list = append(list, nodeAt{a.Target, n})
			}
		}
	}
	return list
}

func (r *drainReport) write(b *bytes.Buffer, s term.Style) {
	t := term.Table{}
	t.Row("REGION", "RESULT")
	for _, c := range r.Regions {
		t.Row(c.Region, paintOutcome(s, c.Result))
	}
	t.Print(b)
	if r.Drain != nil {
		fmt.Fprintf(b, "%s is drained by %s since %s: %s\n", s.Bold(term.Printable(r.PoP)), term.Printable(r.Drain.Who), term.Stamp(r.Drain.Since), term.Printable(r.Drain.Why))
	} else {
		fmt.Fprintf(b, "%s is not drained\n", s.Bold(term.Printable(r.PoP)))
	}
}
