package versions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// KeepVersions is the value of --keep-versions if not passed; no one can pass it.
	KeepVersions = math.MinInt
	// defaultKeep is how many versions are kept by default.
	defaultKeep = 200
)

const pruneHelp = `Removes old versions of documents from Consul, in all regions of the fleet file or in
those of --region. Each region keeps

  - the newest --keep-versions versions that became active there
  - what was stored later than the oldest of these, such as a change in progress
  - every version that any region of the fleet file still names: its active version, what
    follows a temporary one, its canaries, what undo would return to, and what a
    rollout that is not finished needs to be resumed or undone

The history is not pruned: it still says who changed what, though undo --to and show
no longer find the oldest versions. Keep the documents themselves under version control.

It shows how many versions it would remove, and asks (unless --yes). Unless every region
of the fleet file answers, nothing is removed anywhere. It holds the lock meanwhile, so it
waits for changes, and changes wait for it.

Every change prunes too, silently if there is nothing to do: its --keep-versions N
says how many to keep, or keep_versions in the fleet file, or 200; 0 does not prune. It does so at the end, and leaves it to the next change if a region does not
answer or is locked.`

// PruneCommand prunes the versions of one of these kinds.
func PruneCommand(p *command.Program, list ...*fleet.Kind) *cobra.Command {
	var names []string
	var by string
	var yes bool
	s := pruning{p: p, wait: p.LockWait}
	c := command.New("prune KIND", "remove old versions", pruneHelp, "  regionctl prune rules\n  regionctl prune shedder --keep-versions 50 --region eu-west\n  regionctl prune rules --yes -o json",
		func(ctx context.Context, args []string) (err error) {
			if s.kind, err = command.KindOf(list, args[0]); err != nil {
				return err
			}
			if s.keep < region.LeastVersions {
				return term.Misused("--keep-versions %d: must be at least %d", s.keep, region.LeastVersions)
			}
			if s.by, err = p.Whoami(by); err != nil {
				return err
			}
			if s.targets, err = p.TargetsToChange(ctx, s.kind, names, false); err != nil {
				return err
			}
			return s.run(ctx, yes)
		})
	p.RegionFlag(c, &names)
	f := c.Flags()
	f.IntVar(&s.keep, "keep-versions", defaultKeep, "keep the newest `N` versions, at least 10")
	command.YesFlag(f, &yes)
	command.ByFlag(f, &by)
	c.ValidArgs = command.KindNames(list)
	return c
}

// pruning removes old versions from some regions.
type pruning struct {
	p       *command.Program
	kind    *fleet.Kind
	keep    int
	by      string
	wait    time.Duration // for other changes
	targets []*fleet.Target
	all     []*fleet.Target // of the fleet file, whose needs count
}

// stock is what a region has stored.
type stock struct {
	all int
	old []consul.Stored // those that nothing needs
}

// PrunedRegion is what prune prints about a region with -o json.
type PrunedRegion struct {
	Region  string `json:"region"`
	Removed int    `json:"removed"`
	Kept    int    `json:"kept"`
}

// plan finds the versions that nothing needs. An error means that this is unknown.
func (s *pruning) plan(ctx context.Context) (map[*fleet.Target]stock, error) {
	if s.all == nil {
		var err error
		if s.all, err = s.p.Targets(s.kind, nil); err != nil {
			return nil, err
		}
	}
	needs := fleet.Ask(ctx, s.all, needed)
	if _, err := fleet.Failures(needs); err != nil {
		return nil, err
	}
	// Unbounded, because the first time may find many; each query is bounded.
	stocks := fleet.AskUnbounded(ctx, s.targets, func(ctx context.Context, t *fleet.Target) (stock, error) {
		there, err := t.Docs.Versions(ctx, "")
		if err != nil || len(there) <= s.keep {
			return stock{all: len(there)}, err
		}
		newest, before, err := t.Docs.Newest(ctx, s.keep)
		if err != nil || before == 0 {
			return stock{all: len(there)}, err
		}
		for _, need := range needs {
			for _, v := range need.Value {
				newest[v] = true
			}
		}
		old, err := t.Docs.StoredBefore(ctx, fleet.Filter(there, func(v string) bool { return !newest[v] }), before)
		return stock{len(there), old}, err
	})
	if _, err := fleet.Failures(stocks); err != nil {
		return nil, err
	}
	found := map[*fleet.Target]stock{}
	for _, a := range stocks {
		found[a.Target] = a.Value
	}
	return found, nil
}

// needed returns the versions that a region names now, once its temporary version has
// expired, or after a rollback.
func needed(ctx context.Context, t *fleet.Target) ([]string, error) {
	m, err := ReadBefore(ctx, t)
	if err == nil {
		err = m.Wrong
	}
	if err != nil {
		return nil, err
	}
	var named []string
	for _, p := range m.known() {
		named = append(named, p.Version)
	}
	if before, ok := m.Replaced(); ok {
		named = append(named, before)
	}
	if m.Pointer != nil && m.Pointer.Successor != nil {
		if m, err = readAfter(ctx, t); err != nil {
			return nil, err
		}
		if before, ok := m.after().Replaced(); ok {
			named = append(named, before)
		}
	}
	canaries, wrong, err := t.Docs.Canaries(ctx)
	for _, p := range canaries {
		named = append(named, p.Version)
	}
	if record, index, err := t.Docs.Rollout(ctx); record != nil {
		named = append(named, record.Version)
		for _, before := range record.Before {
			named = append(named, before.Version)
		}
	} else if err != nil && index == 0 { // one that cannot be read names nothing
		return nil, err
	}
	return named, errors.Join(append(wrong, err)...)
}

func (s *pruning) run(ctx context.Context, yes bool) error {
	plan, err := s.plan(ctx)
	if err != nil {
		return term.Failed("nothing was removed, because the versions that are still needed are unknown:\n%w", err)
	}
	removable := 0
	var list []PrunedRegion
	for _, t := range s.targets {
		old, all := len(plan[t].old), plan[t].all
		removable += old
		list = append(list, PrunedRegion{t.Name, 0, all})
		s.p.Say("%s: %d of %s can be removed", t.Name, old, term.Plural(all, "version"))
	}
	if removable > 0 {
		if err := s.p.Confirm(ctx, yes, "Remove %s?", term.Plural(removable, "version")); err != nil {
			return err
		}
		removed, err := s.remove(ctx)
		for i := range list {
			n := removed[list[i].Region]
			list[i].Removed, list[i].Kept = n, list[i].Kept-n
		}
		if err != nil {
			return err
		}
	}
	return s.p.Show(list, func(b *bytes.Buffer, _ term.Style) {
		t := term.Table{}
		t.Row("REGION", "REMOVED", "KEPT")
		for _, r := range list {
			t.Row(r.Region, strconv.Itoa(r.Removed), strconv.Itoa(r.Kept))
		}
		t.Print(b)
	})
}

// remove removes what nothing needs, which it determines under the lock.
func (s *pruning) remove(ctx context.Context) (removed map[string]int, err error) {
	type prunedRegion = rollout.Region[struct{}]
	c := rollout.Change[struct{}]{Subject: rollout.Subject[struct{}]{Name: s.kind.Name}, By: s.by, Timeout: s.p.Timeout, LockWait: s.wait, Report: &report.Locks{Program: s.p, What: s.kind.Name}}
	targets, counts := map[*prunedRegion]*fleet.Target{}, map[*prunedRegion]*int{}
	for _, t := range s.targets {
		r := rollout.NewRegion[struct{}](t.Name, t.Consul)
		c.Regions = append(c.Regions, r)
		targets[r], counts[r] = t, new(int)
	}
	var plan map[*fleet.Target]stock
	err = c.Under(ctx, c.Regions, func(ctx context.Context) (err error) {
		plan, err = s.plan(ctx)
		return err
	}, func(r *prunedRegion, fenced func(func(consul.Fence) error) error) error {
		for some := range slices.Chunk(plan[targets[r]].old, consul.MostRemoved) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := fenced(func(f consul.Fence) error {
				return targets[r].Docs.Remove(ctx, some, f)
			}); err != nil {
				return fmt.Errorf("%s: %w; run regionctl prune %s again", r.Name, err, s.kind.Name)
			}
			*counts[r] += len(some)
		}
		return nil
	})
	removed = map[string]int{}
	for r, n := range counts {
		removed[r.Name] = *n
	}
	var stop *rollout.Stop
	if errors.As(err, &stop) {
		err = report.Stopped(stop, s.kind.Name, nil)
	}
	return removed, err
}

// PruneAfter prunes after a change by someone. Whatever fails is left to the next change.
func PruneAfter(ctx context.Context, p *command.Program, targets []*fleet.Target, keep int, by string) {
	s := pruning{p: p, kind: targets[0].Kind, keep: keep, by: by, targets: targets}
	if s.keep == KeepVersions {
		file, err := p.Fleet()
		if s.keep = defaultKeep; err == nil && file.KeepVersions != nil {
			s.keep = *file.KeepVersions
		}
	}
	if s.keep == 0 {
		return
	}
	over := slices.ContainsFunc(fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (bool, error) {
		there, err := t.Docs.Versions(ctx, "")
		return len(there) > s.keep, err
	}), func(a fleet.Answer[bool]) bool { return a.Value })
	if !over {
		return
	}
	removed, err := s.remove(ctx)
	n := 0
	for _, of := range removed {
		n += of
	}
	if n > 0 {
		p.Say("pruned %s beyond the newest %d of each region", term.Plural(n, "old version"), s.keep)
	}
	if err != nil {
		p.Say("old versions were not pruned; the next change will prune them: %v", err)
	}
}
