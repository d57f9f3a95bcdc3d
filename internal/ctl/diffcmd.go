package ctl

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const diffHelp = `Shows what would change if FILE were applied: for each rule, which fields get which
new value. Rules are compared by what they mean, so comments, the order of rules and
defaults that are written out make no difference.

Regions that run the same version are shown together. Nothing is changed.

A rule whose key, algorithm or storage changes counts from zero; one whose limit or
window changes keeps what was counted. The difference says which ones start anew.

Exits with 0 whether there is a difference or not; with --exit-code, as with git, 1
says that there is one.`

func (p *program) diffCommand() *cobra.Command {
	var names []string
	var exitCode bool
	c := command("diff FILE", "show what differs from what each region runs", diffHelp,
		`  regionctl rules diff rules.yaml
  regionctl rules diff rules.yaml --region eu-west
  regionctl rules diff rules.yaml --exit-code >/dev/null || echo "not applied yet"`,
		func(ctx context.Context, args []string) error { return p.diff(ctx, args[0], names, exitCode) })
	p.regionFlag(c, &names)
	c.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 if anything differs")
	c.ValidArgsFunction = completeDocument
	return c
}

func (p *program) diff(ctx context.Context, name string, names []string, exitCode bool) error {
	d, err := p.readDocument(name)
	if err != nil {
		return err
	}
	targets, closeAll, err := p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, p, targets, look)
	r := diffReport{Version: d.version(), Rules: len(d.rules), Groups: groupByVersion(answers, d)}
	for _, g := range r.Groups {
		r.Different = r.Different || !g.Same
	}
	if err := p.show(r, func(b *bytes.Buffer, s style) { r.write(b, s, d.label(), 0) }); err != nil {
		return err
	}
	if err := unanswered(answers); err != nil {
		return err
	}
	if exitCode && r.Different {
		return &failure{status: statusFailed}
	}
	return nil
}

// diffReport is what diff prints with -o json.
type diffReport struct {
	Version   string      `json:"version"`
	Rules     int         `json:"rules"`
	Different bool        `json:"different"`
	Groups    []diffGroup `json:"groups"`
}

// diffGroup is the regions that have the same version in force.
type diffGroup struct {
	Regions []string        `json:"regions"`
	Running *region.Pointer `json:"running"`
	// Same says that the version is that of the document, to the last byte.
	Same bool `json:"same"`
	// Difference is missing if they are the same, or if Unreadable says why it is
	// not known.
	Difference *difference `json:"difference,omitempty"`
	Unreadable string      `json:"unreadable,omitempty"`
}

// groupByVersion leaves out regions that did not answer.
func groupByVersion(answers []answer[*published], d *document) []diffGroup {
	groups := []diffGroup{}
	place := map[string]int{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		s := a.value
		id := s.version()
		if s.broken != nil {
			id = "broken " + a.target.name
		}
		if i, known := place[id]; known {
			groups[i].Regions = append(groups[i].Regions, a.target.name)
			continue
		}
		place[id] = len(groups)
		g := diffGroup{Regions: []string{a.target.name}, Running: s.pointer, Same: s.version() == d.version() && s.broken == nil}
		switch {
		case s.broken != nil:
			g.Unreadable = s.broken.Error()
		case !g.Same:
			g.Difference = compare(s.running, d)
		}
		groups = append(groups, g)
	}
	return groups
}

// write shows at most so many rules of a group; 0 is all.
func (r *diffReport) write(b *bytes.Buffer, s style, label string, most int) {
	label = printable(label)
	for i, g := range r.Groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		runs := "runs"
		if len(g.Regions) > 1 {
			runs = "run"
		}
		where := s.bold(strings.Join(g.Regions, ", "))
		switch {
		case g.Running == nil && g.Unreadable == "":
			fmt.Fprintf(b, "%s: no rules published yet; %s\n", where, label)
		case g.Running == nil:
			fmt.Fprintf(b, "%s: what %s cannot be read; %s\n", where, runs, label)
		default:
			fmt.Fprintf(b, "%s %s %s (%s, %s); %s\n", where, runs, g.Running.Version,
				printable(g.Running.AppliedBy), stamp(g.Running.AppliedAt), label)
		}
		switch {
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

func (d *difference) write(b *bytes.Buffer, s style, most int) {
	if d.empty() && !d.Reordered {
		b.WriteString("  the text differs, but no rule does\n")
		return
	}
	t := table{indent: "  "}
	shown := 0
	fits := func() bool { shown++; return most == 0 || shown <= most }
	for _, r := range d.Removed {
		if fits() {
			t.row(s.red("- "+printable(r.Rule)), s.red(printable(r.Summary)))
		}
	}
	for _, r := range d.Added {
		if fits() {
			t.row(s.green("+ "+printable(r.Rule)), s.green(printable(r.Summary)))
		}
	}
	for _, r := range d.Changed {
		if !fits() {
			continue
		}
		name := s.yellow("~ " + printable(r.Rule))
		for _, f := range r.Fields {
			t.row(name, printable(f.Field)+": "+s.red(printable(f.Old))+" → "+s.green(printable(f.New)))
			name = ""
		}
		if r.Recount {
			t.row("", "its counts start anew")
		}
	}
	t.write(b)
	if more := shown - most; most > 0 && more > 0 {
		fmt.Fprintf(b, "  … and %s; regionctl rules diff shows all\n", plural(more, "more rule"))
	}
	if d.Reordered {
		b.WriteString("  the order of the rules differs, which changes no verdict\n")
	}
	fmt.Fprintf(b, "  %d added, %d removed, %d changed, %d as before\n", len(d.Added), len(d.Removed), len(d.Changed), d.Unchanged)
}

// when is a moment and how long ago that was.
func when(now, t time.Time) string { return fmt.Sprintf("%s (%s ago)", stamp(t), ago(now, t)) }
