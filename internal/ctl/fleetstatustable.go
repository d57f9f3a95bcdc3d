package ctl

import (
	"bytes"
	"fmt"
)

// write draws the screen.
func (v *fleetView) write(b *bytes.Buffer, s style) {
	fmt.Fprintf(b, "%s  %s\n\n", stamp(v.At), v.Totals.describe(s))
	// One table, so that the columns of all regions are under each other.
	t := table{}
	t.row("REGION", "POP", "EDGE", "HEALTH", "RULES", "SHEDDER", "BUSY", "SHED", "REQ/S", "LIMITED", "REDIS")
	var notes []string
	for _, r := range v.Regions {
		name := s.bold(r.Region)
		if r.Error != "" {
			t.row(name, "", "", s.red("not known"))
			name = ""
			notes = append(notes, fmt.Sprintf("%s: %s", r.Region, printable(r.Error)))
		} else if len(r.PoPs) == 0 {
			t.row(name, "-", "-", s.yellow("no edge"))
		}
		for i := range r.PoPs {
			p := &r.PoPs[i]
			t.row(name, orDash(p.PoP), "", p.health(s, r.Error == ""))
			name = ""
			if d := p.Drained; d != nil {
				notes = append(notes, fmt.Sprintf("%s is drained by %s since %s (%s): %s", printable(p.PoP), printable(d.Who), stamp(d.Since), ago(v.At, d.Since), printable(d.Why)))
			}
			if !p.Listed {
				notes = append(notes, fmt.Sprintf("%s is not in the topology, so DNS sends nobody there", orDash(p.PoP)))
			}
			for j := range p.Nodes {
				n := &p.Nodes[j]
				t.row(append([]string{"", ""}, n.cells(s)...)...)
				if n.Output != "" {
					notes = append(notes, fmt.Sprintf("%s fails its check: %s", printable(n.ID), clip(printable(n.Output), 160)))
				}
				if n.Error != "" {
					notes = append(notes, "could not ask: "+clip(printable(n.Error), 160))
				}
			}
		}
	}
	t.write(b)
	if len(notes) > 0 {
		b.WriteByte('\n')
	}
	for _, note := range notes {
		fmt.Fprintln(b, note)
	}
}

// health says whether DNS sends clients there.
func (p *fleetPoP) health(s style, known bool) string {
	switch {
	case p.Drained != nil:
		return s.yellow("drained")
	case !known:
		return s.yellow("not known")
	case p.Serving && p.Passing == len(p.Nodes):
		return s.green("serving")
	case p.Serving:
		return s.yellow(fmt.Sprintf("serving, %d of %d", p.Passing, len(p.Nodes)))
	case !p.Listed:
		return s.yellow("not listed")
	case len(p.Nodes) == 0:
		return s.red("down, no edge")
	}
	return s.red("down")
}

func (n *fleetNode) cells(s style) []string {
	health := s.green("passing")
	if !n.Passing {
		health = s.red("failing")
	}
	number := func(v *float64, format string) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v)
	}
	level := number(n.ShedLevel, "%.2f")
	if n.ShedLevel != nil && *n.ShedLevel > 0 {
		level = s.red(level)
	}
	limited := "-"
	if n.Limited != nil {
		limited = percent(*n.Limited)
	}
	redis := "-"
	if n.StoreUp != nil {
		if redis = s.red("down"); *n.StoreUp {
			redis = s.green("up")
		}
	}
	return []string{printable(n.ID), health, orDash(n.Rules), orDash(n.Shedder), number(n.Utilization, "%.2f"), level, number(n.Rate, "%.0f"), limited, redis}
}

// describe is everything in a line.
func (t *fleetTotals) describe(s style) string {
	text := fmt.Sprintf("%s, %d of %s serving, %d of %s passing, %.0f requests/s, %s limited",
		s.bold(plural(t.Regions, "region")), t.Serving, plural(t.PoPs, "PoP"), t.Passing, plural(t.Nodes, "edge"), t.Rate, percent(t.Limited))
	if t.Unknown > 0 {
		text += ", " + s.red(plural(t.Unknown, "region")+" not known")
	}
	if t.Drained > 0 {
		text += ", " + s.yellow(fmt.Sprintf("%d drained", t.Drained))
	}
	if t.Shedding > 0 {
		text += ", " + s.red(plural(t.Shedding, "edge")+" shedding")
	}
	if t.StoreDown > 0 {
		text += ", " + s.red(plural(t.StoreDown, "edge")+" without Redis")
	}
	return text
}
