// Package status shows which nodes run which version of a document.
package status

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const RulesStatusHelp = `Shows for every region which version is active, since when and by whom, and what is on
trial; and for every registered edge what it runs, where that came from, what it refused
and why, and whether it is healthy. A region has converged when it has edges and all of
them run what they should. Several versions in one fleet are listed at the end, with the
regions and edges of each.

Edges are asked at their admin listeners. Where that is not possible, the version comes
from what they registered in Consul, and the column FROM says catalog.

  source consul     the edge follows Consul
  source cache      it started from its copy on disk, because Consul was unreachable
  source bootstrap  it had no such copy either, and started from its rules.bootstrap
  source file       it has a rule file of its own and does not follow Consul

What it may show, and what to do:

  eu-west: not known, and an error
      Its Consul is unreachable, or its address or token in the fleet file is wrong. When Consul
      is back, apply the same file again.
  the fleet runs 2 versions; or apply: RESULT unknown, may have taken effect
      An apply ended early, left regions out, or lost Consul's answer. Apply the same file again.
  n1 refused VERSION: and reasons
      It cannot read the document, and was not registered during the apply. Update it, or apply
      a document that it can read.
  n1 has lost Consul: and an error
      It cannot read its Consul. Check its token file, its address, and the agent there.
  the check of n1 fails: could not ask
      The process or its machine is gone. It counts as behind until Consul drops it after ten
      minutes. Start it, or run consul services deregister -id weir-edge-n1 on its agent.
  source cache or bootstrap
      It started while Consul was unreachable; bootstrap may be older. Nothing to do. If the rules
      must change before Consul is back, replace the copy at rules.bootstrap.
  answered by node n2, not n1
      The registered admin address of n1, such as 127.0.0.1, leads to n2 from this host.
  an unexpected canary on ams1
      A regionctl was killed during a bake. It expires. regionctl undo rules ends it now, and
      apply --resume continues it.
  waiting for ana, who is changing the rules
      Another change goes first, or was killed: see regionctl rules apply --help.
  rules/canary/...: correct or delete the key
      Invalid data in Consul; everything else works. consul kv delete KEY
  a region's name or consul.prefix that differs
      The fleet file names another region's Consul, or node.region is wrong. See regionctl
      init --help.
  no edge is registered
      Consul has just lost its data: edges return within 12 seconds. Otherwise consul.register is
      false, or their token lacks service "weir-edge". Rules arrive anyway.

--watch looks again every two seconds until it is interrupted; --watch=10s every ten.
With -o json each look is one line.

Exits with 0 if all regions have converged and with 3 if not.`

const statusExamples = `  regionctl rules status
  regionctl rules status --region eu-west --watch
  regionctl rules status -o json | jq '.regions[].nodes[] | select(.converged | not)'`

func Command(p *command.Program, k *fleet.Kind, help string) *cobra.Command {
	return command.Watched(p, "status", "show what each region and each edge runs", help, k.Reworded(statusExamples), "2s",
		func(ctx context.Context, names []string) error {
			s, err := Verify(ctx, p, k, names)
			return command.Show(p, s, err, (*Convergence).write)
		}, func(ctx context.Context, names []string, every time.Duration) error {
			return watch(ctx, p, k, names, every)
		})
}

// Convergence is what status prints with -o json.
type Convergence struct {
	At        time.Time          `json:"at"`
	Converged bool               `json:"converged"`
	Regions   []fleet.RegionView `json:"regions"`
	// Versions are those that regions have active or edges run, most regions first.
	Versions []versionSpread `json:"versions"`

	kind *fleet.Kind
}

type versionSpread struct {
	Version string   `json:"version"`
	Regions []string `json:"regions"` // that have it active
	Edges   int      `json:"edges"`   // that run it
}

func watch(ctx context.Context, p *command.Program, k *fleet.Kind, names []string, every time.Duration) error {
	targets, err := p.Targets(k, names)
	if err != nil {
		return err
	}
	return command.Watch(ctx, every, func(s *Convergence) error {
		return p.Draw(s, func(b *bytes.Buffer, st term.Style) {
			fmt.Fprintf(b, "%s, every %s; Ctrl-C ends it\n\n", term.Stamp(s.At), every)
			s.write(b, st)
		})
	}, func(ctx context.Context) *Convergence {
		s, _ := lookAll(ctx, p, targets)
		return s
	})
}

// Verify looks at everything once. Its error says which regions have not converged.
func Verify(ctx context.Context, p *command.Program, k *fleet.Kind, names []string) (*Convergence, error) {
	s, err := Look(ctx, p, k, names)
	if err == nil && !s.Converged {
		var list []string
		for i := range s.Regions {
			if v := &s.Regions[i]; !v.Converged {
				name := v.Region
				if v.Pointer == nil {
					name += fmt.Sprintf(" (nothing is published there; regionctl %s %s publishes %s)", k.Name, k.Put, k.What)
				}
				list = append(list, name)
			}
		}
		err = term.Partial("not converged: %s; edges with CONVERGED no are behind, and why is listed below them; a region without registered edges does not converge", strings.Join(list, ", "))
	}
	return s, err
}

// Look looks at everything once. Its error says which regions did not answer.
func Look(ctx context.Context, p *command.Program, k *fleet.Kind, names []string) (*Convergence, error) {
	targets, err := p.Targets(k, names)
	if err != nil {
		return nil, err
	}
	s, answers := lookAll(ctx, p, targets)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s, command.Unanswered(answers)
}

func lookAll(ctx context.Context, p *command.Program, targets []*fleet.Target) (*Convergence, []fleet.Answer[*fleet.RegionView]) {
	answers := fleet.AskUnbounded(ctx, targets, func(ctx context.Context, t *fleet.Target) (*fleet.RegionView, error) {
		return t.View(ctx, nil, "")
	})
	s := &Convergence{At: p.Now().UTC(), Converged: true, Regions: []fleet.RegionView{}, kind: targets[0].Kind}
	for _, a := range answers {
		v := a.Value
		if a.Err != nil {
			v = &fleet.RegionView{Region: a.Target.Name, Nodes: []fleet.NodeView{}, Error: a.Err.Error()}
		}
		s.Regions = append(s.Regions, *v)
		s.Converged = s.Converged && v.Converged
	}
	s.Versions = spread(s.Regions)
	return s, answers
}

func spread(views []fleet.RegionView) []versionSpread {
	list := []versionSpread{}
	at := func(version string) *versionSpread {
		i := slices.IndexFunc(list, func(v versionSpread) bool { return v.Version == version })
		if i < 0 {
			i, list = len(list), append(list, versionSpread{Version: version, Regions: []string{}})
		}
		return &list[i]
	}
	for i := range views {
		v := &views[i]
		if active := v.Active(); active != nil {
			here := at(active.Version)
			here.Regions = append(here.Regions, v.Region)
		}
		for _, n := range v.Nodes {
			if n.Version != "" && n.Version != adminapi.NoVersion {
				at(n.Version).Edges++
			}
		}
	}
	slices.SortStableFunc(list, func(a, b versionSpread) int { return len(b.Regions) - len(a.Regions) })
	return list
}

func (s *Convergence) write(b *bytes.Buffer, st term.Style) {
	for i := range s.Regions {
		if i > 0 {
			b.WriteByte('\n')
		}
		writeView(b, st, s.kind, &s.Regions[i], s.At)
	}
	if len(s.Versions) > 1 {
		fmt.Fprintf(b, "\n%s\n", st.Yellow(fmt.Sprintf("the fleet runs %d versions:", len(s.Versions))))
		t := term.Table{Indent: "  "}
		for _, v := range s.Versions {
			t.Row(term.Printable(v.Version), term.Plural(v.Edges, "edge"), "active in "+some(v.Regions))
		}
		t.Print(b)
	}
	if len(s.Regions) > 1 {
		fmt.Fprintf(b, "\nconverged: %s\n", st.Verdict(s.Converged))
	}
}

// some names up to three items of a list.
func some(names []string) string {
	switch {
	case len(names) == 0:
		return "no region"
	case len(names) > 3:
		return term.Plural(len(names), "region")
	}
	return strings.Join(names, ", ")
}

func writeView(b *bytes.Buffer, st term.Style, k *fleet.Kind, v *fleet.RegionView, now time.Time) {
	name := st.Bold(v.Region)
	switch {
	case v.Pointer != nil:
		fmt.Fprintf(b, "%s: %s by %s, %s, converged: %s\n", name, v.Pointer.Version, term.Printable(v.Pointer.AppliedBy), term.When(now, v.Pointer.AppliedAt), st.Verdict(v.Converged))
	case v.Error != "":
		fmt.Fprintf(b, "%s: %s\n", name, st.Red("not known"))
	default:
		fmt.Fprintf(b, "%s: %s\n", name, st.Yellow("no "+k.What+" published yet"))
	}
	if v.Error != "" {
		fmt.Fprintf(b, "  %s\n", term.Indented(term.Clean(v.Error)))
	}
	for _, note := range v.Notes {
		fmt.Fprintf(b, "  %s\n", term.Printable(note))
	}
	for _, pop := range slices.Sorted(maps.Keys(v.Canaries)) {
		c := v.Canaries[pop]
		fmt.Fprintf(b, "  canary on %s: %s by %s, until %s\n", term.Printable(pop), c.Version, term.Printable(c.AppliedBy), report.Until(&c))
	}
	if len(v.Nodes) == 0 {
		if v.Error == "" {
			b.WriteString("  no edge is registered, or this token may not see them\n")
		}
		return
	}
	t := term.Table{Indent: "  "}
	t.Row("EDGE", "POP", "RUNS", "SINCE", "SOURCE", "FROM", "CHECK", "CONVERGED")
	var notes []string
	var silent, failing fleet.Reasons
	for i := range v.Nodes {
		n := &v.Nodes[i]
		check := st.Green("passing")
		if !n.Passing {
			check = st.Red("failing")
			why := cmp.Or(strings.Join(strings.Fields(n.Output), " "), "Consul shows no reason yet")
			if k == kinds.Rules && n.Version == adminapi.NoVersion { // as a node without rules registers
				why = "it has no rules yet; regionctl rules apply publishes them"
			}
			failing.Add(n.ID, why)
		}
		since, source := "-", term.OrDash(n.Source)
		if !n.Since.IsZero() {
			since = term.Ago(now, n.Since)
		}
		if n.Canary {
			source += " (canary)"
		}
		t.Row(term.Printable(n.ID), term.OrDash(n.PoP), term.OrDash(n.Version), since, source, n.Seen, check, st.Verdict(n.Converged))
		notes = append(notes, Complaints(n, &silent)...)
	}
	t.Print(b)
	for _, note := range slices.Concat(failing.Lines("the check of %s fails: %s"), notes, silent.Lines(fleet.CouldNotAsk)) {
		fmt.Fprintf(b, "    %s\n", note)
	}
}

// Complaints lists what is wrong with an edge, and adds to silent why it could not be asked.
func Complaints(n *fleet.NodeView, silent *fleet.Reasons) (list []string) {
	if n.Refused != nil {
		list = append(list, fmt.Sprintf("%s refused %s:\n      %s", term.Printable(n.ID), term.OrDash(n.Refused.Version), strings.ReplaceAll(report.Refusal(n), "\n", "\n      ")))
	}
	if n.ConsulError != "" {
		list = append(list, fmt.Sprintf("%s has lost Consul: %s", term.Printable(n.ID), term.Printable(n.ConsulError)))
	}
	if n.AdminError != "" {
		silent.Add(n.ID+" at "+cmp.Or(n.Admin, "no address"), n.AdminError)
	}
	return list
}
