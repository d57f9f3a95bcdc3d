// Package rules has the commands for rules: validate, list, test, compare.
package rules

import (
	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/status"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/internal/ctl/versions"
)

const help = `Change and show the rules of the fleet.

Each region's Consul keeps the newest versions of the rule document that were applied,
200 unless you say otherwise, and one pointer to the active version, which all edges of
the region follow. A version is named by the first twelve digits of its SHA-256. No
command ever changes one, so each of them can be restored.`

func Command(p *command.Program) *cobra.Command {
	k := kinds.Rules
	c := command.Group("rules", "change and show the rules", help)
	command.Stage(c, "Look first:", validateCommand(p), testCommand(p), versions.DiffCommand(p, k, versions.DiffHelp), importCommand(p))
	command.Stage(c, "Change:", change.ApplyCommand(p, k))
	command.Stage(c, "Look after:", status.Command(p, k, status.RulesStatusHelp), unfinished.Command(p, k), listCommand(p), compareCommand(p), versions.HistoryCommand(p, k), versions.ShowCommand(p, k))
	return c
}
