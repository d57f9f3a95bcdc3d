package change

import (
	"cmp"
	"context"
	"fmt"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// resume makes the change that of the rollout that is not finished: its document and its
// flags, unless they were passed.
func (c *Change) resume(ctx context.Context, k *fleet.Kind) error {
	targets, err := c.Program.TargetsToChange(ctx, k, nil, c.Partial)
	if err != nil {
		return err
	}
	u, failures, err := unfinished.Left(ctx, c.Program, targets, nil)
	switch {
	case err != nil:
		return err
	case u == nil && failures != nil: // perhaps where nobody answered
		return term.Failed("nothing was changed: %w", failures)
	case u == nil:
		return term.Conflict("no rollout of the %s is unfinished; see %s", k.What, k.Look)
	}
	for _, flag := range u.Record.Flags {
		if err := c.Give(flag); err != nil {
			return err
		}
	}
	c.Message = cmp.Or(c.Message, u.Record.Message)
	c.resumes, c.looked = &u.Record, rollout.RecordsIn(ctx, targets)
	if err := u.Unmoved(ctx, targets); err != nil {
		return err
	}
	c.Program.Say("continues the rollout of %s, which %s began at %s%s", u.Version, term.Printable(u.By), term.Stamp(u.BeganAt), term.Reason(u.Message))
	if c.Doc, err = loadFrom(ctx, targets, u.Record.Named); err != nil {
		return err
	}
	c.Doc.Name = "the rollout's document"
	return nil
}

// loadFrom loads a version from the first region that has it.
func loadFrom(ctx context.Context, targets []*fleet.Target, named consul.Named) (*fleet.Document, error) {
	var err error
	for _, t := range targets {
		var d *fleet.Document
		brief, cancel := t.Bounded(ctx)
		d, err = t.Load(brief, named)
		cancel()
		if err == nil {
			return d, nil
		}
		err = fmt.Errorf("%s: %w", t.Name, err)
	}
	return nil, term.Failed("nothing was changed: %w", err)
}

// overtaken refuses a region that somebody else changed since the rollout began.
func (c *Change) overtaken(r *regionChange) error {
	if c.resumes == nil {
		return nil
	}
	had := c.resumes.Before[r.target.Name].Version
	if has := r.step.From.Version(); has != had && has != c.resumes.Version {
		return term.Conflict("nothing was changed: %s: %s", r.target.Name, report.WhoMoved(r.target.Kind, r.step.From.Pointer))
	}
	return nil
}
