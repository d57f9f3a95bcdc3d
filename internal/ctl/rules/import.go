package rules

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/envoy"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const importEnvoyHelp = `Reads the configuration of Envoy's reference rate limit service (envoyproxy/ratelimit),
one domain a file, and prints the rules that decide as it does, for edges with listen.rls.

Standard error has a line for each field that cannot be translated, and why. Nothing is sent
anywhere. Check the result with regionctl rules validate. CONFIG may be - for standard input.

The reference service adds the hits of every call, also of one that it refuses, so the rules
have overdraft: true.`

func importCommand(p *command.Program) *cobra.Command {
	c := command.Group("import", "translate another program's limits", "Translate another program's limits into rules. The program weir-import translates those of nginx\nand Traefik.")
	fromEnvoy := command.New("envoy CONFIG…", "of Envoy's reference rate limit service", importEnvoyHelp,
		`  regionctl rules import envoy config/*.yaml >rules.yaml`,
		func(_ context.Context, args []string) error { return importEnvoy(p, args) })
	fromEnvoy.ValidArgsFunction = command.CompleteDocument
	c.AddCommand(fromEnvoy)
	return c
}

func importEnvoy(p *command.Program, names []string) error {
	var files []envoy.File
	for _, name := range names {
		in := p.Input(name)
		text, err := in.Read(envoy.MaxBytes)
		if err != nil {
			return err
		}
		files = append(files, envoy.File{Name: in.Name, Text: text})
	}
	doc, report, err := envoy.Translate(files)
	if err != nil {
		return term.Misused("%w", err)
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(doc); err != nil {
		return err
	}
	for _, line := range report {
		fmt.Fprintln(p.ErrOut, line)
	}
	_, err = p.Out.Write(out.Bytes())
	return err
}
