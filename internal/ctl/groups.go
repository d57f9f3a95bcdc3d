package ctl

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// aim is what a region has in force, and what it shall have.
type aim struct {
	*published
	next *document
	// ends: next was in force for a time, and what follows is what the configuration of
	// the edges says.
	ends  bool
	after string // what follows next, if it is for a time
	wrong error  // why there is no next
}

// already reports whether there is nothing to do, unless it is to last only a time.
func (a *aim) already() bool {
	return !a.ends && a.version() == a.next.version() && a.until() == nil
}

// diffGroup is the regions that have the same version in force.
type diffGroup struct {
	Regions []string        `json:"regions"`
	Running *region.Pointer `json:"running"`
	// Same says that the version is that of the document, to the last byte.
	Same bool `json:"same"`
	// Difference is missing if they are the same, or if Unreadable says why it is
	// not known.
	Difference changes `json:"difference,omitempty"`
	Unreadable string  `json:"unreadable,omitempty"`

	aim *aim // of the first of them
}

// groupByVersion leaves out regions that did not answer.
func groupByVersion(answers []answer[*aim]) []diffGroup {
	groups := []diffGroup{}
	place := map[string]int{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		s := a.value
		id := fmt.Sprint(s.version(), s.until(), s.next.version(), s.ends, s.after)
		if s.broken != nil {
			id = "broken " + a.target.name
		}
		if i, known := place[id]; known {
			groups[i].Regions = append(groups[i].Regions, a.target.name)
			continue
		}
		place[id] = len(groups)
		g := diffGroup{Regions: []string{a.target.name}, Running: s.pointer, Same: s.version() == s.next.version() && s.broken == nil && !s.ends, aim: s}
		switch {
		case s.broken != nil:
			g.Unreadable = s.broken.Error()
		case s.ends || g.Same:
		case s.running == nil:
			g.Difference = s.next.compare(nil)
		default:
			g.Difference = s.next.compare(s.running.body)
		}
		groups = append(groups, g)
	}
	return groups
}

// runs says what the regions of a group have in force.
func (g *diffGroup) runs(s style) string {
	where, verb := s.bold(strings.Join(g.Regions, ", ")), "runs"
	if len(g.Regions) > 1 {
		verb = "run"
	}
	now, p := time.Now(), g.Running
	switch {
	case p == nil && g.Unreadable == "":
		return fmt.Sprintf("%s: no %s published yet", where, g.aim.next.kind.what)
	case p == nil:
		return fmt.Sprintf("%s: what %s cannot be read", where, verb)
	case p.Expired(now) && p.Then == nil:
		return fmt.Sprintf("%s: no %s in force since %s of %s ended, %s", where, g.aim.next.kind.what, p.Version, printable(p.AppliedBy), until(p))
	case p.Expired(now):
		return fmt.Sprintf("%s %s %s again since %s of %s ended, %s", where, verb, p.Then.Version, p.Version, printable(p.AppliedBy), until(p))
	case p.ExpiresAt != nil:
		return fmt.Sprintf("%s %s %s (%s, %s, until %s)", where, verb, p.Version, printable(p.AppliedBy), stamp(p.AppliedAt), until(p))
	}
	return fmt.Sprintf("%s %s %s (%s, %s)", where, verb, p.Version, printable(p.AppliedBy), stamp(p.AppliedAt))
}

// writeGroups shows at most so many changes of a group; 0 is all.
func writeGroups(b *bytes.Buffer, s style, groups []diffGroup, most int) {
	for i := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		g := &groups[i]
		label := g.aim.next.label()
		if g.aim.ends {
			label = "back to what the configuration of its edges says"
		}
		fmt.Fprintf(b, "%s; %s%s\n", g.runs(s), printable(label), g.aim.after)
		switch {
		case g.aim.ends:
		case g.Unreadable != "":
			fmt.Fprintf(b, "  %s: %s\n", s.yellow("not comparable"), indented(clean(g.Unreadable)))
		case g.Same:
			b.WriteString("  no difference\n")
		default:
			g.Difference.write(b, s, most)
		}
	}
}

func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

// when is a moment and how long ago that was.
func when(now, t time.Time) string { return fmt.Sprintf("%s (%s ago)", stamp(t), ago(now, t)) }
