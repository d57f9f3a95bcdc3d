package ctl

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// journal records in each region of a canary or of waves how far it is. It is renewed while
// regionctl runs, so a record that nobody renews is one of a regionctl that was killed.
type journal struct {
	c       *change
	targets []*fleet.Target
	record  consul.Rollout

	stop  context.CancelFunc
	ended chan struct{}
}

// resumable are the flags of apply that a resumed rollout needs again.
var resumable = append([]string{"canary", "waves", "soak", "region", "partial", "wait", "keep-versions", "if-version"}, canaryFlags[:]...)

// givenOf returns those that were passed.
func givenOf(f *pflag.FlagSet) (list []string) {
	for _, name := range resumable {
		if flag := f.Lookup(name); flag != nil && flag.Changed {
			list = append(list, "--"+name+"="+strings.Trim(flag.Value.String(), "[]"))
		}
	}
	return list
}

// openJournal begins to record. A region in which that fails gets a warning: the rollout
// itself does not need its journal. Where each region gets a document of its own, as with
// settings of the shedder, there is none: the command says what is to change, not a file.
func (c *change) openJournal(ctx context.Context, canary string, waves [][]string) *journal {
	if c.doc == nil || !c.doc.Kind.Canaries {
		return nil
	}
	regions := c.with(rollout.Untouched, rollout.AlreadyThere)
	now := c.p.now().UTC().Round(0)
	pointer := c.doc.Pointer(c.by, now)
	j := &journal{c: c, targets: targetsOf(regions), ended: make(chan struct{}), record: consul.Rollout{
		Named: consul.Named{Version: pointer.Version, SHA256: pointer.SHA256}, By: c.by, Message: c.message, BeganAt: now, Flags: c.given,
		Canary: canary, Waves: waves, Before: map[string]consul.Named{},
	}}
	for _, r := range regions {
		if has := r.step.from.Active; has != nil {
			j.record.Before[r.target.Name] = *has
		}
	}
	earlier := fleet.Ask(ctx, j.targets, func(ctx context.Context, t *fleet.Target) (*consul.Rollout, error) {
		r, _, err := t.Docs.Rollout(ctx)
		return r, err
	})
	for _, a := range earlier {
		if a.Value == nil || a.Value.Version != j.record.Version {
			continue
		}
		for _, region := range slices.Concat(a.Value.Waves...) {
			if j.record.Before[region].Version != j.record.Version {
				continue // no earlier run has changed it
			}
			if had, known := a.Value.Before[region]; known {
				j.record.Before[region] = had
			} else {
				delete(j.record.Before, region)
			}
		}
	}
	for _, a := range j.write(ctx, true) {
		if a.Err != nil {
			c.p.Warn("%s: the rollout is not recorded there: %v", a.Target.Name, a.Err)
		}
	}
	ctx, j.stop = context.WithCancel(context.WithoutCancel(ctx))
	go j.renew(ctx)
	return j
}

// write writes the record where it is still this rollout's own.
func (j *journal) write(ctx context.Context, first bool) []fleet.Answer[bool] {
	return fleet.Ask(ctx, j.targets, func(ctx context.Context, t *fleet.Target) (bool, error) {
		now, index, err := t.Docs.Rollout(ctx)
		switch {
		case err != nil && index == 0:
			return false, err
		case !first && (now == nil || !now.Same(&j.record)): // another one, or a later change ended it
			return false, nil
		}
		record := j.record // renewed now, by the clock of this region's Consul
		record.SeenAt = t.Consul.Now().UTC().Round(0)
		return t.Docs.SetRollout(ctx, record, index)
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
		j.write(ctx, false) // the next renewal is the answer to a failure
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
	if status := term.ExitStatus(err); err != nil && (status == term.StatusInterrupted || status == term.StatusPartial || j.divides()) {
		j.record.Halted = term.Clip(firstLine(err), 500)
		j.write(ctx, false)
		return
	}
	j.c.p.forget(ctx, j.targets, func(r *consul.Rollout) bool { return r.Same(&j.record) })
}

// divides reports whether a region has the version, or may have it, that had another before.
func (j *journal) divides() bool {
	return slices.ContainsFunc(j.c.with(rollout.Applied, rollout.AlreadyThere, rollout.Unknown), func(r *regionChange) bool {
		return j.record.Before[r.target.Name].Version != j.record.Version
	})
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// recorded are the regions that hold the record of a rollout. One that does not answer is not
// among them: readers compare its record with what the regions run.
func (p *program) recorded(ctx context.Context, targets []*fleet.Target) (list []*fleet.Target) {
	if !targets[0].Kind.Canaries {
		return nil
	}
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (bool, error) {
		_, index, err := t.Docs.Rollout(ctx)
		return index != 0, err
	}) {
		if a.Value {
			list = append(list, a.Target)
		}
	}
	return list
}

// forget deletes the records of rollouts. A region that does not answer keeps its own, which
// readers compare with what the regions run.
func (p *program) forget(ctx context.Context, targets []*fleet.Target, is func(*consul.Rollout) bool) {
	fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (bool, error) {
		r, index, err := t.Docs.Rollout(ctx)
		if err != nil || r == nil || !is(r) {
			return false, err
		}
		return t.Docs.EndRollout(ctx, index)
	})
}
