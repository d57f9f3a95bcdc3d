package ctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/region"
)

const historyHelp = `Shows who put which version in force, when, instead of which, and why; the newest
first. A change of several regions at once is one line. * marks what is in force now.

The versions stay in Consul, so any of them can be looked at with regionctl rules show
and brought back with regionctl rules rollback --to VERSION.`

// past is one change, in all regions that it was made in.
type past struct {
	region.Change
	Regions []string `json:"regions"`
	// Current are those of the regions in which it is in force.
	Current []string `json:"current"`
}

// memory is what a region remembers.
type memory struct {
	pointer *region.Pointer
	changes []region.Change
	wrong   error // part of the history cannot be read
}

func recall(ctx context.Context, t *target) (memory, error) {
	s, err := lookAtPointer(ctx, t)
	if err != nil {
		return memory{}, err
	}
	changes, wrong, err := t.rules.History(ctx)
	if err != nil {
		return memory{}, err
	}
	return memory{s.pointer, changes, errors.Join(append(wrong, s.broken)...)}, nil
}

// isCurrent reports whether a change is the one that made what is in force.
func (m *memory) isCurrent(c region.Change) bool {
	return m.pointer != nil && c.Version == m.pointer.Version && c.AppliedAt.Equal(m.pointer.AppliedAt)
}

// merge joins the histories of regions, the newest change first.
func merge(answers []answer[memory]) []past {
	merged := []past{}
	for _, a := range answers {
		for _, c := range a.value.changes {
			i := slices.IndexFunc(merged, func(m past) bool {
				return m.Version == c.Version && m.AppliedAt.Equal(c.AppliedAt) && m.AppliedBy == c.AppliedBy && m.Replaced == c.Replaced
			})
			if i < 0 {
				i = len(merged)
				merged = append(merged, past{Change: c, Regions: []string{}, Current: []string{}})
			}
			merged[i].Regions = append(merged[i].Regions, a.target.name)
			if a.value.isCurrent(c) {
				merged[i].Current = append(merged[i].Current, a.target.name)
			}
		}
	}
	slices.SortStableFunc(merged, func(a, b past) int {
		return cmp.Or(b.AppliedAt.Compare(a.AppliedAt), cmp.Compare(a.Version, b.Version))
	})
	return merged
}

func (p *program) history(ctx context.Context, names []string, most int) error {
	targets, closeAll, err := p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, p, targets, recall)
	for _, a := range answers {
		if a.value.wrong != nil {
			p.warn("%s: %v", a.target.name, a.value.wrong)
		}
	}
	list := merge(answers)
	hidden := 0
	if most > 0 && len(list) > most {
		hidden = len(list) - most
		list = list[:most]
	}
	if err := p.show(list, func(b *bytes.Buffer, s style) { writeHistory(b, s, list, hidden, len(targets)) }); err != nil {
		return err
	}
	return unanswered(answers)
}

func writeHistory(b *bytes.Buffer, s style, list []past, hidden, regions int) {
	if len(list) == 0 {
		b.WriteString("no changes yet\n")
		return
	}
	t := table{}
	t.row("", "WHEN", "BY", "VERSION", "REPLACED", "REGIONS", "MESSAGE")
	for _, c := range list {
		mark, where := " ", strings.Join(c.Regions, ", ")
		if len(c.Current) > 0 {
			mark = s.green("*")
		}
		if len(c.Regions) == regions && regions > 1 {
			where = "all"
		}
		t.row(mark, stamp(c.AppliedAt), printable(c.AppliedBy), c.Version, orDash(c.Replaced), where, printable(c.Message))
	}
	t.write(b)
	if hidden > 0 {
		fmt.Fprintf(b, "… and %s before; -n 0 shows all\n", plural(hidden, "change"))
	}
}

// known are all pointers that a region can name: of the history, in force, on trial.
func (m *memory) known() []region.Pointer {
	var list []region.Pointer
	if m.pointer != nil {
		list = append(list, *m.pointer)
	}
	for _, c := range m.changes {
		list = append(list, c.Pointer)
	}
	return list
}

// find returns the one version that begins with these digits.
func find(pointers []region.Pointer, digits string) (*region.Pointer, error) {
	var found *region.Pointer
	for i := range pointers {
		p := &pointers[i]
		switch {
		case p.Version == digits:
			return p, nil
		case !strings.HasPrefix(p.Version, digits):
		case found != nil && found.Version != p.Version:
			return nil, fmt.Errorf("version %q: several begin so, %s and %s; give more digits", digits, found.Version, p.Version)
		case found == nil:
			found = p
		}
	}
	if found == nil || len(digits) < 4 {
		return nil, fmt.Errorf("version %q: unknown; regionctl rules history lists them", digits)
	}
	return found, nil
}
