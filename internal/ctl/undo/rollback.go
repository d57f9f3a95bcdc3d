package undo

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func toFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "to", "", "go back to this `VERSION` of KIND")
}

// RollbackFlags adds the flags of going back to a version.
func RollbackFlags(c *change.Change, f *pflag.FlagSet, to *string) {
	Flags(c, f)
	toFlag(f, to)
}

// Rollback applies an earlier version again.
func Rollback(ctx context.Context, c *change.Change, k *fleet.Kind, to string) (*change.Report, error) {
	err := c.CheckFlags(c.Program)
	if err == nil {
		err = rollback(ctx, c, k, to)
	}
	return c.Result, err
}

func rollback(ctx context.Context, c *change.Change, k *fleet.Kind, to string) error {
	targets, answers, err := c.Histories(ctx, k)
	if err != nil {
		return err
	}
	p, err := versions.FindVersion(ctx, k, answers, to)
	if errors.Is(err, consul.ErrCorrupt) {
		return term.Failed("nothing was changed: %w", err)
	}
	if err != nil {
		return term.Misused("%w; nothing was changed", err)
	}
	if c.Doc, err = versions.FetchVersion(ctx, answers, *p); err != nil {
		return term.Failed("nothing was changed: %w", err)
	}
	c.Message = cmp.Or(c.Message, "rollback to "+c.Doc.Version())
	return c.Run(ctx, targets)
}

// temporaries returns what is active temporarily, and where. Regions that do not answer may
// have something, too.
func temporaries(answers []fleet.Answer[versions.History]) (versions string, where []*fleet.Target) {
	var list []string
	for _, a := range answers {
		p := a.Value.Pointer
		here := a.Err == nil && p != nil && p.ExpiresAt != nil && !p.Expired(a.Target.Consul.Now())
		if here {
			list = append(list, p.Version)
		}
		if here || a.Err != nil {
			where = append(where, a.Target)
		}
	}
	return strings.Join(term.Distinct(list), " and "), where
}

// toConfiguration ends settings before which a region had none: its edges follow their configuration.
func toConfiguration(t *fleet.Target, s *versions.Step) error {
	switch {
	case s.From.State != fleet.Active:
		return term.Conflict("nothing was changed: %s: %s", t.Name, report.WhoMoved(t.Kind, s.From.Pointer))
	case s.From.Damage != nil:
		return term.Failed("nothing was changed: %s: %w; regionctl %s %s repairs it", t.Name, s.From.Damage, t.Kind.Name, t.Kind.Put)
	}
	s.Next, s.Ends = s.From.Document, true
	return nil
}

// endIt ends what a region has active temporarily.
func endIt(ctx context.Context, t *fleet.Target, s *versions.Step) (err error) {
	pointer := s.From.Pointer
	switch {
	case s.From.Until() == nil && pointer != nil && pointer.ExpiresAt != nil:
		return term.Conflict("nothing was changed: %s: %s has expired in the meantime", t.Name, pointer.Version)
	case s.From.Until() == nil:
		return term.Conflict("nothing was changed: %s: %s", t.Name, report.WhoMoved(t.Kind, pointer))
	case pointer.Successor != nil:
		s.Next, err = t.Load(ctx, *pointer.Successor)
	case s.From.Damage != nil:
		err = s.From.Damage
	default:
		s.Next, s.Ends = s.From.Document, true
	}
	if err != nil {
		return term.Failed("nothing was changed: %s: %w; wait until it expires, %s, or apply a version with undo --to", t.Name, err, report.Until(pointer))
	}
	return nil
}
