package ctl

import (
	"context"

	"github.com/spf13/cobra"
)

const rulesHelp = `Change and show the rules of the fleet.

Each region's Consul keeps every version of the rule document that was ever applied,
and one pointer to the version in force, which all edges of the region follow. A
version is named by the first twelve digits of its SHA-256. No command ever changes or
deletes a version, so everything can be brought back.`

func (p *program) rulesCommand() *cobra.Command {
	c := group("rules", "change and show the rules", rulesHelp)
	for _, stage := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Look first:", []*cobra.Command{p.validateCommand(), p.testCommand(), p.diffCommand()}},
		{"Change:", []*cobra.Command{p.applyCommand(), p.rollbackCommand()}},
		{"Look after:", []*cobra.Command{p.statusCommand(), p.historyCommand(), p.showCommand()}},
	} {
		c.AddGroup(&cobra.Group{ID: stage.title, Title: stage.title})
		for _, sub := range stage.commands {
			sub.GroupID = stage.title
			c.AddCommand(sub)
		}
	}
	return c
}

func (p *program) historyCommand() *cobra.Command {
	var names []string
	var most int
	c := command("history", "show who changed what, when and why", historyHelp,
		`  regionctl rules history
  regionctl rules history --region eu-west -n 0
  regionctl rules history -o json | jq -r '.[] | select(.applied_by == "ana") | .version'`,
		func(ctx context.Context, _ []string) error { return p.history(ctx, names, most) })
	p.regionFlag(c, &names)
	c.Flags().IntVarP(&most, "lines", "n", 20, "how many changes to show; 0 shows all")
	return c
}
