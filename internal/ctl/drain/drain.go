// Package drain has the commands that take a PoP out of DNS and put it back.
package drain

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/sites"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const help = `Takes a PoP out of DNS on purpose, and waits until its clients have left:

  1. refuses an unknown PoP, and the last healthy one (--force drains it anyway; while
     nothing else is healthy, DNS still answers with it)
  2. asks (unless --yes), and writes who, why and since when to every region
  3. waits until the answers in resolvers' caches have expired (--ttl and two seconds) and
     its edges get no more than stray requests; at most --wait

The edges keep serving the requests that still arrive. After this the PoP can be stopped.

One region's record is enough, so an unreachable region does not prevent draining
(status 3); running the same command again writes it there too. Draining again changes
who and why, but not since when.

Exits with 0, or with 3 if a region could not be written, an edge that still passes could
not be asked, or requests still came at the end, from clients that ignore the TTL, do not
use DNS, or take long; or with 4 if someone undrained the PoP in the meantime, or drained the
last other one.`

const undrainHelp = `Puts a PoP back into DNS, in every region. All regions record that drains which began until
now are over, so a drain that an unreachable region still holds no longer counts, even
when that region is back (status 3); running the same command again removes it there too.

Undraining a PoP that is not drained is not an error.`

func Command(p *command.Program) *cobra.Command {
	var o Request
	c := command.New("drain POP", "take a PoP out of DNS, and wait until its clients have left", help,
		`  regionctl drain ams1 --message "kernel update, CHG-77"
  regionctl drain ams1 --message "smoke in the room" --yes --wait 0`,
		func(ctx context.Context, args []string) error {
			r, err := Drain(ctx, p, args[0], &o)
			return command.Show(p, r, err, (*Report).write)
		})
	o.Flags(c.Flags())
	c.ValidArgsFunction = completePoPs(p, false)
	return c
}

func UndrainCommand(p *command.Program) *cobra.Command {
	var o Request
	c := command.New("undrain POP", "put a PoP back into DNS", undrainHelp,
		`  regionctl undrain ams1
  regionctl undrain ams1 --yes`,
		func(ctx context.Context, args []string) error {
			r, err := Undrain(ctx, p, args[0], &o)
			return command.Show(p, r, err, (*Report).write)
		})
	o.bothFlags(c.Flags())
	command.MessageFlag(c.Flags(), &o.reason)
	c.ValidArgsFunction = completePoPs(p, true)
	return c
}

// completePoPs offers the PoPs, or only the drained ones.
func completePoPs(p *command.Program, drained bool) command.Completion {
	complete := command.CompleteFromConsul(p, kinds.Rules, &[]string{}, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		s, err := sites.Of(ctx, t)
		if err != nil {
			return nil, err
		}
		if drained {
			return slices.Sorted(maps.Keys(s.Drains.Begun)), nil
		}
		return s.Pops(), nil
	})
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, text)
	}
}

// draining is a drain, or the end of one, in progress.
type draining struct {
	p       *command.Program
	pop     string
	who     string
	targets []*fleet.Target
	engine  *rollout.Change[*sites.Region]
	next    *region.Drain // nil: it ends
	until   time.Time     // when it ends: drains that were recorded by then are over
	change  consul.Change // for the history
}

// result is the outcome in one region.
type result struct {
	report.RegionResult
	Before *region.Drain `json:"before,omitempty"`
}

// Report is what drain and undrain print with -o json.
type Report struct {
	PoP     string        `json:"pop"`
	Drain   *region.Drain `json:"drain"` // null: not drained
	Regions []result      `json:"regions"`
	Nodes   []TrafficLeft `json:"nodes,omitempty"`
}

// lookAtPoP asks all regions, and refuses an unknown PoP.
func lookAtPoP(ctx context.Context, p *command.Program, pop string, o *Request) (*draining, error) {
	if err := command.CheckText("--message", o.reason, 500); err != nil {
		return nil, err
	}
	who, err := p.Whoami(o.by)
	if err != nil {
		return nil, err
	}
	targets, err := p.TargetsToChange(ctx, kinds.Drains, nil, true)
	if err != nil {
		return nil, err
	}
	d := &draining{p: p, pop: pop, who: who, targets: targets}
	type popRegion = rollout.Region[*sites.Region]
	d.engine = &rollout.Change[*sites.Region]{Timeout: p.Timeout, Subject: rollout.Subject[*sites.Region]{
		Look: func(ctx context.Context, r *popRegion) (*sites.Region, error) {
			s, err := sites.Of(ctx, d.target(r.Name))
			return s, cmp.Or(err, s.Unread)
		},
		Unchanged: func(a, b *sites.Region) bool { return sites.SameDrain(a.DrainOf(pop), b.DrainOf(pop)) },
		Holds: func(_ *popRegion, now *sites.Region) bool {
			return sites.SameDrain(now.DrainOf(pop), d.next) && !now.Drains.Ended[pop].Before(d.until)
		},
		Write: func(ctx context.Context, r *popRegion) (bool, error) {
			t := d.target(r.Name)
			ctx, cancel := t.Bounded(ctx)
			defer cancel()
			change := d.change
			change.Token = t.Identity(ctx)
			return region.ChangeDrains(ctx, t.Consul, change, func(now *region.Drains) *region.Drains {
				if !d.engine.Unchanged(r.Seen, &sites.Region{Drains: *now}) {
					return nil
				}
				return now.With(pop, d.next, d.until)
			})
		},
	}}
	for _, t := range targets {
		d.engine.Regions = append(d.engine.Regions, rollout.NewRegion[*sites.Region](t.Name, t.Consul))
	}
	d.engine.Prepare(ctx, func(ctx context.Context, r *popRegion) (*sites.Region, error) { return sites.Of(ctx, d.target(r.Name)) })
	if _, err := report.Reached(d.engine.Results(), true, ""); err != nil {
		return nil, err
	}
	for _, r := range d.engine.Regions {
		if r.Seen != nil && r.Seen.Unread != nil {
			r.Outcome, r.Err = rollout.Failed, r.Seen.Unread
		}
	}
	var known []string
	for _, s := range d.seen() {
		known = append(known, s.Pops()...)
		for _, n := range s.Nodes {
			known = append(known, n.PoP)
		}
	}
	known = term.Distinct(known)
	slices.Sort(known)
	switch {
	case slices.Contains(known, pop), slices.ContainsFunc(d.seen(), func(s *sites.Region) bool { return s.DrainOf(pop) != nil }):
		return d, nil
	case len(known) == 0:
		return nil, term.Misused("no PoP %q: there is no topology; publish one with regionctl topology apply FILE", pop)
	}
	return nil, term.Misused("no PoP %q in the topology; it has %s", pop, term.OrDashes(known))
}

func (d *draining) target(name string) *fleet.Target {
	return d.targets[slices.IndexFunc(d.targets, func(t *fleet.Target) bool { return t.Name == name })]
}

// seen returns what the answering regions had at first.
func (d *draining) seen() (list []*sites.Region) {
	for _, r := range d.engine.Regions {
		if r.Seen != nil {
			list = append(list, r.Seen)
		}
	}
	return list
}

// before returns the oldest drain that a region holds and that is not over, or nil.
func (d *draining) before() *region.Drain {
	all := sites.DrainsOf(d.seen())
	return region.Oldest(d.pop, all, region.Ended(d.pop, all))
}

// after returns the drains of the regions that answered with the next one.
func (d *draining) after() map[*sites.Region]region.Drains {
	changed := map[*sites.Region]region.Drains{}
	for _, s := range d.seen() {
		changed[s] = *s.Drains.With(d.pop, d.next, d.until)
	}
	return changed
}

// end chooses until when drains are over: those that regions hold and, for regions that
// cannot be asked, those that have begun.
func (d *draining) end() {
	all := sites.DrainsOf(d.seen())
	times := []time.Time{region.Ended(d.pop, all)}
	for _, r := range all {
		times = append(times, r.Begun[d.pop].At)
	}
	if len(all) < len(d.targets) {
		times = append(times, d.p.Now())
	}
	d.until = slices.MaxFunc(times, time.Time.Compare)
}

// Drain takes a PoP out of DNS, and waits until its clients have left.
func Drain(ctx context.Context, p *command.Program, pop string, o *Request) (*Report, error) {
	if o.reason == "" {
		return nil, term.Misused("--message TEXT is missing; it tells other operators where the clients went")
	}
	if o.Wait < 0 || o.ttl < 0 {
		return nil, term.Misused("--wait and --ttl must be 0 or above")
	}
	d, err := lookAtPoP(ctx, p, pop, o)
	if err != nil {
		return nil, err
	}
	now := p.Now().UTC()
	d.next = &region.Drain{Who: d.who, Why: o.reason, Since: now.Truncate(time.Second), At: now}
	if ended := region.Ended(pop, sites.DrainsOf(d.seen())); !now.After(ended) {
		d.next.At = ended.Add(time.Millisecond)
	}
	before := d.before()
	if before != nil {
		d.next.Since = before.Since
		if before.Why == o.reason {
			d.next = before
		}
		p.Say("%s is already drained, by %s since %s: %s", pop, before.Who, term.Stamp(before.Since), before.Why)
	} else if why := sites.Strands(d.seen(), d.after()); why != "" {
		if !o.force {
			return nil, term.Failed("nothing was changed: %s, or --force", why)
		}
		p.Warn("%s (--force)", why)
	}
	if before == nil {
		if err := p.Confirm(ctx, o.yes, "Drain %s?", pop); err != nil {
			return nil, err
		}
	}
	have, without := d.publish(ctx, "drain "+pop+": "+o.reason)
	if len(have) == 0 {
		return nil, term.Failed("nothing was changed:\n%s", report.ReasonsOf(without))
	}
	var outcome error
	if len(without) > 0 {
		outcome = term.Partial("%s %s it, which is enough for routers that see it; run the same command again to tell the others:\n%s", report.Names(have), report.Verb(have, "has", "have"), report.ReasonsOf(without))
	}
	if len(without) == 0 {
		versions.PruneAfter(ctx, p, d.targets, versions.KeepVersions, d.who)
	}
	done, waiting := d.report(), error(nil)
	if before == nil && !o.force {
		if why := d.strands(ctx); why != "" {
			return done, errors.Join(term.Conflict("%s is drained, but %s", pop, why), outcome)
		}
	}
	if o.Wait > 0 {
		began := d.next.Since
		if len(report.With(have, rollout.Applied)) > 0 {
			began = time.Now()
		}
		w := &leaving{p: p, pop: pop, ttl: o.ttl, limit: o.Wait, began: began}
		done.Nodes, waiting = w.run(ctx, d.nodes())
		if ctx.Err() == nil && d.over(ctx) {
			done.Drain, outcome, waiting = nil, nil, term.Conflict("someone has undrained %s in the meantime", pop)
		}
	}
	return done, cmp.Or(outcome, waiting)
}

// Undrain puts a PoP back into DNS.
func Undrain(ctx context.Context, p *command.Program, pop string, o *Request) (*Report, error) {
	d, err := lookAtPoP(ctx, p, pop, o)
	if err != nil {
		return nil, err
	}
	if before := d.before(); before != nil {
		p.Say("%s is drained by %s since %s: %s", pop, before.Who, term.Stamp(before.Since), before.Why)
		if err := p.Confirm(ctx, o.yes, "Put %s back?", pop); err != nil {
			return nil, err
		}
	}
	d.end()
	var outcome error
	_, without := d.publish(ctx, "undrain "+pop+term.Reason(o.reason))
	if len(without) > 0 {
		outcome = term.Partial("%s may still hold the drain of %s, which the other regions have ended; run the same command again to finish:\n%s", report.Names(without), pop, report.ReasonsOf(without))
	} else {
		versions.PruneAfter(ctx, p, d.targets, versions.KeepVersions, d.who)
	}
	return d.report(), outcome
}

// publish writes to all reachable regions that do not have it yet.
func (d *draining) publish(ctx context.Context, what string) (have, without []report.Region) {
	id := fmt.Appendf(nil, "%s until %s", d.pop, d.until.UTC().Round(0).Format(time.RFC3339Nano))
	if d.next != nil {
		id = (&region.Drains{}).With(d.pop, d.next, time.Time{}).Document()
	}
	d.change = consul.Change{Pointer: consul.Pointer{AppliedBy: d.who, AppliedAt: d.p.Now().UTC().Round(0)}, Message: what, ID: consul.NewPointer(id, "", time.Time{}).Version}
	d.engine.Compare()
	d.engine.Tell(ctx)
	for _, r := range d.results() {
		if r.Outcome.Has() {
			have = append(have, r)
		} else {
			without = append(without, r)
		}
	}
	return have, without
}

func (d *draining) results() (list []report.Region) {
	for _, r := range d.engine.Results() {
		t := report.Failed(r, "")
		if r.Outcome == rollout.Lost {
			t.Why = "someone else has changed it in the meantime"
		}
		list = append(list, t)
	}
	return list
}

func (d *draining) report() *Report {
	r := &Report{PoP: d.pop, Drain: d.next}
	for i, t := range d.results() {
		here := result{RegionResult: report.ResultOf(t)}
		if seen := d.engine.Regions[i].Seen; seen != nil {
			here.Before = seen.DrainOf(d.pop)
		}
		r.Regions = append(r.Regions, here)
	}
	return r
}

// nodes returns the PoP's nodes, with the target to ask.
func (d *draining) nodes() (list []nodeAt) {
	for i, r := range d.engine.Regions {
		if r.Seen == nil {
			continue
		}
		for _, n := range r.Seen.Nodes {
			if n.PoP == d.pop {
				list = append(list, nodeAt{d.targets[i], n})
			}
		}
	}
	return list
}

func (r *Report) write(b *bytes.Buffer, s term.Style) {
	report.WriteResults(b, s, fleet.Map(r.Regions, func(c result) report.RegionResult { return c.RegionResult }))
	if r.Drain != nil {
		fmt.Fprintf(b, "%s is drained by %s since %s: %s\n", s.Bold(term.Printable(r.PoP)), term.Printable(r.Drain.Who), term.Stamp(r.Drain.Since), term.Printable(r.Drain.Why))
	} else {
		fmt.Fprintf(b, "%s is not drained: clients get it while it is healthy\n", s.Bold(term.Printable(r.PoP)))
	}
}
