package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const rollbackHelp = `Puts a version in force again that was in force before: the one that the present one
replaced, or that of --to. It is applied like any other document, in the same steps and
with the same exit status, and the history says "rollback to VERSION".

Rolling back twice therefore returns to where you began. To go further back, name the
version: regionctl rules history lists them.

If the regions would go back to different versions, nothing is changed, and --to or
--region must say what is meant.`

func (p *program) rollbackCommand() *cobra.Command {
	var names []string
	var by, to string
	c := &change{p: p}
	cmd := command("rollback", "put the version before in force again", rollbackHelp,
		`  regionctl rules rollback
  regionctl rules rollback --to 3f2a0c1b9d4e --yes
  regionctl rules rollback --region us-east`,
		func(ctx context.Context, _ []string) error {
			if err := c.checkFlags(by); err != nil {
				return err
			}
			return c.rollback(ctx, names, to)
		})
	p.regionFlag(cmd, &names)
	c.flags(cmd, &by)
	cmd.Flags().StringVar(&to, "to", "", "the `VERSION` to go back to (default: the one before)")
	_ = cmd.RegisterFlagCompletionFunc("to", p.completeVersions(&names)) // the flag is known
	return cmd
}

func (c *change) rollback(ctx context.Context, names []string, to string) error {
	targets, closeAll, err := c.p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, c.p, targets, recall)
	if away, err := failures(answers); err != nil && (!c.partial || len(away) == len(targets)) {
		return failed("nothing was changed, because %s cannot be reached:\n%w", strings.Join(away, ", "), err)
	}
	p, err := rollbackTarget(answers, to)
	if err != nil {
		return misused("%w; nothing was changed", err)
	}
	if c.doc, err = c.p.fetch(ctx, answers, *p); err != nil {
		return failed("nothing was changed: %w", err)
	}
	c.message = "rollback to " + c.doc.version()
	return c.run(ctx, targets, nil)
}

// rollbackTarget is the version to go back to, which must be one.
func rollbackTarget(answers []answer[memory], to string) (*region.Pointer, error) {
	if to != "" {
		return find(known(answers), to)
	}
	var lines []string
	var chosen *region.Pointer
	divided := false
	for i := range answers {
		a := &answers[i]
		if a.err != nil {
			continue
		}
		p, err := a.value.before()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.target.name, err)
		}
		lines = append(lines, fmt.Sprintf("%s to %s", a.target.name, p.Version))
		divided = divided || chosen != nil && chosen.Version != p.Version
		chosen = p
	}
	if divided {
		return nil, fmt.Errorf("the regions would go back to different versions: %s; choose one with --to, or regions with --region", strings.Join(lines, ", "))
	}
	return chosen, nil
}

func known(answers []answer[memory]) []region.Pointer {
	var all []region.Pointer
	for i := range answers {
		all = append(all, answers[i].value.known()...)
	}
	return all
}

// before is what was in force before the present version. The change that made it
// present knows; clocks of different people cannot put the history out of order.
func (m *memory) before() (*region.Pointer, error) {
	if m.pointer == nil {
		return nil, errors.New("no rules are in force; name a version with --to")
	}
	replaced := ""
	for _, c := range m.changes {
		if m.isCurrent(c) {
			replaced = c.Replaced
		}
	}
	for _, c := range m.changes {
		if c.Version == replaced || replaced == "" && c.Version != m.pointer.Version {
			return &c.Pointer, nil
		}
	}
	return nil, fmt.Errorf("the history knows no version before %s; name one with --to", m.pointer.Version)
}

// fetch loads a version from the first region that has it.
func (p *program) fetch(ctx context.Context, answers []answer[memory], pointer region.Pointer) (*document, error) {
	data, _, err := p.load(ctx, answers, pointer)
	if err != nil {
		return nil, err
	}
	d, err := parseDocument("", data)
	if err != nil {
		return nil, fmt.Errorf("version %s: this regionctl would refuse it:\n%w", pointer.Version, err)
	}
	return d, nil
}

func (p *program) load(ctx context.Context, answers []answer[memory], pointer region.Pointer) ([]byte, *target, error) {
	var errs []error
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		brief, cancel := p.bounded(ctx)
		data, err := a.target.rules.Load(brief, pointer)
		cancel()
		if err == nil {
			return data, a.target, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a.target.name, err))
	}
	return nil, nil, errors.Join(errs...)
}
