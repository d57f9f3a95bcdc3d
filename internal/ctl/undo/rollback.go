package undo

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const rollbackHelp = `Applies an earlier version again. It is applied like any other document, in the same steps and
with the same exit status, and the history says "rollback to VERSION". regionctl rules history
lists the versions, and prune --help says how many are kept.

To take back the last change, whatever it was, use regionctl undo.

A regionctl that died while it changed something holds a rollback up for 15 seconds at
most; see regionctl rules apply --help about locks.`

const rollbackExamples = `  regionctl rules rollback --to 3f2a0c1b9d4e
  regionctl rules rollback --to 3f2a --region us-east --yes`

func RollbackCommand(p *command.Program, k *fleet.Kind) *cobra.Command {
	var to string
	c := &change.Change{Program: p}
	cmd := command.New("rollback", "apply an earlier version again", k.Reworded(rollbackHelp), k.Reworded(rollbackExamples),
		func(ctx context.Context, _ []string) error {
			r, err := Rollback(ctx, c, k, to)
			return command.Show(p, r, err, (*change.Report).Write)
		})
	RollbackFlags(c, cmd.Flags(), k, &to)
	c.Completions(cmd, p)
	_ = cmd.RegisterFlagCompletionFunc("to", p.CompleteVersions(k, &c.Regions)) // the flag is known
	return cmd
}

// RollbackFlags adds the flags of a rollback.
func RollbackFlags(c *change.Change, f *pflag.FlagSet, k *fleet.Kind, to *string) {
	c.Flags(f)
	f.StringVar(to, "to", "", "the `VERSION` to go back to")
	if k.AtEdges() {
		c.EdgeFlags(f)
	}
}

// Rollback applies an earlier version again.
func Rollback(ctx context.Context, c *change.Change, k *fleet.Kind, to string) (*change.Report, error) {
	if to == "" {
		return nil, term.Misused("--to VERSION is missing; regionctl %s history lists them, and regionctl undo %s takes back the last change", k.Name, k.Name)
	}
	err := c.CheckFlags(c.Program)
	if err == nil {
		err = rollback(ctx, c, k, to)
	}
	return c.Result, err
}

func rollback(ctx context.Context, c *change.Change, k *fleet.Kind, to string) error {
	targets, err := c.Program.TargetsToChange(ctx, k, c.Regions, c.Partial)
	if err != nil {
		return err
	}
	answers, err := c.Histories(ctx, targets)
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
	c.Message = "rollback to " + c.Doc.Version()
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

// endIt ends what a region has active temporarily.
func endIt(ctx context.Context, t *fleet.Target, s *versions.Step) (err error) {
	pointer := s.From.Pointer
	switch {
	case s.From.Until() == nil && pointer != nil && pointer.ExpiresAt != nil:
		return term.Conflict("nothing was changed: %s: %s has expired in the meantime", t.Name, pointer.Version)
	case s.From.Until() == nil:
		return term.Conflict("nothing was changed: %s: %s", t.Name, report.WhoMoved(t.Kind, pointer))
	case pointer.Then != nil:
		s.Next, err = t.Load(ctx, *pointer.Then)
	case s.From.Damage != nil:
		err = s.From.Damage
	default:
		s.Next, s.Ends = s.From.Document, true
	}
	if err != nil {
		return term.Failed("nothing was changed: %s: %w; wait until it expires, %s, or apply a version with rollback --to", t.Name, err, report.Until(pointer))
	}
	return nil
}
