package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Objection is what speaks against a change: a line for people, and in Of each node's part of it.
type Objection struct {
	Line string
	Of   []string
}

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

// Unsigned returns the objections of nodes that require other signatures than those by these keys,
// one for each requirement.
func (t *Target) Unsigned(ctx context.Context, nodes []consul.Node, by []string) (list []Objection) {
	ids := map[string][]string{} // of nodes, by the keys that they require
	for _, n := range t.Objecting(ctx, nodes, func(n consul.Node) bool { return !Accepts(n, by...) }) {
		ids[n.SignedBy] = append(ids[n.SignedBy], term.Printable(n.ID))
	}
	for _, keys := range slices.Sorted(maps.Keys(ids)) {
		accept := "accepts"
		if len(ids[keys]) > 1 {
			accept = "accept"
		}
		o := Objection{Line: fmt.Sprintf("%s in %s %s only what is signed by key %s; sign it with --sign KEYFILE", strings.Join(ids[keys], ", "), t.Name, accept, term.Printable(strings.ReplaceAll(keys, ",", " or ")))}
		for _, id := range ids[keys] {
			o.Of = append(o.Of, t.Name+" "+id+" "+keys)
		}
		list = append(list, o)
	}
	return list
}

// Accepts reports whether a node accepts what one of these keys has signed.
func Accepts(n consul.Node, keys ...string) bool {
	wants := strings.Split(n.SignedBy, ",")
	return n.SignedBy == "" || slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(wants, key) })
}
