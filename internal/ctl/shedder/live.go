package shedder

import (
	"bytes"
	"fmt"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/status"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

func (s *Standing) write(b *bytes.Buffer, st term.Style) {
	candidates := false
	for i := range s.Regions {
		if i > 0 {
			b.WriteByte('\n')
		}
		candidates = s.writeRegion(b, st, &s.Regions[i]) || candidates
	}
	if candidates {
		fmt.Fprintf(b, "\n%s\n", shedding.ShadowBias)
	}
}

// writeRegion reports whether there are candidates.
func (s *Standing) writeRegion(b *bytes.Buffer, st term.Style, v *fleet.RegionView) (candidates bool) {
	g := versions.Group{Regions: []string{v.Region}, Running: map[string]*consul.Pointer{v.Region: v.Pointer}, Unreadable: v.Error, At: v.At, Step: &versions.Step{Next: &fleet.Document{Kind: kinds.Shedder}}}
	fmt.Fprintf(b, "%s, converged: %s\n", g.Runs(st), st.Verdict(v.Converged))
	if v.Error != "" {
		fmt.Fprintf(b, "  %s\n", term.Indented(term.Clean(v.Error)))
	}
	if len(v.Nodes) == 0 {
		if v.Error == "" {
			b.WriteString("  no edge is registered, or this token may not see them\n")
		}
		return false
	}
	t := term.Table{Indent: "  "}
	t.Row("EDGE", "POP", "RUNS", "SINCE", "SOURCE", "UPSTREAM", "LEVEL", "UTILIZATION", "SIGNAL", map[bool]string{false: "SHED", true: "SHED, 1H"}[s.Hour != nil])
	shadows := term.Table{Indent: "  "}
	shadows.Row("EDGE", "UPSTREAM", "CANDIDATE", "LEVEL", "UTILIZATION", "SIGNAL", "WOULD HAVE SHED")
	var notes []string
	var silent fleet.Reasons
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.Source == adminapi.SourceAdmin {
			notes = append(notes, term.Printable(n.ID)+" runs settings that were set on the node itself")
		}
		notes = append(notes, status.Complaints(n, &silent)...)
		since := "-"
		if !n.Since.IsZero() {
			since = term.Ago(s.At, n.Since)
		}
		version := st.Green(term.OrDash(n.Version))
		if !n.Converged {
			version = st.Red(term.OrDash(n.Version))
		}
		row := []string{term.Printable(n.ID), term.OrDash(n.PoP), version, since, term.OrDash(n.Source)}
		if len(n.Shedders) == 0 {
			t.Row(append(row, "-", "-", "-", "-", "-")...)
		}
		for j := range n.Shedders {
			u := &n.Shedders[j]
			t.Row(append(row, term.Printable(u.Name), level(n, u, st), fmt.Sprintf("%.2f", u.Utilization), signal(u, u.Winner), s.shed(v.Region, n.ID, u))...)
			row = []string{"", "", "", "", ""}
			for _, c := range u.Candidates {
				candidates = true
				shadows.Row(term.Printable(n.ID), term.Printable(u.Name), term.Printable(c.Name), fmt.Sprintf("%.2f", c.Level), fmt.Sprintf("%.2f", c.Utilization),
					signal(u, c.Winner), byClass(u, func(class *shedder.ClassStatus) string { return fmt.Sprint(c.Shed[class.Name]) }))
			}
			for _, s := range u.Signals {
				if s.Problem != "" {
					notes = append(notes, fmt.Sprintf("%s, %s: signal %s is left out: %s", term.Printable(n.ID), term.Printable(u.Name), term.Printable(s.Name), term.Printable(s.Problem)))
				}
			}
		}
	}
	t.Print(b)
	if candidates {
		shadows.Print(b)
	}
	for _, note := range append(notes, silent.Lines(fleet.CouldNotAsk)...) {
		fmt.Fprintf(b, "    %s\n", note)
	}
	return candidates
}

// level describes how much is shed: off means that the kill switch is on, while the shedder
// keeps measuring.
func level(n *fleet.NodeView, u *shedding.UpstreamStatus, s term.Style) string {
	text := fmt.Sprintf("%.2f", u.Level)
	switch {
	case n.Off:
		return s.Yellow("off")
	case u.Level > 0:
		return s.Red(text)
	}
	return text
}

// signal formats a signal and its value, in seconds for times, or "-" if none counts.
func signal(u *shedding.UpstreamStatus, name string) string {
	for _, s := range u.Signals {
		switch {
		case s.Name != name:
		case name == shedder.SignalUpstreamWait, name == shedder.SignalSchedLatency:
			return name + " " + time.Duration(s.Value*float64(time.Second)).Round(10*time.Microsecond).String()
		default:
			return fmt.Sprintf("%s %.3g", term.Printable(name), s.Value)
		}
	}
	return term.OrDash(name)
}

// shed formats the counts by class since the edge started, or in the last hour.
func (s *Standing) shed(region, node string, u *shedding.UpstreamStatus) string {
	var last *UpstreamHour
	if s.Hour != nil {
		if last = s.Hour.Upstreams[idOf(region, node, u.Name)]; last == nil {
			return "-"
		}
	}
	return byClass(u, func(c *shedder.ClassStatus) string {
		n := ShedHour{float64(c.ShedByLevel), float64(c.ShedByCap)}
		if last != nil {
			n = last.Shed[c.Name]
		}
		if n.ByCap < 0.5 {
			return fmt.Sprintf("%.0f", n.ByLevel)
		}
		return fmt.Sprintf("%.0f (%.0f by cap)", n.ByLevel+n.ByCap, n.ByCap)
	})
}

func byClass(u *shedding.UpstreamStatus, of func(*shedder.ClassStatus) string) string {
	parts := make([]string, len(u.Classes))
	for i := range u.Classes {
		parts[i] = term.Printable(u.Classes[i].Name) + " " + of(&u.Classes[i])
	}
	return term.OrDashes(parts)
}
