package ctl

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// completionTime is how long a user waits after pressing Tab.
const completionTime = time.Second

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

func complete(c *cobra.Command, flag string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails only if the flag is unknown
}

func completeFiles(c *cobra.Command, flag string, extensions ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	})
}

// completeDocument completes the first argument with documents, the second with any
// file, and nothing after that.
func completeDocument(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
	case 1:
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (p *program) completeRegions(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	fleet, err := p.fleet()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, r := range fleet.Regions {
		names = append(names, r.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeFromConsul completes with what the regions of the fleet know.
func completeFromConsul(p *program, k *fleet.Kind, names *[]string, look func(context.Context, *fleet.Target) ([]string, error)) completion {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		targets, err := p.targetsOf(k, *names)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionTime)
		defer cancel()
		var words []string
		for _, a := range fleet.Ask(ctx, targets, look) {
			words = append(words, a.Value...)
		}
		return term.Distinct(words), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeVersions offers the versions of the history, the newest first.
func (p *program) completeVersions(k *fleet.Kind, names *[]string) completion {
	return completeFromConsul(p, k, names, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		changes, _, err := t.Docs.History(ctx, 64)
		var words []string
		for _, c := range changes {
			words = append(words, c.Version+"\t"+term.Stamp(c.AppliedAt)+" "+term.Printable(c.AppliedBy+" "+c.Message))
		}
		return words, err
	})
}

// completeVersion offers them for the only argument.
func (p *program) completeVersion(k *fleet.Kind, names *[]string) completion {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.completeVersions(k, names)(cmd, args, text)
	}
}

// completeNodes offers a property of the registered edges.
func (p *program) completeNodes(names *[]string, of func(consul.Node) string) completion {
	return completeFromConsul(p, kinds.Rules, names, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		nodes, err := t.Nodes(ctx)
		var words []string
		for _, n := range nodes {
			words = append(words, term.Printable(of(n)))
		}
		slices.Sort(words)
		return words, err
	})
}

// completeRules offers the ids of the active rules.
func (p *program) completeRules(names *[]string) completion {
	return completeFromConsul(p, kinds.Rules, names, func(ctx context.Context, t *fleet.Target) ([]string, error) {
		s, err := fleet.Look(ctx, t)
		if err != nil || s.State != fleet.Active || s.Damage != nil {
			return nil, err
		}
		var words []string
		for _, c := range kinds.RulesOf(s.Document).Set.Rules() {
			words = append(words, c.ID+"\t"+term.Printable(c.Description))
		}
		return words, nil
	})
}
