package ctl

import (
	"bytes"
	"fmt"
	"time"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/shedder"
)

func (s *fleetStatus) writeLive(b *bytes.Buffer, st style) {
	candidates := false
	for i := range s.Regions {
		if i > 0 {
			b.WriteByte('\n')
		}
		candidates = s.Regions[i].writeLive(b, st, s.At) || candidates
	}
	if candidates {
		fmt.Fprintf(b, "\n%s\n", shedding.ShadowBias)
	}
}

// writeLive returns whether there are candidates.
func (v *regionView) writeLive(b *bytes.Buffer, st style, now time.Time) (candidates bool) {
	g := diffGroup{Regions: []string{v.Region}, Running: v.Pointer, Unreadable: v.Error, aim: &aim{next: &document{kind: shedderKind}}}
	fmt.Fprintf(b, "%s, converged: %s\n", g.runs(st), st.verdict(v.Converged))
	if v.Error != "" {
		fmt.Fprintf(b, "  %s\n", indented(clean(v.Error)))
	}
	if len(v.Nodes) == 0 {
		if v.Error == "" {
			b.WriteString("  no edge is registered, or this token may not see them\n")
		}
		return false
	}
	t := table{indent: "  "}
	t.row("EDGE", "POP", "RUNS", "SINCE", "SOURCE", "UPSTREAM", "LEVEL", "UTILIZATION", "SIGNAL", "SHED")
	shadows := table{indent: "  "}
	shadows.row("EDGE", "UPSTREAM", "CANDIDATE", "LEVEL", "UTILIZATION", "SIGNAL", "WOULD HAVE SHED")
	var notes []string
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.Source == "admin" {
			notes = append(notes, printable(n.ID)+" runs settings that were set on the node itself")
		}
		notes = append(notes, n.complaints()...)
		since := "-"
		if !n.Since.IsZero() {
			since = ago(now, n.Since)
		}
		version := st.green(orDash(n.Version))
		if !n.Converged {
			version = st.red(orDash(n.Version))
		}
		row := []string{printable(n.ID), orDash(n.PoP), version, since, orDash(n.Source)}
		if len(n.Shedders) == 0 {
			t.row(append(row, "-", "-", "-", "-", "-")...)
		}
		for j := range n.Shedders {
			u := &n.Shedders[j]
			t.row(append(row, printable(u.Name), n.level(u, st), fmt.Sprintf("%.2f", u.Utilization), signal(u, u.Winner), shed(u))...)
			row = []string{"", "", "", "", ""}
			for _, c := range u.Candidates {
				candidates = true
				shadows.row(printable(n.ID), printable(u.Name), printable(c.Name), fmt.Sprintf("%.2f", c.Level), fmt.Sprintf("%.2f", c.Utilization),
					signal(u, c.Winner), byClass(u, func(class *shedding.ClassStatus) string { return fmt.Sprint(c.Shed[class.Name]) }))
			}
			for _, s := range u.Signals {
				if s.Problem != "" {
					notes = append(notes, fmt.Sprintf("%s, %s: signal %s is left out: %s", printable(n.ID), printable(u.Name), printable(s.Name), printable(s.Problem)))
				}
			}
		}
	}
	t.write(b)
	if candidates {
		shadows.write(b)
	}
	for _, note := range notes {
		fmt.Fprintf(b, "    %s\n", note)
	}
	return candidates
}

// level is how much is shed: off stands for the kill switch, behind which the shedder
// goes on measuring.
func (n *nodeView) level(u *shedding.UpstreamStatus, s style) string {
	text := fmt.Sprintf("%.2f", u.Level)
	switch {
	case n.Off:
		return s.yellow("off")
	case u.Level > 0:
		return s.red(text)
	}
	return text
}

// signal is one with its value, which times have in seconds, "-" if none counts.
func signal(u *shedding.UpstreamStatus, name string) string {
	for _, s := range u.Signals {
		switch {
		case s.Name != name:
		case name == shedder.SignalUpstreamWait, name == shedder.SignalSchedLatency:
			return name + " " + time.Duration(s.Value*float64(time.Second)).Round(10*time.Microsecond).String()
		default:
			return fmt.Sprintf("%s %.3g", printable(name), s.Value)
		}
	}
	return orDash(name)
}

// shed counts by class, since the edge started.
func shed(u *shedding.UpstreamStatus) string {
	return byClass(u, func(c *shedding.ClassStatus) string {
		if c.ShedByCap == 0 {
			return fmt.Sprint(c.ShedByLevel)
		}
		return fmt.Sprintf("%d (%d by cap)", c.ShedByLevel+c.ShedByCap, c.ShedByCap)
	})
}

func byClass(u *shedding.UpstreamStatus, of func(*shedding.ClassStatus) string) string {
	parts := make([]string, len(u.Classes))
	for i := range u.Classes {
		parts[i] = printable(u.Classes[i].Name) + " " + of(&u.Classes[i])
	}
	return orDashes(parts)
}
