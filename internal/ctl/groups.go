package ctl

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// step takes a region from what it has to what it is to have.
type step struct {
	from fleet.Current
	next *fleet.Document
	// ends: next was active temporarily, and the edges' configuration follows it.
	ends  bool
	after string // what follows next, if it is temporary
	wrong error  // why there is no next
}

// done reports whether nothing is left to do, unless the document is to be temporary.
func (s *step) done(now fleet.Current) bool {
	return !s.ends && now.Version() == s.next.Version() && now.Until() == nil
}

// diffGroup is the regions with the same active version.
type diffGroup struct {
	Regions []string        `json:"regions"`
	Running *consul.Pointer `json:"running"`
	// Same says that the version equals the document's, to the last byte.
	Same bool `json:"same"`
	// Difference is missing if they are the same, or if Unreadable says why it is unknown.
	Difference kinds.Changes `json:"difference,omitempty"`
	Unreadable string        `json:"unreadable,omitempty"`

	at   time.Time // the moment, by the region's clock
	step *step     // of the first of them
}

// groupByVersion leaves out regions that did not answer.
func groupByVersion(answers []fleet.Answer[*step]) []diffGroup {
	groups := []diffGroup{}
	place := map[string]int{}
	for _, a := range answers {
		if a.Err != nil {
			continue
		}
		s := a.Value
		version := s.from.Version()
		id := fmt.Sprint(version, s.from.Until(), s.next.Version(), s.ends, s.after)
		if s.from.Damage != nil {
			id = "broken " + a.Target.Name
		}
		if i, known := place[id]; known {
			groups[i].Regions = append(groups[i].Regions, a.Target.Name)
			continue
		}
		place[id] = len(groups)
		g := diffGroup{Regions: []string{a.Target.Name}, Running: s.from.Pointer, Same: version == s.next.Version() && s.from.Damage == nil && !s.ends, at: s.from.At, step: s}
		switch {
		case s.from.Damage != nil:
			g.Unreadable = s.from.Damage.Error()
		case s.ends || g.Same:
		case s.from.State != fleet.Active:
			g.Difference = s.next.Body.(kinds.Comparer).Compare(nil)
		default:
			g.Difference = s.next.Body.(kinds.Comparer).Compare(s.from.Document.Body)
		}
		groups = append(groups, g)
	}
	return groups
}

// runs describes what is active in the regions of a group.
func (g *diffGroup) runs(s term.Style) string {
	where, verb := s.Bold(strings.Join(g.Regions, ", ")), "runs"
	if len(g.Regions) > 1 {
		verb = "run"
	}
	now, p := g.at, g.Running
	switch {
	case p == nil && g.Unreadable == "":
		return fmt.Sprintf("%s: no %s published yet", where, g.step.next.Kind.What)
	case p == nil:
		return fmt.Sprintf("%s: what %s cannot be read", where, verb)
	case p.Expired(now) && p.Then == nil:
		return fmt.Sprintf("%s: no %s active since %s of %s ended, %s", where, g.step.next.Kind.What, p.Version, term.Printable(p.AppliedBy), report.Until(p))
	case p.Expired(now):
		return fmt.Sprintf("%s %s %s again since %s of %s ended, %s", where, verb, p.Then.Version, p.Version, term.Printable(p.AppliedBy), report.Until(p))
	case p.ExpiresAt != nil:
		return fmt.Sprintf("%s %s %s (%s, %s, until %s)", where, verb, p.Version, term.Printable(p.AppliedBy), term.Stamp(p.AppliedAt), report.Until(p))
	}
	return fmt.Sprintf("%s %s %s (%s, %s)", where, verb, p.Version, term.Printable(p.AppliedBy), term.Stamp(p.AppliedAt))
}

// label identifies a document.
func label(d *fleet.Document) string {
	switch {
	case d.Name == "":
		return "back to " + d.Version()
	case d.Made:
		return d.Name + " makes it " + d.Version()
	}
	return d.Name + " is " + d.Version()
}

// writeGroups shows at most that many changes of a group; 0 shows all.
func writeGroups(b *bytes.Buffer, s term.Style, groups []diffGroup, most int) {
	for i := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		g := &groups[i]
		text := label(g.step.next)
		if g.step.ends {
			text = "back to the configuration of its edges"
		}
		fmt.Fprintf(b, "%s; %s%s\n", g.runs(s), term.Printable(text), g.step.after)
		switch {
		case g.step.ends:
		case g.Unreadable != "":
			fmt.Fprintf(b, "  %s: %s\n", s.Yellow("not comparable"), term.Indented(term.Clean(g.Unreadable)))
		case g.Same:
			b.WriteString("  no difference\n")
		default:
			g.Difference.Write(b, s, most)
		}
	}
}
