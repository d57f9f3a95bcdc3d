package ctl

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const statusHelp = `Shows for every region what is in force, since when and by whom; what is tried on a
site; and for every registered edge what it runs, where it has that from, what it
refused and why, and whether it is healthy. A region has converged when all its edges
run what they should, and there are any.

Edges are asked at their admin listeners. Where that is not possible, the version comes
from what they registered in Consul, and the column FROM says catalogue.

  source consul    the edge follows Consul
  source cache     it started from its copy on disk, because Consul was away
  source file      it has a rule file of its own and does not follow Consul

--watch looks again every two seconds until it is interrupted; --watch=10s every ten.
With -o json each look is one line.

Exits with 0 if all regions have converged and with 3 if not.`

func (p *program) statusCommand() *cobra.Command {
	var names []string
	var every time.Duration
	c := command("status", "show what each region and each edge runs", statusHelp,
		`  regionctl rules status
  regionctl rules status --region eu-west --watch
  regionctl rules status -o json | jq '.regions[].nodes[] | select(.converged | not)'`,
		func(ctx context.Context, _ []string) error { return p.status(ctx, names, every) })
	p.regionFlag(c, &names)
	watchFlag(c, &every, "2s")
	return c
}

// fleetStatus is what status prints with -o json.
type fleetStatus struct {
	At        time.Time    `json:"at"`
	Converged bool         `json:"converged"`
	Regions   []regionView `json:"regions"`
}

func (p *program) status(ctx context.Context, names []string, every time.Duration) error {
	if every < 0 || every > 0 && every < 100*time.Millisecond {
		return misused("--watch %s: must be at least 100ms", every)
	}
	targets, closeAll, err := p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	if every > 0 {
		return p.watchStatus(ctx, targets, every)
	}
	s, err := p.showAll(ctx, targets, (*fleetStatus).write)
	if err != nil {
		return err
	}
	if !s.Converged {
		var list []string
		for i := range s.Regions {
			if v := &s.Regions[i]; !v.Converged {
				name := v.Region
				if v.Pointer == nil {
					name += " (nothing is published there; regionctl rules apply does)"
				}
				list = append(list, name)
			}
		}
		return partial("not converged: %s; the edges with a no are behind, what they refused is listed, and where no edge is registered nobody follows", strings.Join(list, ", "))
	}
	return nil
}

// showAll looks at everything once.
func (p *program) showAll(ctx context.Context, targets []*target, write func(*fleetStatus, *bytes.Buffer, style)) (*fleetStatus, error) {
	s, answers := p.lookAll(ctx, targets)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.show(s, func(b *bytes.Buffer, st style) { write(s, b, st) }); err != nil {
		return nil, err
	}
	return s, unanswered(answers)
}

// watchStatus looks until it is told to stop, which is how it is meant to end.
func (p *program) watchStatus(ctx context.Context, targets []*target, every time.Duration) error {
	for {
		s, _ := p.lookAll(ctx, targets)
		if ctx.Err() != nil {
			return nil
		}
		var b bytes.Buffer
		if p.wantsJSON() {
			if err := encode(&b, s, ""); err != nil {
				return err
			}
		} else {
			if p.outLive {
				b.WriteString("\x1b[H\x1b[2J")
			}
			fmt.Fprintf(&b, "%s, every %s; Ctrl-C ends it\n\n", stamp(s.At), every)
			s.write(&b, p.outStyle())
			b.WriteByte('\n')
		}
		if _, err := p.out.Write(b.Bytes()); err != nil {
			return err
		}
		if r, ok := p.out.(*reader); ok && r.gone {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (p *program) lookAll(ctx context.Context, targets []*target) (*fleetStatus, []answer[*regionView]) {
	s := &fleetStatus{At: time.Now().UTC(), Converged: true, Regions: []regionView{}}
	answers := askUnbounded(ctx, targets, func(ctx context.Context, t *target) (*regionView, error) {
		return p.view(ctx, t, nil, "")
	})
	for _, a := range answers {
		v := a.value
		if a.err != nil {
			v = &regionView{Region: a.target.name, Nodes: []nodeView{}, Error: a.err.Error()}
		}
		s.Regions = append(s.Regions, *v)
		s.Converged = s.Converged && v.Converged
	}
	return s, answers
}

func (s *fleetStatus) write(b *bytes.Buffer, st style) {
	for i := range s.Regions {
		if i > 0 {
			b.WriteByte('\n')
		}
		s.Regions[i].write(b, st, s.At)
	}
	if len(s.Regions) > 1 {
		fmt.Fprintf(b, "\nconverged: %s\n", st.verdict(s.Converged))
	}
}

func (v *regionView) write(b *bytes.Buffer, st style, now time.Time) {
	name := st.bold(v.Region)
	switch {
	case v.Pointer != nil:
		fmt.Fprintf(b, "%s: %s by %s, %s, converged: %s\n", name, v.Pointer.Version, printable(v.Pointer.AppliedBy), when(now, v.Pointer.AppliedAt), st.verdict(v.Converged))
	case v.Error != "":
		fmt.Fprintf(b, "%s: %s\n", name, st.red("not known"))
	default:
		fmt.Fprintf(b, "%s: %s\n", name, st.yellow("no rules published yet"))
	}
	if v.Error != "" {
		fmt.Fprintf(b, "  %s\n", indented(clean(v.Error)))
	}
	for _, note := range v.Notes {
		fmt.Fprintf(b, "  %s\n", printable(note))
	}
	for _, pop := range sortedKeys(v.Canaries) {
		c := v.Canaries[pop]
		fmt.Fprintf(b, "  canary on %s: %s by %s, until %s\n", printable(pop), c.Version, printable(c.AppliedBy), until(&c))
	}
	if len(v.Nodes) == 0 {
		if v.Error == "" {
			b.WriteString("  no edge is registered, or this token may not see them\n")
		}
		return
	}
	t := table{indent: "  "}
	t.row("EDGE", "POP", "RUNS", "SINCE", "SOURCE", "FROM", "CHECK", "CONVERGED")
	var notes []string
	for i := range v.Nodes {
		n := &v.Nodes[i]
		check := st.green("passing")
		if !n.Passing {
			check = st.red("failing")
			why := cmp.Or(strings.Join(strings.Fields(n.Output), " "), "Consul shows no reason yet")
			if n.Version == "none" { // as a node without rules registers
				why = "it has no rules yet; regionctl rules apply publishes them"
			}
			notes = append(notes, fmt.Sprintf("%s fails its check: %s", printable(n.ID), clip(printable(why), 200)))
		}
		since, source := "-", orDash(n.Source)
		if !n.Since.IsZero() {
			since = ago(now, n.Since)
		}
		if n.Canary {
			source += " (canary)"
		}
		t.row(printable(n.ID), orDash(n.PoP), orDash(n.Version), since, source, n.Seen, check, st.verdict(n.Converged))
		notes = append(notes, n.complaints()...)
	}
	t.write(b)
	for _, note := range notes {
		fmt.Fprintf(b, "    %s\n", note)
	}
}

// complaints are what is wrong with an edge.
func (n *nodeView) complaints() (list []string) {
	if n.Refused != nil {
		list = append(list, fmt.Sprintf("%s refused %s:\n      %s", printable(n.ID), orDash(n.Refused.Version), strings.ReplaceAll(n.reasons(), "\n", "\n      ")))
	}
	if n.ConsulError != "" {
		list = append(list, fmt.Sprintf("%s has lost Consul: %s", printable(n.ID), printable(n.ConsulError)))
	}
	if n.AdminError != "" {
		list = append(list, "could not ask: "+printable(n.AdminError))
	}
	return list
}
