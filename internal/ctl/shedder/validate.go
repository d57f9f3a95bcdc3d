package shedder

import (
	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const validateHelp = `Reports every fault of a file of shedder settings, with the path of its field and what to do
about it. Nothing is sent anywhere, and no fleet file is needed. FILE may be - for standard
input.

Edges of the same release check the same things: none refuses settings that pass here.

Exits with 0 if the settings are valid and with 2 if they are not.`

// validation is what shedder validate prints with -o json.
type validation struct {
	command.Checked
	Enabled bool           `json:"enabled"`
	Law     string         `json:"law,omitempty"`
	Errors  []term.Problem `json:"errors"`
}

func validateCommand(p *command.Program) *cobra.Command {
	return command.ValidateCommand(p, kinds.Shedder, "report what is wrong with a file of settings", validateHelp,
		`  regionctl shedder validate shedder.yaml
  regionctl shedder show | regionctl shedder validate -`,
		func(c command.Checked, errors []term.Problem, d *fleet.Document) (any, string, []string) {
			v := validation{Checked: c, Errors: errors}
			if !c.Valid {
				return v, "", nil
			}
			made := d.Body.(*kinds.Settings)
			v.Enabled, v.Law = made.Enabled, made.Law
			off := ""
			if !v.Enabled {
				off = " (not enabled)"
			}
			return v, "law " + v.Law + off, nil
		})
}
