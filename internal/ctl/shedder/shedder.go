// Package shedder holds the commands that show and change the settings of the load shedder.
package shedder

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/undo"
	"github.com/weir-edge/weir/internal/ctl/versions"
)

const shedderHelp = `Change and show the settings of the load shedder, while the edges run.

They are stored in Consul like the rules: each region keeps the newest versions, and one
pointer to the active one, which all edges of the region follow within a second. A version
is named by the first twelve digits of its SHA-256.

Settings may be temporary. Each edge keeps the time itself and returns to the previous
settings automatically, even without Consul. Where nothing was ever published, edges use
their own configuration.`

const shedderHistoryHelp = `Shows who activated which version, when, until when, replacing which, and why; newest
first. A change of several regions at once is one line. * marks what is active now. regionctl
undo never returns to temporary versions.

regionctl shedder show prints any version that Consul still has, and regionctl shedder
rollback --to VERSION restores it; prune --help says which those are.`

const shedderHistoryExamples = `  regionctl shedder history
  regionctl shedder history --region eu-west -n 0
  regionctl shedder history -o json | jq -r '.[] | select(.expires_at) | .version'`

func Command(p *command.Program) *cobra.Command {
	c := command.Group("shedder", "tune the load shedder", shedderHelp)
	c.AddCommand(
		validateSettingsCommand(p), showSettingsCommand(p), setCommand(p),
		versions.HistoryCommand(p, kinds.Shedder, shedderHistoryHelp, shedderHistoryExamples),
		undo.RollbackCommand(p, kinds.Shedder, strings.ReplaceAll(undo.RollbackHelp, "regionctl rules", "regionctl shedder"), strings.ReplaceAll(undo.RollbackExamples, "regionctl rules", "regionctl shedder")),
		versions.PruneCommand(p, kinds.Shedder),
	)
	return c
}
