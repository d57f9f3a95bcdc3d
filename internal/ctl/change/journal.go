package change

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// journal records in each region of a canary or of waves how far it is. It is renewed while
// regionctl runs, so a record that nobody renews is one of a regionctl that was killed.
type journal struct {
	c       *Change
	targets []*fleet.Target
	record  consul.Rollout
	earlier rollout.Records // the records that it replaces
	staged  bool            // a canary or waves

	stop  context.CancelFunc
	ended chan struct{}
}

// openJournal begins to record. A region in which that fails gets a warning: the change
// itself does not need its journal. Where each region gets a document of its own, as with
// settings of the shedder, there is none: the command says what is to change, not a file. An
// error means that someone else began a rollout since begins looked.
func (c *Change) openJournal(ctx context.Context, canary string, waves [][]string) (*journal, error) {
	if c.Doc == nil || c.Doc.Kind.Temporary {
		return nil, nil
	}
	regions := c.With(rollout.Untouched, rollout.AlreadyThere)
	now := c.Program.Now().UTC().Round(0)
	pointer := c.Doc.Pointer(c.By, now)
	j := &journal{c: c, targets: TargetsOf(regions), ended: make(chan struct{}), staged: c.Staging.Staged() || c.resumes != nil, record: consul.Rollout{
		Named: consul.Named{Version: pointer.Version, SHA256: pointer.SHA256}, By: c.By, Message: c.Message, BeganAt: now, Undoes: c.Undoes, Flags: c.Given(), Forced: c.overridden,
		Canary: canary, Waves: waves, Before: map[string]consul.Named{},
	}}
	for _, r := range regions {
		if has := r.step.From.Active; has != nil {
			j.record.Before[r.target.Name] = *has
		}
	}
	j.earlier = rollout.RecordsIn(ctx, j.targets)
	if err := j.takeOver(); err != nil {
		return nil, err
	}
	// The first region decides between two rollouts that begin at the same time.
	for _, some := range [][]*fleet.Target{j.targets[:1], j.targets[1:]} {
		for _, a := range fleet.Ask(ctx, some, func(ctx context.Context, t *fleet.Target) (bool, error) {
			return j.claim(ctx, t)
		}) {
			var not *denied
			switch {
			case errors.As(a.Err, &not):
				j.drop(context.WithoutCancel(ctx), true)
				return nil, not
			case a.Err != nil:
				c.Program.Warn("%s: the rollout is not recorded there: %v", a.Target.Name, a.Err)
			case !a.Value && !j.staged:
				c.Program.Warn("%s: the change is not recorded there: others change the record", a.Target.Name)
			case !a.Value:
				j.drop(context.WithoutCancel(ctx), true)
				return nil, unfinished.Overtook(a.Target.Name, a.Target.Kind)
			}
		}
	}
	c.journal = j
	ctx, j.stop = context.WithCancel(context.WithoutCancel(ctx))
	if !j.staged { // what it writes, it writes at once
		j.stop()
	}
	go j.renew(ctx)
	return j, nil
}

// claim writes the record to a region in which nothing has changed since it was decided to begin.
// A change of all regions at once, which may be an emergency, does not wait for others.
func (j *journal) claim(ctx context.Context, t *fleet.Target) (done bool, err error) {
	if j.staged {
		return t.Docs.SetRollout(ctx, j.seen(t), j.c.looked[t.Name].Index)
	}
	for range 3 {
		now, index, err := t.Docs.Rollout(ctx)
		if err != nil && index == 0 {
			return false, err
		}
		if now != nil {
			if err := j.c.mayHalt(now); err != nil {
				return false, err
			}
		}
		if done, err = t.Docs.SetRollout(ctx, j.seen(t), index); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// takeOver checks that the records are those that were seen when it was decided to begin, and
// learns from earlier runs of this rollout what the regions had.
func (j *journal) takeOver() error {
	for _, name := range slices.Sorted(maps.Keys(j.earlier)) {
		now := j.earlier[name]
		if j.staged && now.Index != j.c.looked[name].Index {
			return unfinished.Overtook(name, j.c.Doc.Kind)
		}
		if now.Rollout != nil && now.Version == j.record.Version {
			j.inherit(now.Rollout)
		}
	}
	return nil
}

// seen is the record, renewed now by the clock of a region's Consul.
func (j *journal) seen(t *fleet.Target) consul.Rollout {
	record := j.record
	record.SeenAt = t.Consul.Now().UTC().Round(0)
	return record
}

// write renews the record where it is still this rollout's own.
func (j *journal) write(ctx context.Context) {
	fleet.Ask(ctx, j.targets, func(ctx context.Context, t *fleet.Target) (bool, error) {
		now, index, err := t.Docs.Rollout(ctx)
		if now == nil || !now.SameRollout(&j.record) { // another one, or a later change ended it
			return false, err
		}
		return t.Docs.SetRollout(ctx, j.seen(t), index)
	})
}

// own checks that no one else has replaced or resumed the rollout, while this process was
// suspended or cut off. A missing record does not say so: it may never have been written.
func (j *journal) own(ctx context.Context) error {
	if j == nil {
		return nil
	}
	records := rollout.RecordsIn(ctx, j.targets)
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if r := records[name].Rollout; r != nil && !r.SameRollout(&j.record) {
			return term.Conflict("%s: %s took this rollout over at %s, with %s; see regionctl %s rollout", name, term.Printable(r.By), term.Stamp(r.BeganAt), r.Version, j.c.Doc.Kind.Name)
		}
	}
	return nil
}

// drop ends the record. If back, rollouts of other versions that it replaced are unfinished again.
func (j *journal) drop(ctx context.Context, back bool) {
	fleet.Ask(ctx, j.targets, func(ctx context.Context, t *fleet.Target) (bool, error) {
		now, index, err := t.Docs.Rollout(ctx)
		if now == nil || !now.SameRollout(&j.record) {
			return false, err
		}
		if r := j.earlier[t.Name].Rollout; back && r != nil && r.Version != j.record.Version {
			return t.Docs.SetRollout(ctx, *r, index)
		}
		return t.Docs.EndRollout(ctx, index)
	})
}

func (j *journal) renew(ctx context.Context) {
	defer close(j.ended)
	tick := time.NewTicker(consul.RenewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		j.write(ctx) // the next renewal is the answer to a failure
	}
}

// close ends the record of what is finished, and keeps that of what can be resumed.
func (j *journal) close(ctx context.Context, err error) {
	if j == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	j.stop()
	<-j.ended
	status := term.ExitStatus(err)
	if err != nil && (j.divides() || j.staged && (status == term.StatusInterrupted || status == term.StatusPartial)) {
		j.record.Halted = term.Clip(firstLine(err), 500)
		j.write(ctx)
		return
	}
	j.drop(ctx, err != nil)
}

// divides reports whether a region has the version, or may have it, that had another before.
func (j *journal) divides() bool {
	return slices.ContainsFunc(j.c.With(rollout.Applied, rollout.AlreadyThere, rollout.Unknown), func(r *regionChange) bool {
		return j.record.Before[r.target.Name].Version != j.record.Version
	})
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
