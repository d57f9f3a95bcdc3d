package ctl

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"
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
	d, err := p.readDocument(rulesKind, name)
	if err != nil {
		return err
	}
	targets, closeAll, err := p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, p, targets, func(ctx context.Context, t *target) (*aim, error) {
		s, err := look(ctx, t)
		return &aim{published: s, next: d}, err
	})
	r := diffReport{Version: d.version(), Rules: len(d.book().rules), Groups: groupByVersion(answers)}
	for _, g := range r.Groups {
		r.Different = r.Different || !g.Same
	}
	if err := p.show(r, func(b *bytes.Buffer, s style) { writeGroups(b, s, r.Groups, 0) }); err != nil {
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
