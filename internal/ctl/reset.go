package ctl

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const resetHelp = `Has the edges forget one counter of one rule, so that the client can go on at once.
Describe a request that the rule counts; regionctl limits explain shows which rules do.

Every edge of the chosen regions is told: the counter is shared, but each edge also
remembers by itself whom it refused. The result is shown for each edge (status 3 if
some could not be told; run it again, a counter can be forgotten twice).

It asks first; --yes does not.`

func (p *program) resetCommand() *cobra.Command {
	var names []string
	var rule string
	var yes bool
	var d described
	c := command("reset", "forget one counter on every edge", resetHelp,
		`  regionctl limits reset --rule login --client 203.0.113.7 --method POST --path /login
  regionctl limits reset --rule api-key --client 203.0.113.7 --header X-Api-Key:abc --yes`,
		func(ctx context.Context, _ []string) error { return p.reset(ctx, names, rule, &d, yes) })
	p.regionFlag(c, &names)
	c.Flags().StringVar(&rule, "rule", "", "the `ID` of the rule")
	_ = c.RegisterFlagCompletionFunc("rule", p.completeRules(&names)) // the flag is known
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	d.flags(c.Flags())
	return c
}

// resetNode is what became of the counter on one edge.
type resetNode struct {
	Region string   `json:"region"`
	Node   string   `json:"node,omitempty"`
	Reset  []string `json:"reset"`
	Error  string   `json:"error,omitempty"`
	// misused says that the edge found the request wrong.
	misused bool
}

func (p *program) reset(ctx context.Context, names []string, rule string, d *described, yes bool) error {
	if rule == "" {
		return misused("--rule is missing; name the rule whose counter is to be forgotten")
	}
	query, err := d.query()
	if err != nil {
		return err
	}
	query.Set("rule", rule)
	targets, closeAll, err := p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, p, targets, func(ctx context.Context, t *target) ([]region.Node, error) { return candidates(ctx, t, "") })
	total := 0
	for _, a := range answers {
		if a.err != nil {
			p.warn("%s: %v", a.target.name, a.err)
		}
		total += len(a.value)
	}
	if total == 0 {
		return failed("there is no edge to tell; nothing was reset")
	}
	if err := p.confirm(ctx, yes, "Reset rule %s for %s on %s in %s?", rule, d.client, plural(total, "edge"), strings.Join(regionNames(targets), ", ")); err != nil {
		return err
	}
	list := []resetNode{}
	for _, a := range askUnbounded(ctx, targets, func(ctx context.Context, t *target) ([]resetNode, error) {
		for _, a := range answers {
			if a.target == t && a.err != nil {
				return []resetNode{{Region: t.name, Reset: []string{}, Error: a.err.Error()}}, nil
			} else if a.target == t {
				return resetAll(ctx, t, a.value, func(n region.Node) ([]string, error) { return t.admin.reset(ctx, n, query) }), nil
			}
		}
		return nil, nil
	}) {
		list = append(list, a.value...)
	}
	if err := p.show(list, func(b *bytes.Buffer, s style) { writeReset(b, s, list) }); err != nil {
		return err
	}
	return resetVerdict(list)
}

func resetAll(ctx context.Context, t *target, nodes []region.Node, reset func(region.Node) ([]string, error)) []resetNode {
	list := make([]resetNode, len(nodes))
	each(nodes, func(i int, n region.Node) {
		keys, err := reset(n)
		list[i] = resetNode{Region: t.name, Node: n.ID, Reset: append([]string{}, keys...)}
		if err != nil {
			var refused *statusError
			list[i].Error = err.Error()
			list[i].misused = errors.As(err, &refused) && (refused.code == http.StatusBadRequest || refused.code == http.StatusNotFound)
		}
	})
	return list
}

func resetVerdict(list []resetNode) error {
	var wrong []string
	bad := 0
	for _, n := range list {
		if n.Error != "" {
			wrong = append(wrong, n.Region+": "+n.Error)
		}
		if n.misused {
			bad++
		}
	}
	why := strings.Join(wrong, "\n  ")
	switch {
	case len(wrong) == 0:
		return nil
	case bad == len(list):
		return misused("nothing was reset:\n  %s", why)
	case len(wrong) == len(list):
		return failed("nothing was reset:\n  %s", why)
	}
	return partial("%d of %s did not reset it; run this again when they can be reached:\n  %s", len(wrong), plural(len(list), "edge"), why)
}

func writeReset(b *bytes.Buffer, s style, list []resetNode) {
	t := table{}
	t.row("REGION", "EDGE", "RESULT", "COUNTER")
	for _, n := range list {
		result := s.green("reset")
		if n.Error != "" {
			result = s.red("failed")
		}
		t.row(n.Region, orDash(n.Node), result, orDashes(n.Reset))
	}
	t.write(b)
}
