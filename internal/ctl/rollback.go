package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
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

func rollbackCommand(p *command.Program, k *fleet.Kind, help, examples string) *cobra.Command {
	var names []string
	var by, to string
	c := &change{p: p}
	cmd := command.New("rollback", "apply an earlier version again", help, examples,
		func(ctx context.Context, _ []string) error {
			if to == "" {
				return term.Misused("--to VERSION is missing; regionctl %s history lists them, and regionctl undo %s takes back the last change", k.Name, k.Name)
			}
			if err := c.checkFlags(by); err != nil {
				return err
			}
			return c.rollback(ctx, k, names, to)
		})
	p.RegionFlag(cmd, &names)
	c.flags(cmd, &by)
	if k.AtEdges() {
		c.waitFlag(cmd)
	}
	cmd.Flags().StringVar(&to, "to", "", "the `VERSION` to go back to")
	_ = cmd.RegisterFlagCompletionFunc("to", p.CompleteVersions(k, &names)) // the flag is known
	return cmd
}

func (c *change) rollback(ctx context.Context, k *fleet.Kind, names []string, to string) error {
	targets, err := c.p.TargetsToChange(ctx, k, names, c.partial)
	if err != nil {
		return err
	}
	answers, err := c.histories(ctx, targets)
	if err != nil {
		return err
	}
	p, err := findVersion(ctx, c.p, k, answers, to)
	if errors.Is(err, consul.ErrCorrupt) {
		return term.Failed("nothing was changed: %w", err)
	}
	if err != nil {
		return term.Misused("%w; nothing was changed", err)
	}
	if c.doc, err = fetchVersion(ctx, c.p, answers, *p); err != nil {
		return term.Failed("nothing was changed: %w", err)
	}
	c.message = "rollback to " + c.doc.Version()
	return c.run(ctx, targets)
}

// temporaries returns what is active temporarily, and where. Regions that do not answer may
// have something, too.
func temporaries(answers []fleet.Answer[regionHistory]) (versions string, where []*fleet.Target) {
	var list []string
	for _, a := range answers {
		p := a.Value.pointer
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
func endIt(ctx context.Context, t *fleet.Target, s *step) (err error) {
	pointer := s.from.Pointer
	switch {
	case s.from.Until() == nil && pointer != nil && pointer.ExpiresAt != nil:
		return term.Conflict("nothing was changed: %s: %s has expired in the meantime", t.Name, pointer.Version)
	case s.from.Until() == nil:
		return term.Conflict("nothing was changed: %s: %s", t.Name, report.WhoMoved(t.Kind, pointer))
	case pointer.Then != nil:
		s.next, err = t.Load(ctx, *pointer.Then)
	case s.from.Damage != nil:
		err = s.from.Damage
	default:
		s.next, s.ends = s.from.Document, true
	}
	if err != nil {
		return term.Failed("nothing was changed: %s: %w; wait until it expires, %s, or apply a version with rollback --to", t.Name, err, report.Until(pointer))
	}
	return nil
}

// findVersion returns the one version that begins with these digits, among those that a
// pointer names or a region has stored.
func findVersion(ctx context.Context, p *command.Program, k *fleet.Kind, answers []fleet.Answer[regionHistory], digits string) (*consul.Pointer, error) {
	if len(digits) < 4 || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("version %q: must be 4 to 12 digits of a version, as regionctl %s history lists them", digits, k.Name)
	}
	var targets []*fleet.Target
	known := map[string]consul.Pointer{} // without a SHA-256, it is stored
	holders := map[string]*fleet.Target{}
	for i, a := range answers {
		if a.Err == nil {
			targets = append(targets, a.Target)
		}
		for _, p := range answers[i].Value.known() {
			if strings.HasPrefix(p.Version, digits) {
				known[p.Version] = p
			}
		}
	}
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		return t.Docs.Versions(ctx, digits)
	}) {
		if a.Err != nil {
			return nil, fmt.Errorf("version %q: %s: %w", digits, a.Target.Name, a.Err)
		}
		for _, version := range a.Value {
			holders[version] = a.Target
			if _, is := known[version]; !is {
				known[version] = consul.Pointer{}
			}
		}
	}
	found := slices.Sorted(maps.Keys(known))
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("version %q: no region has it; regionctl %s history lists past versions, of which the newest are kept (prune --help)", digits, k.Name)
	case len(found) > 1:
		return nil, fmt.Errorf("version %q: several versions begin with it, %s and %s; give more digits", digits, found[0], found[1])
	}
	pointer := known[found[0]]
	if pointer.SHA256 != "" {
		return &pointer, nil
	}
	stored, err := holders[found[0]].Stored(ctx, found[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", holders[found[0]].Name, err)
	}
	return stored, nil
}

// fetchVersion loads a version from the first region that has it.
func fetchVersion(ctx context.Context, p *command.Program, answers []fleet.Answer[regionHistory], pointer consul.Pointer) (*fleet.Document, error) {
	data, from, err := loadVersion(ctx, p, answers, pointer)
	if err != nil {
		return nil, err
	}
	d, err := fleet.ParseDocument(from.Kind, "", data)
	if err != nil {
		return nil, fmt.Errorf("version %s: this regionctl would refuse it:\n%w", pointer.Version, err)
	}
	return d, nil
}

func loadVersion(ctx context.Context, p *command.Program, answers []fleet.Answer[regionHistory], pointer consul.Pointer) ([]byte, *fleet.Target, error) {
	var errs []error
	for _, a := range answers {
		if a.Err != nil {
			continue
		}
		brief, cancel := a.Target.Bounded(ctx)
		data, err := a.Target.Docs.Load(brief, pointer)
		cancel()
		if err == nil {
			return data, a.Target, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a.Target.Name, err))
	}
	return nil, nil, errors.Join(errs...)
}
