package ctl

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// rulesKind describes the rules.
var rulesKind = &fleet.Kind{
	Name: "rules", Path: adminapi.PathRules, Answer: func() fleet.NodeAnswer { return &adminapi.Rules{} }, Query: url.Values{"brief": {""}}, Longest: rules.MaxBytes, Canaries: true,
	Parse: func(data []byte) (any, error) {
		set, written, err := rules.LoadDocument(data)
		if err != nil {
			return nil, err
		}
		return &ruleBook{set, written.Rules}, nil
	},
	Registered: func(n consul.Node) (version, refused string) { return n.RulesVersion, n.RulesRefused },
	Schema:     rules.Schema, Reads: func(n consul.Node) int { return n.Schema }, Remedy: update,
	What: "rules", Put: "apply", Did: "applied", Look: "regionctl rules status", Watch: "regionctl rules status --watch",
}

// ruleBook is the content of a rule document.
type ruleBook struct {
	set   *rules.Set
	rules []rules.Rule // as written, by the index of set
}

// Warnings returns the warnings of the rules.
func (b *ruleBook) Warnings() []string { return b.set.Warnings() }

// bookOf returns the content of a rule document.
func bookOf(d *fleet.Document) *ruleBook { return d.Body.(*ruleBook) }

const rulesHelp = `Change and show the rules of the fleet.

Each region's Consul keeps the newest versions of the rule document that were applied,
200 unless you say otherwise, and one pointer to the active version, which all edges of
the region follow. A version is named by the first twelve digits of its SHA-256. No
command ever changes one, so each of them can be restored.`

func (p *program) rulesCommand() *cobra.Command {
	return stages(group("rules", "change and show the rules", rulesHelp), []stage{
		{"Look first:", []*cobra.Command{p.validateCommand(), p.testCommand(), p.diffCommand(rulesKind, diffHelp, diffExamples), p.importCommand()}},
		{"Change:", []*cobra.Command{p.applyCommand(rulesKind, applyHelp, applyExamples), p.rollbackCommand(rulesKind, rollbackHelp, rollbackExamples), p.pruneCommand(rulesKind)}},
		{"Look after:", []*cobra.Command{p.statusCommand(rulesKind, rulesStatusHelp, statusExamples), p.rolloutCommand(rulesKind), p.rulesListCommand(), p.compareCommand(), p.historyCommand(rulesKind, historyHelp, historyExamples), p.showCommand(rulesKind)}},
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
