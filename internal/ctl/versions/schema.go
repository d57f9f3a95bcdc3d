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
func Unread(ctx context.Context, p *command.Program, targets []*fleet.Target) (lines []string) {
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (string, error) {
		if t.Kind.Reads == nil {
			return "", nil
		}
		nodes, err := t.Nodes(ctx)
		old := map[string][]string{} // by remedy
		for _, n := range t.Objecting(ctx, nodes, func(n consul.Node) bool { return t.Kind.Reads(n) < t.Kind.Schema }) {
			reads := t.Kind.Reads(n)
			text, remedy := "none", t.Kind.Remedy
			if reads > 0 {
				text, remedy = strconv.Itoa(reads), kinds.UpdateFirst
			}
			old[remedy] = append(old[remedy], fmt.Sprintf("%s in %s reads %s", term.Printable(n.ID), t.Name, text))
		}
		if len(old) == 0 {
			return "", err
		}
		var parts []string
		for _, remedy := range slices.Sorted(maps.Keys(old)) {
			parts = append(parts, strings.Join(old[remedy], ", ")+": "+remedy)
		}
		return fmt.Sprintf("%s need nodes that read schema %d; %s", t.Kind.What, t.Kind.Schema, strings.Join(parts, "; ")), nil
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
