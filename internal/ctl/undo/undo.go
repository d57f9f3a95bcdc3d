// Package undo rolls back the last change, or applies an earlier version again.
package undo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/sites"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const undoHelp = `Undoes the last change of the rules, the shedder's settings, the behavior policy, the
topology, the drains (drain) or the blocked and allowed clients (clients); without KIND, of whichever
changed last. It shows what that did, and what the regions get back, such as a drain with who, why
and since when. What regionctl clients sync changes is not undone: it would change it again. An
undrain of what was not drained counts as no change.

A canary or waves that are not finished end, whoever began them, and a regionctl that still runs
them halts. Temporary settings end; without settings before the last ones, edges follow their
configuration. Regions without the last change keep what they have. A drain does not return where
no healthy PoP would be left in DNS, unless with --force. Of client lists only the one before is
kept. A region whose pointer to drains or client lists is gone or unreadable gets what it had last.

A region that cannot be reached may have what was changed last: nothing is undone then unless
--region names the regions. The undo of a rollout or of temporary settings goes on without the
region, exits with 3, and prints the command for later. That is not undo again: undoing twice
returns to where you began. With --partial, any undo continues without such regions.
After an undo that was killed, undo again completes it where all regions get the same rules,
policy or topology back. Otherwise undo with --region completes it in the regions that it names.
--sign signs what regions get back, except drains and clients, which have no signatures.
If someone else changes something before you answer, nothing is undone (status 4).

--to goes back to an older VERSION of KIND (rules, shedder, policy or topology): it applies that
like any other document, everywhere or in --region. regionctl rules history lists versions, and
prune --help says how many are kept. A regionctl that died during a change delays this by at
most 15 seconds; see regionctl rules apply --help about locks.`

const undoExamples = `  regionctl undo
  regionctl undo shedder --region us-east --yes
  regionctl undo rules --to 3f2a0c1b9d4e`

// undoable are the kinds of documents, in the order in which they are named.
var undoable = append(slices.Clone(versioned), kinds.Drains, kinds.Clients)

// versioned are those of them that people write as a whole.
var versioned = []*fleet.Kind{kinds.Rules, kinds.Shedder, kinds.Policy, kinds.Topology}

func Command(p *command.Program) *cobra.Command {
	c := &change.Change{Program: p}
	var to string
	cmd := command.New("undo [KIND]", "undo the last change, or go back to a version", undoHelp, undoExamples,
		func(ctx context.Context, args []string) error {
			r, err := back(ctx, c, strings.Join(args, ""), to)
			return command.Show(p, r, err, (*change.Report).Write)
		})
	Flags(c, cmd.Flags())
	toFlag(cmd.Flags(), &to)
	c.Completions(cmd, p)
	cmd.ValidArgs = command.KindNames(undoable)
	_ = cmd.RegisterFlagCompletionFunc("to", func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) { // the flag is known
		k, err := command.KindOf(versioned, strings.Join(args, ""))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.CompleteVersions(k, &c.Regions)(cmd, args, begun)
	})
	return cmd
}

func back(ctx context.Context, c *change.Change, kind, to string) (*change.Report, error) {
	if to == "" {
		return Undo(ctx, c, kind)
	}
	k, err := command.KindOf(versioned, kind)
	if err != nil {
		return nil, err
	}
	return Rollback(ctx, c, k, to)
}

// Flags adds the flags of undo.
func Flags(c *change.Change, f *pflag.FlagSet) {
	c.Flags(f)
	f.StringVarP(&c.Message, "message", "m", "", "`TEXT` for the history: why (default: what is undone)")
	f.StringSliceVar(&c.Of, "of", nil, "undo nothing (status 4) but this `VERSION`, or one of several")
	c.EdgeFlags(f)
}

// Undo rolls back the last change of the kind with this name or, without one, of any.
func Undo(ctx context.Context, c *change.Change, kind string) (*change.Report, error) {
	if err := c.CheckFlags(c.Program); err != nil {
		return nil, err
	}
	k, err := kindToUndo(ctx, c.Program, kind, c.Regions)
	if err == nil {
		partial := c.Partial
		c.Partial = true
		err = undo(ctx, c, k, partial)
	}
	return c.Result, err
}

// undo rolls back the last change of a kind. Partial: also if a region that cannot be reached may have
// it, too.
func undo(ctx context.Context, c *change.Change, k *fleet.Kind, partial bool) error {
	c.Relative, c.Undoes, c.Redo = true, true, map[string]string{}
	if k == kinds.Drains {
		c.Objects = func(ctx context.Context, next map[string]*fleet.Document) []string {
			return strands(ctx, c.Program, next)
		}
	}
	targets, answers, err := c.Histories(ctx, k)
	if err != nil {
		return err
	}
	if ending, where := temporaries(answers); ending != "" {
		for _, t := range where {
			c.Redo[t.Name] = fmt.Sprintf("regionctl undo %s --of %s --region %s", k.Name, strings.Fields(ending)[0], t.Name)
		}
		c.AimAt, c.Message = endIt, cmp.Or(c.Message, "end of "+ending)
		return c.Run(ctx, where)
	}
	unsure := ""
	if !k.Temporary {
		u, _ := unfinished.Find(ctx, c.Program, targets, nil)
		switch {
		case u != nil && u.Active() && u.Record.Undoes:
			return finish(ctx, c, k, targets, u)
		case u != nil && u.Active():
			return undoRollout(ctx, c, k, targets, u)
		case u != nil:
			unsure = u.Leftover() + "; "
		}
	}
	if away, err := fleet.Failures(answers); err != nil && !partial {
		hint := ""
		if there := fleet.Filter(targets, func(t *fleet.Target) bool { return !slices.Contains(away, t.Name) }); len(there) > 0 {
			hint = fmt.Sprintf("\n--partial continues with %s", strings.Join(command.RegionNames(there), ", "))
		}
		return c.Report(term.Unreachable("nothing was changed: %s%s cannot be reached, so it is unknown whether the last change was there:\n%w%s", unsure, strings.Join(away, ", "), err, hint), nil)
	}
	if k.Back != nil && slices.ContainsFunc(answers, func(a fleet.Answer[versions.History]) bool { return a.Value.Lost() != nil }) {
		return restore(ctx, c, answers)
	}
	return undoLast(ctx, c, k, answers)
}

// restore gives regions whose pointer was lost what they had.
func restore(ctx context.Context, c *change.Change, answers []fleet.Answer[versions.History]) error {
	had, aims := map[string]consul.Pointer{}, []*fleet.Target{}
	for _, a := range answers {
		if last := a.Value.Lost(); last != nil {
			had[a.Target.Name], aims = last.Pointer, append(aims, a.Target)
			c.Program.Say("%s: the pointer was lost; %s of %s, %s, was the last", a.Target.Name, last.Version, term.Printable(last.AppliedBy), term.Stamp(last.AppliedAt))
		}
	}
	c.Message = cmp.Or(c.Message, "restores what was lost")
	c.AimAt = func(ctx context.Context, t *fleet.Target, s *versions.Step) (err error) {
		p := had[t.Name]
		if s.Next, err = t.Load(ctx, consul.Named{Version: p.Version, SHA256: p.SHA256}); err != nil {
			return term.Failed("nothing was changed: %s: %w", t.Name, err)
		}
		return nil
	}
	if err := c.Run(ctx, aims); err != nil || len(aims) == len(answers) {
		return err
	}
	return term.Partial("what was lost is back, but the last change was not undone")
}

// strands says whether the drains that regions get would take the last healthy PoP out of DNS.
func strands(ctx context.Context, p *command.Program, next map[string]*fleet.Document) []string {
	all, err := p.Targets(kinds.Drains, nil)
	if err != nil {
		return []string{err.Error()}
	}
	var seen []*sites.Region
	changed := map[*sites.Region]region.Drains{}
	for _, a := range fleet.Ask(ctx, all, sites.Of) {
		if a.Err != nil {
			continue
		}
		seen = append(seen, a.Value)
		if d := next[a.Target.Name]; d != nil {
			changed[a.Value] = *d.Body.(*kinds.DrainBook).Drains
		}
	}
	if why := sites.Strands(seen, changed); why != "" {
		return []string{why}
	}
	return nil
}

// undoLast gives the regions of the last change what they had before. Each may have got a version
// of its own at the same time, or several people may have applied one, one after the other.
func undoLast(ctx context.Context, c *change.Change, k *fleet.Kind, answers []fleet.Answer[versions.History]) error {
	var last *consul.Pointer
	var since time.Time // what was applied before is part of an earlier change
	why, id := "", ""
	for _, a := range answers {
		if p, before := a.Value.Made(); p != nil && (last == nil || p.AppliedAt.After(last.AppliedAt)) {
			last, since, why, id = p, before, term.Reason(a.Value.Message()), a.Value.ID()
		}
	}
	if last != nil && synced(k, last) {
		return term.Conflict("nothing was changed: %s made the last change of the %s, at %s, and would make it again; regionctl clients unblock and block change what was decided before", term.Printable(last.AppliedBy), k.What, term.Stamp(last.AppliedAt))
	}
	part := func(h *versions.History, p *consul.Pointer) bool {
		same := k.Back == nil && p.Version == last.Version || k.Back != nil && id != "" && h.ID() == id
		return p.AppliedBy == last.AppliedBy && p.AppliedAt.Equal(last.AppliedAt) || same && p.AppliedAt.After(since)
	}
	var aims []*fleet.Target
	var kept, earlier, has []string
	back, ends := map[string]string{}, map[string]bool{}
	for _, a := range answers {
		if a.Err != nil {
			if last != nil {
				a.Target.Consul.Abandon(a.Err) // it must not answer only now
				c.Redo[a.Target.Name] = fmt.Sprintf("regionctl undo %s --of %s --region %s", k.Name, last.Version, a.Target.Name)
				aims = append(aims, a.Target)
			}
			continue
		}
		if p, _ := a.Value.Made(); last != nil && (p == nil || !part(&a.Value, p)) {
			kept = append(kept, fmt.Sprintf("%s keeps %s", a.Target.Name, term.OrDash(a.Value.Version())))
			continue
		}
		if a.Value.First() {
			ends[a.Target.Name] = true
			c.Redo[a.Target.Name] = fmt.Sprintf("regionctl undo %s --of %s --region %s", k.Name, a.Value.Version(), a.Target.Name)
			aims, has = append(aims, a.Target), append(has, a.Value.Version())
			continue
		}
		before, err := a.Value.Before()
		if err != nil {
			return term.Misused("%s: %w; nothing was changed", a.Target.Name, err)
		}
		back[a.Target.Name] = before
		c.Redo[a.Target.Name] = fmt.Sprintf("regionctl undo %s --to %s --region %s", k.Name, before, a.Target.Name)
		if k.Back != nil {
			c.Redo[a.Target.Name] = fmt.Sprintf("regionctl undo %s --of %s --region %s", k.Name, a.Value.Version(), a.Target.Name)
		}
		earlier, has = append(earlier, before), append(has, a.Value.Version())
		aims = append(aims, a.Target)
	}
	if len(c.Of) == 0 { // what follows meanwhile is another change
		c.Of = has
	}
	docs := map[string]*fleet.Document{}
	for _, version := range term.Distinct(earlier) {
		p, err := versions.FindVersion(ctx, k, answers, version)
		if err == nil {
			docs[version], err = versions.FetchVersion(ctx, answers, *p)
		}
		if err != nil {
			return term.Failed("nothing was changed: %w", err)
		}
	}
	if last != nil {
		of := ""
		if away, _ := fleet.Failures(answers); len(away) > 0 {
			of = fmt.Sprintf(" of the other regions (%s may have a later one)", strings.Join(away, ", "))
		}
		c.Program.Say("%s of %s, %s, is the last change%s%s%s", last.Version, term.Printable(last.AppliedBy), term.Stamp(last.AppliedAt), of, why, strings.Join(append([]string{""}, kept...), "; "))
	}
	if list := term.Distinct(earlier); len(list) == 1 && k.Back == nil && len(ends) == 0 {
		c.Doc, c.Message = docs[list[0]], cmp.Or(c.Message, "rollback to "+list[0])
		return c.Run(ctx, aims)
	}
	c.Message = term.Clip(cmp.Or(c.Message, "undo of "+last.Version+why), 1024)
	now := c.Program.Now() // in all regions
	c.AimAt = func(_ context.Context, t *fleet.Target, s *versions.Step) error {
		if ends[t.Name] {
			return toConfiguration(t, s)
		}
		if s.Next = docs[back[t.Name]]; k.Back != nil {
			s.Next = k.Back(s.From.Document, s.Next, now)
		}
		return nil
	}
	return c.Run(ctx, aims)
}

// undoRollout gives the regions that an unfinished change has reached what they had, and ends
// its canary.
func undoRollout(ctx context.Context, c *change.Change, k *fleet.Kind, targets []*fleet.Target, u *unfinished.Rollout) error {
	if !c.Means(u.Version) {
		return term.Conflict("nothing was changed: %s; it is not %s", u.Leftover(), strings.Join(c.Of, " or "))
	}
	changed := u.Changed()
	for name, had := range u.Record.Before {
		c.Redo[name] = fmt.Sprintf("regionctl undo %s --to %s --region %s", k.Name, had.Version, name)
	}
	if u.State != unfinished.Runs { // that one renews its record, and halts
		c.Ready = func(ctx context.Context) error { return u.Unmoved(ctx, targets) }
	}
	c.Program.Say("%s", u.Leftover())
	c.Message = cmp.Or(c.Message, "rollback of the rollout of "+u.Version)
	c.AimAt = func(ctx context.Context, t *fleet.Target, s *versions.Step) (err error) {
		had, known := u.Record.Before[t.Name]
		switch {
		case s.From.State != fleet.Active, s.From.Version() != u.Version && !slices.Contains(changed, t.Name):
			s.Next = s.From.Document // only its canary ends
			if s.Next == nil {
				return term.Misused("nothing was changed: %s: no %s %s published there to go back to; the canary ends by itself, or with the next regionctl %s apply", t.Name, k.What, k.Are, k.Name)
			}
			return nil
		case s.From.Version() != u.Record.Version:
			return term.Conflict("nothing was changed: %s: %s", t.Name, report.WhoMoved(k, s.From.Pointer))
		case !known:
			return term.Misused("nothing was changed: %s had no %s before; regionctl %s apply publishes one", t.Name, k.What, k.Name)
		}
		if s.Next, err = t.Load(ctx, had); err != nil {
			return term.Failed("nothing was changed: %s: %w", t.Name, err)
		}
		return nil
	}
	tries := u.Regions(unfinished.RegionDone, unfinished.RegionWaits) // where its canary may be; those of one that runs are locked
	aims := fleet.Filter(targets, func(t *fleet.Target) bool {
		_, had := u.Record.Before[t.Name]
		return u.State == unfinished.Runs && had || slices.Contains(changed, t.Name) || u.Canary != "" && slices.Contains(tries, t.Name) || slices.Contains(u.Regions(unfinished.RegionUnknown), t.Name)
	})
	if err := c.Run(ctx, aims); err != nil {
		return err
	}
	rollout.Forget(ctx, targets, func(_ *fleet.Target, r *consul.Rollout) bool { return r.SameRollout(&u.Record) })
	return nil
}

// finish gives the regions that an undo did not reach what it gave the others.
func finish(ctx context.Context, c *change.Change, k *fleet.Kind, targets []*fleet.Target, u *unfinished.Rollout) error {
	c.Program.Say("%s", u.Leftover())
	c.Relative, c.Message = false, cmp.Or(c.Message, u.Message)
	for _, name := range u.Regions(unfinished.RegionWaits, unfinished.RegionUnknown) {
		c.Redo[name] = fmt.Sprintf("regionctl undo %s --to %s --region %s", k.Name, u.Version, name)
	}
	c.AimAt = func(ctx context.Context, t *fleet.Target, s *versions.Step) (err error) {
		if has := s.From.Version(); has != u.Version && has != u.Record.Before[t.Name].Version {
			return term.Conflict("nothing was changed: %s: %s", t.Name, report.WhoMoved(k, s.From.Pointer))
		}
		if s.Next, err = t.Load(ctx, u.Record.Named); err != nil {
			return term.Failed("nothing was changed: %s: %w", t.Name, err)
		}
		return nil
	}
	aims := u.Regions(unfinished.RegionDone, unfinished.RegionWaits, unfinished.RegionUnknown)
	return c.Run(ctx, fleet.Filter(targets, func(t *fleet.Target) bool { return slices.Contains(aims, t.Name) }))
}
