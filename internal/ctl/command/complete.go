package command

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

type Completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

func CompleteWords(c *cobra.Command, flag string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails only if the flag is unknown
}

func CompleteFiles(c *cobra.Command, flag string, extensions ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	})
}

// CompleteDocument completes the first argument with documents, the second with any
// file, and nothing after that.
func CompleteDocument(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
	case 1:
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (p *Program) CompleteRegions(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names, _ := p.KnownRegions() // without a fleet file, there are none
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteFromConsul completes with what the regions of the fleet know.
func CompleteFromConsul(p *Program, k *fleet.Kind, names *[]string, look func(context.Context, *fleet.Target) ([]string, error)) Completion {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		targets, err := p.Targets(k, *names)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, p.CompletionTime)
		defer cancel()
		var words []string
		for _, a := range fleet.Ask(ctx, targets, look) {
			words = append(words, a.Value...)
		}
		return term.Distinct(words), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// CompleteVersions offers the versions of the history, the newest first.
func (p *Program) CompleteVersions(k *fleet.Kind, names *[]string) Completion {
	return CompleteFromConsul(p, k, names, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		changes, _, err := t.Docs.History(ctx, 64)
		return fleet.Map(changes, func(c consul.Change) string {
			return c.Version + "\t" + term.Stamp(c.AppliedAt) + " " + term.Printable(c.AppliedBy+" "+c.Message)
		}), err
	})
}

// CompleteVersion offers them for the only argument.
func (p *Program) CompleteVersion(k *fleet.Kind, names *[]string) Completion {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.CompleteVersions(k, names)(cmd, args, text)
	}
}

// CompleteNodes offers a property of the registered edges.
func (p *Program) CompleteNodes(names *[]string, of func(consul.Node) string) Completion {
	return CompleteFromConsul(p, kinds.Rules, names, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		nodes, err := t.Nodes(ctx)
		words := fleet.Map(nodes, func(n consul.Node) string { return term.Printable(of(n)) })
		slices.Sort(words)
		return words, err
	})
}

// CompleteRules offers the ids of the active rules.
func (p *Program) CompleteRules(names *[]string) Completion {
	return CompleteFromConsul(p, kinds.Rules, names, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		d, err := fleet.LookActive(ctx, t, "")
		if err != nil {
			return nil, err
		}
		return fleet.Map(kinds.RulesOf(d).Set.Rules(), func(c *rules.Compiled) string { return c.ID + "\t" + term.Printable(c.Description) }), nil
	})
}
