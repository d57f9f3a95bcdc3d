package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl"
)

// makePages generates man pages and completions from the commands.
func (r *release) makePages(ctx context.Context) error {
	r.pages = nil
	for _, p := range []struct {
		program
		short string
		helps [][]string // the arguments that print parts of the page
	}{
		{programs[0], "limit HTTP requests and forward those that pass", [][]string{{"-help"}}},
		{programs[2], "translate the limits of nginx and Traefik into rules", [][]string{{"--help"}, {"nginx", "--help"}, {"traefik", "--help"}}},
	} {
		usage, err := r.usage(ctx, p.program, p.helps)
		if err != nil {
			return err
		}
		r.pages = append(r.pages, file{"man/" + p.name + ".1", 0o644, r.page(p.name, p.short, usage)})
	}
	root := ctl.Commands()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	walk(root, func(c *cobra.Command) {
		var help bytes.Buffer
		c.SetOut(&help)
		_ = c.Help() // writes to memory
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		r.pages = append(r.pages, file{"man/" + name + ".1", 0o644, r.page(name, c.Short, help.String())})
	})
	for _, shell := range []struct {
		name  string
		write func(*bytes.Buffer) error
	}{
		{"completions/regionctl.bash", func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) }},
		{"completions/_regionctl", func(b *bytes.Buffer) error { return root.GenZshCompletion(b) }},
		{"completions/regionctl.fish", func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) }},
	} {
		var text bytes.Buffer
		if err := shell.write(&text); err != nil {
			return err
		}
		r.pages = append(r.pages, file{shell.name, 0o644, text.Bytes()})
	}
	return nil
}

// usage returns what a program prints about itself.
func (r *release) usage(ctx context.Context, p program, helps [][]string) (string, error) {
	path := filepath.Join(r.work, p.name)
	if _, err := r.run(ctx, nil, "go", "build", "-C", p.module, "-trimpath", "-tags", "grpcnotrace", "-o", path, p.source); err != nil {
		return "", err
	}
	var parts []string
	for _, args := range helps {
		text, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
		if err != nil {
			return "", err
		}
		parts = append(parts, string(text))
	}
	return strings.Join(parts, "\n"), nil
}

// walk visits the commands shown to users.
func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" {
			walk(sub, visit)
		}
	}
}

// page formats a help text as a man page, keeping its lines, which are written for terminals.
func (r *release) page(name, short, help string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 %s %q %q\n", strings.ToUpper(roff(name)), r.date.Format(time.DateOnly), "weir "+r.version, "weir")
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n", roff(name), roff(short))
	for line := range strings.Lines(help) {
		b.WriteString(roff(line))
	}
	b.WriteString(".fi\n")
	return b.Bytes()
}

// roff escapes what troff would read as a request or a hyphen.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
