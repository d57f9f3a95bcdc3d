package ctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const initHelp = `Records each region's name in its Consul. Every change compares the name with the fleet
file first. A wrong address in the fleet file stops the whole change (status 2); with
--partial, and in drain and undrain, only its region is left out (status 3).

Run it once for each new region, before its first change. A region without a name can be
changed only while its registered edges say that they are of that region.

It refuses a Consul that has another region's name. One without a name that has edges of
another region is named only if --region names the region; look at those edges first. To
rename a region, delete the key weir/region in its Consul and run this again.

Exits with 3 if a region could not be reached; run it again then.`

func initCommand(p *command.Program) *cobra.Command {
	var names []string
	var yes bool
	var by, message string
	c := command.New("init", "record the name of each region in its Consul", initHelp, "  regionctl init\n  regionctl init --region us-west --yes",
		func(ctx context.Context, _ []string) error { return nameRegions(ctx, p, names, yes, by, message) })
	p.RegionFlag(c, &names)
	command.YesFlag(c.Flags(), &yes)
	command.ByFlag(c.Flags(), &by)
	command.MessageFlag(c.Flags(), &message)
	return c
}

func nameRegions(ctx context.Context, p *command.Program, names []string, yes bool, by, message string) error {
	if err := command.CheckText("--message", message, command.LongestMessage); err != nil {
		return err
	}
	by, err := p.Whoami(by)
	if err != nil {
		return err
	}
	targets, err := p.Targets(kinds.Acts, names)
	if err != nil {
		return err
	}
	results := make([]rollout.Result, len(targets))
	for i, a := range command.Confirmed(ctx, targets) {
		results[i].Name = a.Target.Name
		var foreign *fleet.Foreign
		switch {
		case errors.As(a.Err, &foreign) && (!foreign.Unnamed || foreign.Edges != "" && len(names) == 0):
			return term.Misused("nothing was changed: %s: %w", a.Target.Name, a.Err)
		case foreign == nil && a.Err != nil:
			results[i].Outcome, results[i].Err = rollout.Unreachable, a.Err
		}
		p.Say("%s: %s", a.Target.Name, a.Target.Consul)
		if foreign != nil && foreign.Edges != "" {
			p.Warn("%s: has edges of region %s", a.Target.Name, foreign.Edges)
		}
	}
	if err := p.Confirm(ctx, yes, "Is each of these the Consul of its region?"); err != nil {
		return err
	}
	var list []report.RegionResult
	var all []report.Region
	for i, t := range targets { // in order: of two regions with one Consul, the first gets it
		if r := &results[i]; r.Outcome == rollout.Untouched {
			var done bool
			switch done, r.Err = t.Claim(ctx); {
			case r.Err != nil:
				r.Outcome = rollout.Failed
			case done:
				r.Outcome = rollout.Applied
			default:
				r.Outcome = rollout.AlreadyThere
			}
		}
		here := report.Failed(results[i], "its name")
		all, list = append(all, here), append(list, report.ResultOf(here))
	}
	named := report.NamesOf(report.With(all, rollout.Applied))
	p.RecordAct(ctx, named, by, "name the region"+term.Reason(message))
	return cmp.Or(report.Outcome(ctx, all, len(named) > 0, nil, term.Partial), p.Show(list, func(b *bytes.Buffer, s term.Style) { report.WriteResults(b, s, list) }))
}
