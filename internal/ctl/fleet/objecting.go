package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
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
	for _, line := range silent.Lines(CouldNotAsk) {
		t.Warn("%s: an objection does not count, because its node does not prove what it is: %s", t.Name, line)
	}
	return real
}

// Unsigned returns the objections of nodes that require other signatures than the next version has
// or gets from signer, one for each requirement, and that of routers, which do not register: they
// may require signatures if the active topology has one.
func (t *Target) Unsigned(ctx context.Context, nodes []consul.Node, active, next string, signer *sign.Key) (list []Objection, err error) {
	ofRouters := t.Kind.Reads == nil
	if ofRouters { // only nodes with peers follow it, too
		nodes = Filter(nodes, func(n consul.Node) bool { return n.Peer != "" })
	}
	var was, by []string
	if ofRouters && active != "" {
		was, err = t.signedBy(ctx, active)
	}
	if err != nil || len(was) == 0 && !slices.ContainsFunc(nodes, func(n consul.Node) bool { return !Accepts(n) }) {
		return nil, err
	}
	if by, err = t.signedBy(ctx, next); err != nil {
		return nil, err
	}
	if signer != nil {
		by = append(by, signer.ID())
	}
	if len(was) > 0 && len(by) == 0 {
		list = append(list, Objection{"the active topology is signed, so routers with --require-signed would keep it; sign the next one with --sign KEYFILE", []string{t.Name + " routers"}})
	}
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
	return list, nil
}

// signedBy returns the IDs of the keys that have signed a version for good.
func (t *Target) signedBy(ctx context.Context, version string) (keys []string, err error) {
	ctx, cancel := t.Bounded(ctx)
	defer cancel()
	list, err := t.Docs.Signatures(ctx, version)
	if sign.IsFault(err) {
		err = nil
	}
	for _, s := range list {
		if s.Until == nil {
			keys = append(keys, s.Key)
		}
	}
	return keys, err
}

// Accepts reports whether a node accepts what one of these keys has signed.
func Accepts(n consul.Node, keys ...string) bool {
	wants := strings.Split(n.SignedBy, ",")
	return n.SignedBy == "" || slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(wants, key) })
}
