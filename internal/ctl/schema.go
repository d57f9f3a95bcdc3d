package ctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// needer is a document of any kind.
type needer interface {
	// Needs returns the schema that its readers must support, and which part needs it.
	Needs() (schema int, what string)
}

func (b *ruleBook) Needs() (schema int, what string) { return rules.Needs(b.rules) }

// unread says which registered nodes cannot read what their regions are to have. If the
// nodes cannot be listed, it warns.
func (p *program) unread(ctx context.Context, targets []*fleet.Target, next func(*fleet.Target) *fleet.Document) (lines []string) {
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (string, error) {
		schema, what := next(t).Body.(needer).Needs()
		if schema == 1 && t.Kind != policyKind { // every node reads it
			return "", nil
		}
		nodes, err := t.Nodes(ctx)
		old := map[string][]string{} // by remedy
		for _, n := range nodes {
			reads := t.Kind.Reads(n)
			if reads >= schema {
				continue
			}
			text := "none"
			if reads > 0 {
				text = strconv.Itoa(reads)
			}
			old[t.Kind.Remedy(n)] = append(old[t.Kind.Remedy(n)], fmt.Sprintf("%s in %s reads %s", term.Printable(n.ID), t.Name, text))
		}
		if len(old) == 0 {
			return "", err
		}
		var parts []string
		for _, remedy := range sortedKeys(old) {
			parts = append(parts, strings.Join(old[remedy], ", ")+": "+remedy)
		}
		return fmt.Sprintf("%s needs a node that reads schema %d; %s, or remove it", what, schema, strings.Join(parts, "; ")), nil
	}) {
		switch {
		case a.Err != nil:
			p.Warn("%s: whether its nodes can read the document is unknown: %v", a.Target.Name, a.Err)
		case a.Value != "":
			lines = append(lines, a.Value)
		}
	}
	return lines
}

func update(consul.Node) string { return "update it first" }

// readable refuses a document that a registered node of an affected region cannot read:
// that node would keep the old one, and count apart from the others.
func (c *change) readable(ctx context.Context) error {
	news := fleet.Filter(c.with(rollout.Untouched), func(r *regionChange) bool { return !r.step.ends })
	lines := c.p.unread(ctx, targetsOf(news), func(t *fleet.Target) *fleet.Document { return c.region(t.Name).step.next })
	if lines == nil {
		return nil
	}
	return term.Failed("nothing was changed: %s", strings.Join(lines, "\n"))
}
