package overview

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// Write draws the screen.
func (v *Fleet) Write(b *bytes.Buffer, s term.Style) {
	fmt.Fprintf(b, "%s  %s\n\n", term.Stamp(v.At), v.describe(s))
	// A single table, so that the columns of all regions align.
	t := term.Table{}
	t.Row("REGION", "POP", "EDGE", "HEALTH", "RULES", "SHEDDER", "BUSY", "SHED", "REQ/S", "LIMITED", "REDIS")
	var notes []string
	var silent, failing fleet.Reasons
	if !v.Topology && v.Totals.Unknown < v.Totals.Regions {
		notes = append(notes, "no topology is published, so regionctl dns answers no one yet; publish one with regionctl topology apply FILE")
	}
	for _, r := range v.Regions {
		name := s.Bold(r.Region)
		if r.Error != "" {
			t.Row(name, "", "", s.Red("not known"))
			name = ""
			notes = append(notes, fmt.Sprintf("%s: %s", r.Region, term.Printable(r.Error)))
		} else if len(r.PoPs) == 0 {
			t.Row(name, "-", "-", s.Yellow("no edge"))
		}
		for i := range r.PoPs {
			p := &r.PoPs[i]
			t.Row(name, term.OrDash(p.PoP), "", p.health(s, v.Topology))
			name = ""
			if d := p.Drained; d != nil {
				notes = append(notes, fmt.Sprintf("%s is drained by %s since %s (%s): %s", term.Printable(p.PoP), term.Printable(d.Who), term.Stamp(d.Since), term.Ago(v.At, d.Since), term.Printable(d.Why)))
			}
			if v.Topology && !p.InTopology {
				notes = append(notes, fmt.Sprintf("%s is not in the topology, so DNS sends no clients there", term.OrDash(p.PoP)))
			}
			for j := range p.Nodes {
				n := &p.Nodes[j]
				t.Row(append([]string{"", ""}, n.cells(s)...)...)
				if n.Output != "" {
					failing.Add(n.ID, n.Output)
				}
				if n.Clock != nil && *n.Clock != 0 {
					notes = append(notes, fmt.Sprintf("the clock of %s is %s", term.Printable(n.ID), clockText(*n.Clock)))
				}
				if n.Error != "" {
					silent.Add(n.ID, n.Error)
				}
			}
		}
	}
	t.Print(b)
	notes = slices.Concat(notes, failing.Lines("the check of %s fails: %s"), silent.Lines(fleet.CouldNotAsk))
	if len(notes) > 0 {
		b.WriteByte('\n')
	}
	for _, note := range notes {
		fmt.Fprintln(b, note)
	}
}

// health says whether DNS sends clients there.
func (p *PopStatus) health(s term.Style, topology bool) string {
	switch {
	case p.Drained != nil:
		return s.Yellow("drained")
	case p.Passing == nil:
		return s.Yellow("not known")
	case p.serves() && *p.Passing == len(p.Nodes):
		return s.Green("serving")
	case p.serves():
		return s.Yellow(fmt.Sprintf("serving, %d of %d", *p.Passing, len(p.Nodes)))
	case !topology && *p.Passing > 0:
		return "up"
	case !topology:
		return s.Red("down")
	case !p.InTopology:
		return s.Yellow("not listed")
	case len(p.Nodes) == 0:
		return s.Red("down, no edge")
	}
	return s.Red("down")
}

func (n *NodeStatus) cells(s term.Style) []string {
	health := s.Green("passing")
	if !n.Passing {
		health = s.Red("failing")
	}
	number := func(v *float64, format string) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v)
	}
	level := number(n.ShedLevel, "%.2f")
	switch {
	case n.Off:
		level = s.Red("off")
	case n.Shedding && n.ShedLevel != nil && *n.ShedLevel == 0:
		level = s.Red("caps")
	case n.Shedding:
		level = s.Red(level)
	}
	limited := "-"
	if n.Limited != nil {
		limited = term.Percent(*n.Limited)
	}
	redis := "-"
	if n.StoreUp != nil {
		if redis = s.Red("down"); *n.StoreUp {
			redis = s.Green("up")
		}
	}
	return []string{term.Printable(n.ID), health, term.OrDash(n.Rules), term.OrDash(n.Shedder), number(n.Utilization, "%.2f"), level, number(n.Rate, "%.0f"), limited, redis}
}

// describe summarizes everything in a line.
func (v *Fleet) describe(s term.Style) string {
	t := &v.Totals
	pops := term.Plural(t.PoPs, "PoP")
	if v.Topology {
		pops = fmt.Sprintf("%d of %s serving", t.Serving, pops)
	}
	text := fmt.Sprintf("%s, %s, %d of %s passing, %.0f requests/s, %s limited",
		s.Bold(term.Plural(t.Regions, "region")), pops, t.Passing, term.Plural(t.Nodes, "edge"), t.Rate, term.Percent(t.Limited))
	if t.Unknown > 0 {
		text += ", " + s.Red(term.Plural(t.Unknown, "region")+" not known")
	}
	if t.Drained > 0 {
		text += ", " + s.Yellow(fmt.Sprintf("%d drained", t.Drained))
	}
	if t.Shedding > 0 {
		text += ", " + s.Red(term.Plural(t.Shedding, "edge")+" shedding")
	}
	if t.Off > 0 {
		text += ", " + s.Red("shedder off on "+term.Plural(t.Off, "edge"))
	}
	if t.StoreDown > 0 {
		text += ", " + s.Red(term.Plural(t.StoreDown, "edge")+" without Redis")
	}
	return text
}

// clockText says how far a clock is off.
func clockText(ahead float64) string {
	if ahead < 0 {
		return fmt.Sprintf("%.0f s behind its region's", -ahead)
	}
	return fmt.Sprintf("%.0f s ahead of its region's", ahead)
}
