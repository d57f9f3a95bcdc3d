package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

const rollbackExamples = `  regionctl rules rollback
  regionctl rules rollback --to 3f2a0c1b9d4e --yes
  regionctl rules rollback --region us-east`

func (p *program) rollbackCommand(k *kind, help, examples string) *cobra.Command {
	var names []string
	var by, to string
	c := &change{p: p}
	cmd := command("rollback", "put the version before in force again", help, examples,
		func(ctx context.Context, _ []string) error {
			if err := c.checkFlags(by); err != nil {
				return err
			}
			return c.rollback(ctx, k, names, to)
		})
	p.regionFlag(cmd, &names)
	c.flags(cmd, &by)
	cmd.Flags().StringVar(&to, "to", "", "the `VERSION` to go back to (default: the one before)")
	_ = cmd.RegisterFlagCompletionFunc("to", p.completeVersions(k, &names)) // the flag is known
	return cmd
}

func (c *change) rollback(ctx context.Context, k *kind, names []string, to string) error {
	targets, closeAll, err := c.p.targetsOf(k, names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, c.p, targets, recall)
	if away, err := failures(answers); err != nil && (!c.partial || len(away) == len(targets)) {
		return failed("nothing was changed, because %s cannot be reached:\n%w\nrepair that, choose other regions with --region, or go on without with --partial",
			strings.Join(away, ", "), err)
	}
	temporary, err := temporaries(answers)
	switch {
	case to != "" || temporary == "":
	case err != nil:
		return misused("%w; nothing was changed", err)
	default:
		c.aimAt, c.message = endIt, "end of "+temporary
		return c.run(ctx, targets, nil)
	}
	p, err := c.p.rollbackTarget(ctx, k, answers, to)
	if err != nil {
		return misused("%w; nothing was changed", err)
	}
	if c.doc, err = c.p.fetch(ctx, answers, *p); err != nil {
		return failed("nothing was changed: %w", err)
	}
	c.message = "rollback to " + c.doc.version()
	return c.run(ctx, targets, nil)
}

// temporaries are the versions that are in force for a time. The error says that they
// are not everywhere, so that going back would mean different things.
func temporaries(answers []answer[memory]) (string, error) {
	var versions, with, without []string
	for _, a := range answers {
		switch p := a.value.pointer; {
		case a.err != nil:
		case p != nil && p.ExpiresAt != nil && !p.Expired(time.Now()):
			versions, with = append(versions, p.Version), append(with, a.target.name)
		default:
			without = append(without, a.target.name)
		}
	}
	if len(with) > 0 && len(without) > 0 {
		return versions[0], fmt.Errorf("%s has something in force for a time, %s has not; choose regions with --region", strings.Join(with, ", "), strings.Join(without, ", "))
	}
	return strings.Join(distinct(versions), " and "), nil
}

// endIt ends what a region has in force for a time.
func endIt(ctx context.Context, t *target, a *aim) (err error) {
	switch {
	case a.until() == nil && a.pointer != nil && a.pointer.ExpiresAt != nil:
		return conflict("nothing was changed: %s: %s has ended by itself meanwhile", t.name, a.pointer.Version)
	case a.until() == nil:
		return conflict("nothing was changed: %s: %s", t.name, t.kind.whoMoved(a.pointer))
	case a.pointer.Then != nil:
		a.next, err = t.load(ctx, *a.pointer.Then)
	case a.broken != nil:
		err = a.broken
	default:
		a.next, a.ends = a.running, true
	}
	if err != nil {
		return failed("nothing was changed: %s: %w; wait until it ends by itself, %s, or name a version with --to", t.name, err, until(a.pointer))
	}
	return nil
}

// rollbackTarget is the version to go back to, which must be one.
func (p *program) rollbackTarget(ctx context.Context, k *kind, answers []answer[memory], to string) (*region.Pointer, error) {
	if to != "" {
		return p.recollect(ctx, k, answers, to)
	}
	var lines []string
	chosen, divided := "", false
	for i := range answers {
		a := &answers[i]
		if a.err != nil {
			continue
		}
		before, err := a.value.before()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.target.name, err)
		}
		lines = append(lines, fmt.Sprintf("%s to %s", a.target.name, before))
		divided = divided || chosen != "" && chosen != before
		chosen = before
	}
	if divided {
		return nil, fmt.Errorf("the regions would go back to different versions: %s; choose one with --to, or regions with --region", strings.Join(lines, ", "))
	}
	return p.recollect(ctx, k, answers, chosen)
}

// recollect returns the one version that begins with these digits: one of the history,
// or one that is stored though the history does not know it.
func (p *program) recollect(ctx context.Context, k *kind, answers []answer[memory], digits string) (*region.Pointer, error) {
	found, err := k.find(known(answers), digits)
	if err == nil {
		return found, nil
	}
	var targets []*target
	for _, a := range answers {
		if a.err == nil {
			targets = append(targets, a.target)
		}
	}
	for _, a := range ask(ctx, p, targets, func(ctx context.Context, t *target) (*region.Pointer, error) {
		versions, err := t.docs.Versions(ctx)
		if err != nil {
			return nil, err
		}
		stored := make([]region.Pointer, len(versions))
		for i, v := range versions {
			stored[i].Version = v
		}
		named, err := k.find(stored, digits)
		if err != nil {
			return nil, nil // another region may have it
		}
		return t.stored(ctx, named.Version)
	}) {
		switch {
		case a.err != nil:
			return nil, fmt.Errorf("%w; %s: %w", err, a.target.name, a.err)
		case a.value == nil:
		case found != nil && found.Version != a.value.Version:
			return nil, fmt.Errorf("version %q: several begin so, %s and %s; give more digits", digits, found.Version, a.value.Version)
		default:
			found = a.value
		}
	}
	if found == nil {
		return nil, err
	}
	return found, nil
}

// stored names a version that no pointer names: what is stored says what its SHA-256 is.
func (t *target) stored(ctx context.Context, version string) (p *region.Pointer, err error) {
	key := t.consul.Key(t.kind.name, "versions", version)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = fmt.Errorf("%s: no answer", key)
	t.consul.Watch(ctx, key, func(failure error) {
		if failure != nil {
			err = failure
			cancel()
		}
	}, func(e *region.Entry) {
		cancel() // one look is enough
		var data []byte
		if e == nil {
			err = fmt.Errorf("%s: %w", key, region.ErrMissing)
			return
		}
		if data, err = region.Decode(e.Value); err != nil {
			return
		}
		named := region.NewPointer(data, "", time.Time{})
		if named.Version != version {
			err = fmt.Errorf("%s: %w; delete the key and apply the document again", key, region.ErrCorrupt)
			return
		}
		named.AppliedAt = time.Unix(0, 0).UTC() // it is not known, and a pointer must have one
		p = &named
	})
	return p, err
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
func (m *memory) before() (string, error) {
	if m.version() == "" {
		return "", fmt.Errorf("no %s are in force; name a version with --to", m.kind.what)
	}
	if version, ok := m.replaced(); ok {
		return version, nil
	}
	return "", fmt.Errorf("the history knows no version before %s; name one with --to", m.version())
}

// replaced is what the version in force replaced; if that was not recorded, or was for
// a time only, the newest version that is another.
func (m *memory) replaced() (string, bool) {
	for _, c := range m.changes {
		if m.isCurrent(c) && c.Replaced != "" && c.Replaced != c.Version && !m.hadForATime(c.Replaced) {
			return c.Replaced, true
		}
	}
	for _, c := range m.changes {
		if c.ExpiresAt == nil && c.Version != m.version() {
			return c.Version, true
		}
	}
	return "", false
}

// hadForATime reports whether a version was in force for a time.
func (m *memory) hadForATime(version string) bool {
	return slices.ContainsFunc(m.changes, func(c region.Change) bool { return c.Version == version && c.ExpiresAt != nil })
}

// fetch loads a version from the first region that has it.
func (p *program) fetch(ctx context.Context, answers []answer[memory], pointer region.Pointer) (*document, error) {
	data, from, err := p.load(ctx, answers, pointer)
	if err != nil {
		return nil, err
	}
	d, err := parseDocument(from.kind, "", data)
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
		data, err := a.target.docs.Load(brief, pointer)
		cancel()
		if err == nil {
			return data, a.target, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a.target.name, err))
	}
	return nil, nil, errors.Join(errs...)
}
