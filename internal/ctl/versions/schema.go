package versions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Unread says which registered nodes cannot read documents of the targets' kind. If the nodes
// cannot be listed, it warns.
func Unread(ctx context.Context, p *command.Program, targets []*fleet.Target) (list []fleet.Objection) {
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (o fleet.Objection, err error) {
		if t.Kind.Reads == nil {
			return o, nil
		}
		nodes, err := t.Nodes(ctx)
		old := map[string][]string{} // by remedy
		for _, n := range t.Objecting(ctx, nodes, func(n consul.Node) bool { return t.Kind.Reads(n) < t.Kind.Schema }) {
			reads := t.Kind.Reads(n)
			text, remedy := "none", t.Kind.Remedy
			if reads > 0 {
				text, remedy = strconv.Itoa(reads), kinds.UpdateFirst
			}
			o.Of = append(o.Of, fmt.Sprintf("%s in %s reads %s", term.Printable(n.ID), t.Name, text))
			old[remedy] = append(old[remedy], o.Of[len(o.Of)-1])
		}
		if len(old) == 0 {
			return o, err
		}
		var parts []string
		for _, remedy := range slices.Sorted(maps.Keys(old)) {
			parts = append(parts, strings.Join(old[remedy], ", ")+": "+remedy)
		}
		o.Line = fmt.Sprintf("%s need nodes that read schema %d; %s", t.Kind.What, t.Kind.Schema, strings.Join(parts, "; "))
		return o, nil
	}) {
		switch {
		case a.Err != nil:
			p.Warn("%s: whether its nodes can read the document is unknown: %v", a.Target.Name, a.Err)
		case a.Value.Of != nil:
			list = append(list, a.Value)
		}
	}
	return list
}
