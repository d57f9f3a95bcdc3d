package change

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// begins refuses to begin a canary or waves while a regionctl runs another rollout, or while one
// of another version has left the regions divided. The record of the earlier rollout is what knows
// the way back.
func (c *Change) begins(ctx context.Context, targets []*fleet.Target) error {
	k := targets[0].Kind
	if k.Temporary || c.resumes != nil { // resume has looked
		return nil
	}
	all, err := c.Program.Targets(k, nil)
	if err != nil {
		return err
	}
	for {
		c.looked = rollout.RecordsIn(ctx, targets)
		for _, r := range c.looked.Rollouts() { // they may be of different regions
			if r.AtOnce() && c.Program.Now().Sub(r.SeenAt) < consul.StaleAfter {
				continue // it may still hold the lock, and is waited for
			}
			u, _, err := unfinished.Left(ctx, c.Program, all, c.looked.Of(r))
			if err != nil {
				return err
			}
			if u != nil && u.Version != c.Doc.Version() && (len(u.Changed()) > 0 || len(u.Regions(unfinished.RegionUnknown)) > 0) {
				return term.Conflict("nothing was changed: %s\ncontinue: %s\ngo back:  %s", u.Leftover(), u.Resume, u.Back)
			}
		}
		if maps.EqualFunc(c.looked, rollout.RecordsIn(ctx, targets), func(a, b rollout.Record) bool { return a.Index == b.Index }) {
			return nil
		} // its regionctl ended while this looked
	}
}

// denied is an error of mayHalt.
type denied struct{ error }

func (d *denied) Unwrap() error { return d.error }

// mayHalt refuses to halt rollouts of others that run, where the caller may not change all of their
// regions. A change of all regions at once is waited for, not halted.
func (c *Change) mayHalt(running ...*consul.Rollout) error {
	if c.Program.MayHalt == nil {
		return nil
	}
	for _, r := range running {
		if r.Halted != "" || r.AtOnce() || c.journal != nil && r.SameRollout(&c.journal.record) || c.Program.Now().Sub(r.SeenAt) > consul.StaleAfter {
			continue
		}
		if err := c.Program.MayHalt(slices.Concat(r.Waves...)); err != nil {
			return &denied{fmt.Errorf("nothing was changed: this would halt the rollout of %s, which %s runs: %w", r.Version, term.Printable(r.By), err)}
		}
	}
	return nil
}

// overrides warns of an unfinished rollout that a change of all regions at once ends, or partly
// undoes. It does not stop that: it may be an emergency.
func (c *Change) overrides(ctx context.Context, targets []*fleet.Target) {
	if len(c.recorded) == 0 || c.Undoes || c.resumes != nil {
		return
	}
	all, err := c.Program.Targets(targets[0].Kind, nil)
	if err != nil {
		return
	}
	u, _ := unfinished.Find(ctx, c.Program, all, nil)
	if u == nil || u.State != unfinished.Runs && len(u.Changed()) == 0 {
		return
	}
	what, agrees := "overrides it", c.Doc != nil && c.Doc.Version() == u.Version
	switch {
	case u.Record.AtOnce() && agrees: // whichever comes first, both have the same end
		return
	case u.Record.AtOnce() && u.State == unfinished.Runs:
		what = "waits for it, or overrides it if its regionctl is gone"
	case agrees:
		what = "applies the same version at once"
	}
	if u.State == unfinished.Runs && !u.Record.AtOnce() {
		what += ", and halts its regionctl, which still runs"
	}
	c.Program.Warn("%s; this change %s", u.Leftover(), what)
}

// inherit takes from an earlier record of the same document what regions had that have it from
// there.
func (j *journal) inherit(earlier *consul.Rollout) {
	for _, name := range slices.Concat(earlier.Waves...) {
		had, known := earlier.Before[name]
		if j.record.Before[name].Version != earlier.Version || had.Version == earlier.Version {
			continue
		}
		if delete(j.record.Before, name); known {
			j.record.Before[name] = had
		}
	}
}
