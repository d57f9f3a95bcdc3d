// Package shedder holds the commands that show and change the settings of the load shedder.
package shedder

import (
	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/versions"
)

const help = `Change and show the settings of the load shedder, while the edges run.

They are stored in Consul like the rules: each region keeps the newest versions, and one
pointer to the active one, which all edges of the region follow within a second. A version
is named by the first twelve digits of its SHA-256.

Settings may be temporary. Each edge keeps the time itself and returns to the previous
settings automatically, even without Consul. Where nothing was ever published, edges use
their own configuration.`

const historyHelp = `Shows who activated which version, when, until when, replacing which, and why; newest
first. A change of several regions at once is one line. * marks what is active now. regionctl
undo never returns to temporary versions.

regionctl shedder show prints any version that Consul still has, and regionctl undo
shedder --to VERSION restores it; prune --help says which those are.`

const historyExamples = `  regionctl shedder history
  regionctl shedder history --region eu-west -n 0
  regionctl shedder history -o json | jq -r '.[] | select(.expires_at) | .version'`

func Command(p *command.Program) *cobra.Command {
	c := command.Group("shedder", "tune the load shedder", help)
	history := versions.HistoryCommand(p, kinds.Shedder)
	history.Long, history.Example = historyHelp, historyExamples
	c.AddCommand(suggestCommand(p), validateCommand(p), showCommand(p), setCommand(p), history)
	return c
}
