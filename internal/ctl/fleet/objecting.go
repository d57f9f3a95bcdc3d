package fleet

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// Objecting returns the nodes that object to a change and prove that they are nodes. It warns of the
// others.
func (t *Target) Objecting(ctx context.Context, nodes []consul.Node, objects func(consul.Node) bool) []consul.Node {
	nodes = Filter(nodes, objects)
	faults := make([]error, len(nodes))
	Each(nodes, func(i int, _ consul.Node) { faults[i] = t.Admin.Prove(ctx, &nodes[i]) })
	var silent Reasons
	var real []consul.Node
	for i, n := range nodes {
		if faults[i] != nil {
			silent.Add(n.ID, Reason(faults[i]))
		} else if objects(n) {
			real = append(real, n)
		}
	}
	for _, line := range silent.Lines(Unasked) {
		t.Warn("%s: an objection does not count, because its node does not prove what it is: %s", t.Name, line)
	}
	return real
}

// Accepts reports whether a node accepts what one of these keys has signed.
func Accepts(n consul.Node, keys ...string) bool {
	wants := strings.Split(n.SignedBy, ",")
	return n.SignedBy == "" || slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(wants, key) })
}
