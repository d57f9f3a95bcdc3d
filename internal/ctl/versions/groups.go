package versions

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

// Step takes a region from what it has to what it is to have.
type Step struct {
	From fleet.Current
	Next *fleet.Document
	// Ends: next was active temporarily, and the edges' configuration follows it.
	Ends  bool
	After string // what follows next, if it is temporary
	Wrong error  // why there is no next
}

// Done reports whether nothing is left to do, unless the document is to be temporary.
func (s *Step) Done(now fleet.Current) bool {
	return !s.Ends && now.Version() == s.Next.Version() && now.Until() == nil
}

// Group is the regions with the same active version.
type Group struct {
	Regions []string `json:"regions"`
	// Running are the pointers of the regions that have one: the same version may be of several changes.
	Running map[string]*consul.Pointer `json:"running"`
	// Identical says that the version equals the document's, to the last byte.
	Identical bool `json:"same"`
	// Difference is missing if they are the same, or if Unreadable says why it is unknown.
	Difference kinds.Changes `json:"difference,omitempty"`
	Unreadable string        `json:"unreadable,omitempty"`

	At   time.Time `json:"-"` // the moment, by the region's clock
	Step *Step     `json:"-"` // of the first of them
}

// GroupByVersion leaves out regions that did not answer.
func GroupByVersion(answers []fleet.Answer[*Step]) []Group {
	groups := []Group{}
	index := map[string]int{}
	for _, a := range answers {
		if a.Err != nil {
			continue
		}
		s := a.Value
		version := s.From.Version()
		id := fmt.Sprint(Alike(a.Target.Name, &s.From), s.Next.Version(), s.Ends, s.After)
		if i, known := index[id]; known {
			groups[i].add(a.Target.Name, s.From.Pointer)
			continue
		}
		index[id] = len(groups)
		g := Group{Running: map[string]*consul.Pointer{}, Identical: version == s.Next.Version() && s.From.Damage == nil && !s.Ends, At: s.From.At, Step: s}
		g.add(a.Target.Name, s.From.Pointer)
		switch {
		case s.From.Damage != nil:
			g.Unreadable = s.From.Damage.Error()
		case s.Ends || g.Identical:
		case s.From.State != fleet.Active:
			g.Difference = s.Next.Body.(kinds.Comparer).Compare(nil)
		default:
			g.Difference = s.Next.Body.(kinds.Comparer).Compare(s.From.Document.Body)
		}
		groups = append(groups, g)
	}
	return groups
}

// Alike identifies what is active in a region. Whoever made it so, regions in which it is equal can be
// shown together.
func Alike(region string, s *fleet.Current) string {
	switch p := s.Pointer; {
	case s.Damage != nil:
		return "broken " + region
	case p != nil && p.Expired(s.At):
		return fmt.Sprint(s.Version(), p.Version, p.AppliedBy, p.ExpiresAt)
	}
	return fmt.Sprint(s.Version(), s.State, s.Until())
}

func (g *Group) add(region string, p *consul.Pointer) {
	if g.Regions = append(g.Regions, region); p != nil {
		g.Running[region] = p
	}
}

// applied says who applied the version, and when, in each region if that differs.
func (g *Group) applied() string {
	var different []string
	where := map[string][]string{}
	for _, region := range g.Regions {
		p := g.Running[region]
		text := fmt.Sprintf("%s, %s", term.Printable(p.AppliedBy), term.Stamp(p.AppliedAt))
		if where[text] == nil {
			different = append(different, text)
		}
		where[text] = append(where[text], region)
	}
	if len(different) > 1 {
		for i, text := range different {
			different[i] = strings.Join(where[text], ", ") + ": " + text
		}
	}
	return strings.Join(different, "; ")
}

// Runs describes what is active in the regions of a group.
func (g *Group) Runs(s term.Style) string {
	where, verb := s.Bold(strings.Join(g.Regions, ", ")), "runs"
	if len(g.Regions) > 1 {
		verb = "run"
	}
	now, p := g.At, g.Running[g.Regions[0]]
	switch {
	case p == nil && g.Unreadable == "":
		return fmt.Sprintf("%s: no %s published yet", where, g.Step.Next.Kind.What)
	case p == nil:
		return fmt.Sprintf("%s: what %s cannot be read", where, verb)
	case p.Expired(now) && p.Successor == nil:
		return fmt.Sprintf("%s: no %s active since %s of %s ended, %s", where, g.Step.Next.Kind.What, p.Version, term.Printable(p.AppliedBy), report.Until(p))
	case p.Expired(now):
		return fmt.Sprintf("%s %s %s again since %s of %s ended, %s", where, verb, p.Successor.Version, p.Version, term.Printable(p.AppliedBy), report.Until(p))
	case p.ExpiresAt != nil:
		return fmt.Sprintf("%s %s %s (%s, until %s)", where, verb, p.Version, g.applied(), report.Until(p))
	}
	return fmt.Sprintf("%s %s %s (%s)", where, verb, p.Version, g.applied())
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

// WriteGroups shows at most that many changes of a group; 0 shows all.
func WriteGroups(b *bytes.Buffer, s term.Style, groups []Group, most int) {
	for i := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		g := &groups[i]
		text := label(g.Step.Next)
		if g.Step.Ends {
			text = "back to the configuration of its edges"
		}
		fmt.Fprintf(b, "%s; %s%s\n", g.Runs(s), term.Printable(text), g.Step.After)
		switch {
		case g.Step.Ends:
		case g.Unreadable != "":
			fmt.Fprintf(b, "  %s: %s\n", s.Yellow("not comparable"), term.Indented(term.Clean(g.Unreadable)))
		case g.Identical:
			b.WriteString("  no difference\n")
		default:
			g.Difference.Write(b, s, most)
		}
	}
}
