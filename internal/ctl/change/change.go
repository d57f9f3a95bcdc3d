// Package change brings one document to some regions: what it is to be, in which steps, on trial
// first or in waves, recorded so that it can be resumed or rolled back.
package change

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/staging"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Change activates one document in some regions. apply, set and undo are changes.
//
// The order of its steps makes it safe. The document is stored everywhere before any region
// is pointed at it. The engine of package rollout then points the regions, the first before
// all others. Only then are canaries ended, so that every edge should run the version.
type Change struct {
	Program *command.Program
	staging.Options
	aim
	earlier
	// Ready checks, under the lock, for any other reason to stop; nil: none.
	Ready   func(ctx context.Context) error
	journal *journal
	// apart is until when the regions may differ from others of the fleet; nil: they should not.
	apart *time.Time

	watch    *rollout.Watch // nil: nothing is judged
	canary   *canaryReport
	Engine   *rollout.Change[fleet.Current]
	regions  []*regionChange
	at       time.Time // when the regions were pointed
	edgeless bool      // a region has no edge that could run anything
	forced   string    // what edges objected, and --force overrode
	// overridden are the parts of these objections, and of those that the rollout overrode before.
	overridden []string
	// unreached are the regions that could not be reached before any was pointed.
	unreached []string
	tried     string // the site whose canary passed
	// Result is what became of it; nil: it ended before it knew the regions.
	Result *Report
}

// aim is what the regions are to have.
type aim struct {
	Doc *fleet.Document // for all regions, or
	// AimAt chooses the next document of each region, given what the region has now.
	AimAt func(ctx context.Context, t *fleet.Target, s *versions.Step) error
	// Objects says what speaks against the next documents of regions, unless it is forced; nil: nothing.
	Objects func(ctx context.Context, next map[string]*fleet.Document) []string
	// Relative: the document depends on what was seen, so no one else can have applied the
	// same.
	Relative bool
}

// earlier is what other runs left in the regions.
type earlier struct {
	// recorded are the records of rollouts, which this change ends.
	recorded rollout.Records
	// looked is the state of the records when it was checked that this change may begin.
	looked rollout.Records
	// resumes is the record of the rollout that this change continues, nil if it begins one.
	resumes *consul.Rollout
	// Undoes: this change rolls back one to a version in Of, or to any if that is empty. Redo is the
	// command that does so in one region.
	Undoes bool
	Of     []string
	Redo   map[string]string
}

type regionChange struct {
	target *fleet.Target
	region *rollout.Region[fleet.Current]
	step   versions.Step // unknown where the region did not answer

	end *consul.End // of its history before it was written; nil: unknown

	await *fleet.RegionView // what its edges were last seen to run; nil: not waited for
	moved *consul.Pointer   // what someone else published while the edges were waited for
}

// runs returns the version that its edges should run.
func (r *regionChange) runs() string {
	if r.step.Ends {
		return fleet.Own
	}
	return r.step.Next.Version()
}

// results returns the region as shown to users.
func (r *regionChange) results() report.Region {
	t := report.Failed(r.region.Result, "")
	if r.step.Next != nil {
		t.Gets = r.runs()
	}
	if r.region.Outcome != rollout.Lost {
		return t
	}
	k, now := r.target.Kind, r.region.Now
	if damage := errors.Join(r.region.Err, now.Damage); damage != nil {
		t.Why = fmt.Sprintf("someone changed the %s meanwhile, and who cannot be read: %v", k.What, damage)
	} else {
		t.Why = report.WhoMoved(k, now.Pointer)
	}
	return t
}

func (c *Change) results() (list []report.Region) {
	for _, r := range c.regions {
		t := r.results()
		t.Redo = c.Redo[t.Name]
		list = append(list, t)
	}
	return list
}

// have returns the regions that have what the change brings.
func (c *Change) have() []report.Region {
	return report.With(c.results(), rollout.Applied, rollout.AlreadyThere)
}

// always stands in for the end of what never expires.
var always = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// begin builds the engine's view of the change.
func (c *Change) begin(targets []*fleet.Target) {
	k := targets[0].Kind
	if c.regions = nil; !k.AtEdges() {
		c.Wait = 0
	}
	c.Engine = &rollout.Change[fleet.Current]{
		Subject: rollout.Subject[fleet.Current]{
			Name: k.Name,
			Store: func(ctx context.Context, r *rollout.Region[fleet.Current]) error {
				here := c.region(r.Name)
				_, err := here.target.Docs.Put(ctx, here.step.Next.Bytes)
				if err == nil && c.Lasts == 0 { // otherwise the end is not known yet
					err = c.sign(ctx, here)
				}
				return err
			},
			Look: func(ctx context.Context, r *rollout.Region[fleet.Current]) (fleet.Current, error) {
				return fleet.LookAtPointer(ctx, c.region(r.Name).target)
			},
			Unchanged: func(a, b fleet.Current) bool { return a.Index == b.Index },
			Holds: func(r *rollout.Region[fleet.Current], now fleet.Current) bool {
				return c.has(c.region(r.Name), now)
			},
			Write: func(ctx context.Context, r *rollout.Region[fleet.Current]) (bool, error) {
				here := c.region(r.Name)
				return here.target.Docs.Fenced(r.Fence).ContinuingFrom(here.end).Activate(ctx, c.entry(ctx, here, c.pointer(here)), r.Seen.Index)
			},
		},
		By: c.By, Partial: c.Partial, Timeout: c.Program.Timeout, LockWait: c.Program.LockWait, BreakLock: c.BreakLock, Edits: k.Back != nil, Report: &report.Locks{Program: c.Program, What: k.Name},
		Ready: func(ctx context.Context) error {
			if c.Ready != nil {
				if err := c.Ready(ctx); err != nil {
					return err
				}
			}
			if c.Program.MayHalt != nil { // one may have begun since Prepare
				if err := c.mayHalt(rollout.RecordsIn(ctx, targets).Rollouts()...); err != nil {
					return err
				}
			}
			c.at = c.Program.Now().UTC().Round(0)
			err := c.restore(ctx)
			c.unreached = command.RegionNames(TargetsOf(c.With(rollout.Unreachable)))
			return err
		},
	}
	if file, err := c.Program.Fleet(); err == nil && len(targets) < len(file.Regions) {
		c.apart = &always
	}
	for _, t := range targets {
		r := rollout.NewRegion[fleet.Current](t.Name, t.Consul)
		c.Engine.Regions = append(c.Engine.Regions, r)
		c.regions = append(c.regions, &regionChange{target: t, region: r})
	}
}

// restore stores the document again in locked regions, in case it was pruned since it was
// stored. Documents are pruned only under the lock.
func (c *Change) restore(ctx context.Context) error {
	for _, a := range fleet.Ask(ctx, TargetsOf(c.With(rollout.Untouched, rollout.AlreadyThere)), func(ctx context.Context, t *fleet.Target) (struct{}, error) {
		here := c.region(t.Name)
		next := here.step.Next
		var asking sync.WaitGroup // for what the history needs
		defer asking.Wait()
		asking.Go(func() { t.Identity(ctx) })
		asking.Go(func() {
			if end, err := t.Docs.End(ctx); err == nil { // otherwise the write asks again
				here.end = &end
			}
		})
		there, err := t.Docs.Versions(ctx, next.Version())
		if err == nil && len(there) == 0 {
			if _, err = t.Docs.Put(ctx, next.Bytes); err == nil && c.Lasts == 0 { // its signature is gone, too
				err = c.sign(ctx, here)
			}
		}
		if err == nil && c.Lasts > 0 {
			err = c.sign(ctx, here)
		}
		return struct{}{}, err
	}) {
		switch r := c.region(a.Target.Name).region; {
		case a.Err == nil:
		case c.Partial:
			r.Outcome, r.Err = rollout.Unreachable, a.Err
		default:
			return term.Failed("nothing was changed: %s: %w", r.Name, a.Err)
		}
	}
	return nil
}

// has reports whether a region in state now has what the change brings.
func (c *Change) has(r *regionChange, now fleet.Current) bool {
	switch p := now.Pointer; {
	case now.State == fleet.Unpublished || now.Damage != nil || r.step.Next == nil:
		return false
	case c.Lasts > 0, c.Relative && now.Index != r.region.Seen.Index:
		return p.Version == r.step.Next.Version() && p.AppliedAt.Equal(c.at) && p.AppliedBy == c.By
	case r.step.Ends:
		return now.State == fleet.Ended
	}
	return r.step.Done(now)
}

// Prepare reads what all regions have and shows the difference. Unless the change may be
// partial, it stops when a region cannot be reached.
func (c *Change) Prepare(ctx context.Context, targets []*fleet.Target) error {
	c.begin(targets)
	var nodes []fleet.Answer[[]consul.Node] // asked for meanwhile
	var asking sync.WaitGroup
	asking.Go(func() {
		nodes = fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) ([]consul.Node, error) { return t.Registered(ctx) })
	})
	asking.Go(func() { c.recorded = rollout.RecordsIn(ctx, targets) })
	c.Engine.Prepare(ctx, func(ctx context.Context, r *rollout.Region[fleet.Current]) (fleet.Current, error) {
		here := c.region(r.Name)
		now, err := fleet.Look(ctx, here.target)
		if err == nil {
			c.aimFor(ctx, here, now)
		}
		return now, err
	})
	asking.Wait()
	c.Program.WarnOfClock()
	c.Engine.Compare()
	away, err := c.reached()
	if err != nil {
		return err
	}
	var steps []fleet.Answer[*versions.Step]
	for _, r := range c.regions {
		if r.step.Wrong != nil {
			return r.step.Wrong
		}
		if err := cmp.Or(c.stale(r), c.overtaken(r)); err != nil {
			return err
		}
		steps = append(steps, fleet.Answer[*versions.Step]{Target: r.target, Value: &r.step, Err: r.region.Err})
	}
	objections := append(c.unread(ctx), c.untrusted(ctx, nodes)...)
	if c.Objects != nil {
		next := map[string]*fleet.Document{}
		for _, r := range c.With(rollout.Untouched) {
			next[r.target.Name] = r.step.Next
		}
		for _, line := range c.Objects(ctx, next) {
			objections = append(objections, fleet.Objection{Line: line, Of: []string{line}})
		}
	}
	if err := c.overcome(objections); err != nil {
		return err
	}
	return c.Program.ShowDifference(away, func(b *bytes.Buffer, s term.Style) {
		const mostChanges = 50
		versions.WriteGroups(b, s, versions.GroupByVersion(steps), mostChanges)
	})
}

// reached is the function reached for this change. It reports which regions answer.
func (c *Change) reached() ([]string, error) {
	away, err := report.Reached(c.Engine.Results(), c.Partial, report.OtherRegions)
	if err != nil {
		err = c.Report(err, nil)
	}
	return away, err
}

// stale refuses a region that does not run what --if-version says. A region that already
// has the document is fine.
func (c *Change) stale(r *regionChange) error {
	if r.region.Outcome == rollout.Untouched && !c.Means(r.step.From.Version()) {
		return term.Conflict("nothing was changed: %s runs %s, not %s", r.target.Name, term.OrDash(r.step.From.Version()), strings.Join(c.Of, " or "))
	}
	if c.IfVersion == "" || r.region.Outcome != rollout.Untouched {
		return nil
	}
	has := cmp.Or(r.step.From.Version(), versions.NoVersion)
	if strings.HasPrefix(has, c.IfVersion) {
		return nil
	}
	return term.Conflict("nothing was changed: %s runs %s, not %s from --if-version; see regionctl %s history, update the document, and %s again",
		r.target.Name, has, c.IfVersion, r.target.Kind.Name, r.target.Kind.Put)
}

// aimFor determines what a region is to have.
func (c *Change) aimFor(ctx context.Context, r *regionChange, now fleet.Current) {
	s := &r.step
	*s = versions.Step{From: now, Next: c.Doc}
	if c.AimAt != nil {
		s.Wrong = c.AimAt(ctx, r.target, s)
	}
	if c.Lasts == 0 || s.Wrong != nil {
		return
	}
	if now.Damage != nil {
		s.Wrong = term.Failed("nothing was changed: %s: %w; no valid document would follow after --for, so leave that out", r.target.Name, now.Damage)
		return
	}
	s.After = ", for " + term.Duration(c.Lasts) + ", and then " + Follows(now.Returns())
}

// With returns the regions with one of these outcomes.
func (c *Change) With(outcomes ...rollout.Outcome) []*regionChange {
	return fleet.Filter(c.regions, func(r *regionChange) bool { return slices.Contains(outcomes, r.region.Outcome) })
}

// mayTry returns the regions with one of these outcomes whose sites may be on trial.
func (c *Change) mayTry(outcomes ...rollout.Outcome) []*fleet.Target {
	return fleet.Filter(TargetsOf(c.With(outcomes...)), func(t *fleet.Target) bool { return t.Kind.Canaries })
}

func TargetsOf(regions []*regionChange) []*fleet.Target {
	return fleet.Map(regions, func(r *regionChange) *fleet.Target { return r.target })
}

func (c *Change) region(name string) *regionChange {
	return c.regions[slices.IndexFunc(c.regions, func(r *regionChange) bool { return r.target.Name == name })]
}

// pointer returns what a region is pointed at.
func (c *Change) pointer(r *regionChange) consul.Pointer {
	p := r.step.Next.Pointer(c.By, c.at)
	p.ApartUntil = c.apart
	if c.Lasts > 0 {
		p.ExpiresAt, p.Successor = c.expires(), r.step.From.Returns()
	}
	if r.step.Ends {
		p.ExpiresAt = &c.at
	}
	return p
}

// expires returns when a temporary document expires, or nil if this one is not temporary.
func (c *Change) expires() *time.Time {
	if c.Lasts == 0 {
		return nil
	}
	at := c.at.Add(c.Lasts)
	return &at
}
