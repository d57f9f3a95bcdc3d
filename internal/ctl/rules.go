package ctl

import (
	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/kinds"
)

const rulesHelp = `Change and show the rules of the fleet.

Each region's Consul keeps the newest versions of the rule document that were applied,
200 unless you say otherwise, and one pointer to the active version, which all edges of
the region follow. A version is named by the first twelve digits of its SHA-256. No
command ever changes one, so each of them can be restored.`

func (p *program) rulesCommand() *cobra.Command {
	return stages(group("rules", "change and show the rules", rulesHelp), []stage{
		{"Look first:", []*cobra.Command{p.validateCommand(), p.testCommand(), p.diffCommand(kinds.Rules, diffHelp, diffExamples), p.importCommand()}},
		{"Change:", []*cobra.Command{p.applyCommand(kinds.Rules, applyHelp, applyExamples), p.rollbackCommand(kinds.Rules, rollbackHelp, rollbackExamples), p.pruneCommand(kinds.Rules)}},
		{"Look after:", []*cobra.Command{p.statusCommand(kinds.Rules, rulesStatusHelp, statusExamples), p.rolloutCommand(kinds.Rules), p.rulesListCommand(), p.compareCommand(), p.historyCommand(kinds.Rules, historyHelp, historyExamples), p.showCommand(kinds.Rules)}},
	})
}

// stage is a group of commands for one stage of work.
type stage struct {
	title    string
	commands []*cobra.Command
}

// stages adds commands to c in groups.
func stages(c *cobra.Command, list []stage) *cobra.Command {
	for _, stage := range list {
		c.AddGroup(&cobra.Group{ID: stage.title, Title: stage.title})
		for _, sub := range stage.commands {
			sub.GroupID = stage.title
			c.AddCommand(sub)
		}
	}
	return c
}
