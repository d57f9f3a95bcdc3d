package shedder

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/shedding"
)

const validateSettingsHelp = `Reports every fault of a file of shedder settings, with the path of its field and what to do
about it. Nothing is sent anywhere, and no fleet file is needed. FILE may be - for standard
input.

Edges of the same release check the same things: none refuses settings that pass here.

Exits with 0 if the settings are valid and with 2 if they are not.`

func validateSettingsCommand(p *command.Program) *cobra.Command {
	c := command.New("validate FILE", "report what is wrong with a file of settings", validateSettingsHelp,
		`  regionctl shedder validate shedder.yaml
  regionctl shedder show | regionctl shedder validate -`,
		func(_ context.Context, args []string) error { return validateSettings(p, args[0]) })
	c.ValidArgsFunction = command.CompleteDocument
	return c
}

// settingsValidation is what shedder validate prints with -o json.
type settingsValidation struct {
	File    string         `json:"file"`
	Valid   bool           `json:"valid"`
	Version string         `json:"version,omitempty"`
	Enabled bool           `json:"enabled"`
	Law     string         `json:"law,omitempty"`
	Errors  []term.Problem `json:"errors"`
}

func validateSettings(p *command.Program, name string) error {
	data, err := p.ReadInput(shedding.MaxBytes, name)
	if err != nil {
		return err
	}
	v := settingsValidation{File: command.InputName(name), Errors: []term.Problem{}}
	d, err := shedding.Parse(data)
	if err == nil {
		v.Valid, v.Version, v.Enabled, v.Law = true, d.Version, d.Enabled, d.Law
	} else {
		v.Errors = term.Problems(err)
	}
	return p.Validated(v.File, &v, err, func(b *bytes.Buffer) {
		off := ""
		if !v.Enabled {
			off = " (not enabled)"
		}
		fmt.Fprintf(b, "%s is good: law %s%s, version %s\n", term.Printable(v.File), v.Law, off, v.Version)
	})
}
