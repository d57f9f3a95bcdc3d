package ctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const historyHelp = `Shows who put which version in force, when, instead of which, and why; the newest
first. A change of several regions at once is one line. * marks what is in force now.

The versions stay in Consul, so any of them can be looked at with regionctl rules show
and brought back with regionctl rules rollback --to VERSION.`

const historyExamples = `  regionctl rules history
  regionctl rules history --region eu-west -n 0
  regionctl rules history -o json | jq -r '.[] | select(.applied_by == "ana") | .version'`

func (p *program) historyCommand(k *kind, help, examples string) *cobra.Command {
	var names []string
	var most int
	c := command("history", "show who changed what, when and why", help, examples,
		func(ctx context.Context, _ []string) error { return p.history(ctx, k, names, most) })
	p.regionFlag(c, &names)
	c.Flags().IntVarP(&most, "lines", "n", 20, "how many changes to show; 0 shows all")
	return c
}

// past is one change, in all regions that it was made in.
type past struct {
	region.Change
	Regions []string `json:"regions"`
	// Current are those of the regions in which it is in force.
	Current []string `json:"current"`
}

// memory is what a region remembers.
type memory struct {
	kind    *kind
	pointer *region.Pointer
	changes []region.Change
	wrong   error // part of the history cannot be read
}

func recall(ctx context.Context, t *target) (memory, error) {
	s, err := lookAtPointer(ctx, t)
	if err != nil {
		return memory{}, err
	}
	changes, wrong, err := t.docs.History(ctx)
	if err != nil {
		return memory{}, err
	}
	return memory{t.kind, s.pointer, changes, errors.Join(append(wrong, s.broken)...)}, nil
}

// wrote reports whether a change is the one that wrote a pointer.
func wrote(c region.Change, p *region.Pointer) bool {
	return c.Version == p.Version && c.AppliedAt.Equal(p.AppliedAt)
}

// isCurrent reports whether a change is the one that made what is in force. When
// something temporary has ended, that is what lasted before.
func (m *memory) isCurrent(c region.Change) bool {
	switch {
	case m.pointer == nil:
		return false
	case !m.pointer.Expired(time.Now()):
		return wrote(c, m.pointer)
	}
	return m.pointer.Then != nil && c.ExpiresAt == nil && c.Version == m.pointer.Then.Version
}

// version is the one in force, "" if none is.
func (m *memory) version() string {
	if m.pointer != nil {
		if n := m.pointer.InForce(time.Now()); n != nil {
			return n.Version
		}
	}
	return ""
}

// merge joins the histories of regions, the newest change first.
func merge(answers []answer[memory]) []past {
	merged := []past{}
	for _, a := range answers {
		current := slices.IndexFunc(a.value.changes, a.value.isCurrent)
		for n, c := range a.value.changes {
			i := slices.IndexFunc(merged, func(m past) bool {
				return m.Version == c.Version && m.AppliedAt.Equal(c.AppliedAt) && m.AppliedBy == c.AppliedBy && m.Replaced == c.Replaced
			})
			if i < 0 {
				i = len(merged)
				merged = append(merged, past{Change: c, Regions: []string{}, Current: []string{}})
			}
			merged[i].Regions = append(merged[i].Regions, a.target.name)
			if n == current {
				merged[i].Current = append(merged[i].Current, a.target.name)
			}
		}
	}
	slices.SortStableFunc(merged, func(a, b past) int {
		return cmp.Or(b.AppliedAt.Compare(a.AppliedAt), cmp.Compare(a.Version, b.Version))
	})
	return merged
}

func (p *program) history(ctx context.Context, k *kind, names []string, most int) error {
	targets, closeAll, err := p.targetsOf(k, names)
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
	if err := p.show(list, func(b *bytes.Buffer, s style) { k.writeHistory(b, s, list, hidden, len(targets)) }); err != nil {
		return err
	}
	return unanswered(answers)
}

func (k *kind) writeHistory(b *bytes.Buffer, s style, list []past, hidden, regions int) {
	if len(list) == 0 {
		b.WriteString("no changes yet\n")
		return
	}
	t := table{}
	row := func(mark, at, by, version, replaced, until, where, message string) {
		cells := []string{mark, at, by, version, replaced, until, where, message}
		if !k.temporary {
			cells = slices.Delete(cells, 5, 6)
		}
		t.row(cells...)
	}
	row("", "WHEN", "BY", "VERSION", "REPLACED", "UNTIL", "REGIONS", "MESSAGE")
	for _, c := range list {
		mark, where := " ", strings.Join(c.Regions, ", ")
		if len(c.Current) > 0 {
			mark = s.green("*")
		}
		if len(c.Regions) == regions && regions > 1 {
			where = "all"
		}
		ends := "-"
		if c.ExpiresAt != nil {
			ends = until(&c.Pointer)
		}
		row(mark, stamp(c.AppliedAt), printable(c.AppliedBy), c.Version, orDash(c.Replaced), ends, where, printable(c.Message))
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
		if then := m.pointer.Then; then != nil {
			list = append(list, region.Pointer{Version: then.Version, SHA256: then.SHA256, AppliedAt: m.pointer.AppliedAt})
		}
	}
	for _, c := range m.changes {
		list = append(list, c.Pointer)
	}
	return list
}

// find returns the one version that begins with these digits.
func (k *kind) find(pointers []region.Pointer, digits string) (*region.Pointer, error) {
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
		return nil, fmt.Errorf("version %q: unknown; regionctl %s history lists them", digits, k.name)
	}
	return found, nil
}
