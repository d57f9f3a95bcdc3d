package ctl

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/docs"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/field"
)

const runbookHelp = `Prints the runbook of an alert: what users feel, how to confirm it, how to mitigate it, the
repair, and whom to call. Without ALERT it lists the alerts. The runbooks are those of this
release (docs/RUNBOOKS.md), so the command needs neither a fleet file nor a network.`

func runbookCommand(p *command.Program) *cobra.Command {
	c := command.New("runbook [ALERT]", "print what to do when an alert fires", runbookHelp, "  regionctl runbook\n  regionctl runbook WeirStoreDown",
		func(_ context.Context, args []string) error {
			if len(args) == 0 {
				return p.Show(docs.Runbooks(), listRunbooks)
			}
			return showRunbook(p, args[0])
		})
	c.ValidArgsFunction = cobra.FixedCompletions(alertNames(), cobra.ShellCompDirectiveNoFileComp)
	return c
}

func alertNames() []string {
	return fleet.Map(docs.Runbooks(), func(r docs.Runbook) string { return r.Alert })
}

func listRunbooks(b *bytes.Buffer, _ term.Style) {
	t := term.Table{}
	t.Row("ALERT", "SEVERITY")
	for _, r := range docs.Runbooks() {
		t.Row(r.Alert, r.Severity)
	}
	t.Print(b)
}

func showRunbook(p *command.Program, alert string) error {
	list := docs.Runbooks()
	i := slices.IndexFunc(list, func(r docs.Runbook) bool { return strings.EqualFold(r.Alert, alert) })
	if i < 0 {
		return term.Misused("no alert %q%s; regionctl runbook lists them", alert, field.Suggest(alert, alertNames()...))
	}
	return p.Show(list[i], func(b *bytes.Buffer, s term.Style) {
		fmt.Fprintf(b, "%s\n\n%s\n", s.Bold(list[i].Alert), list[i].Text)
		if legend := list[i].Legend; legend != "" {
			fmt.Fprintf(b, "\n%s\n", legend)
		}
	})
}
