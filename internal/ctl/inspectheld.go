package ctl

import (
	"context"
	"net/url"
	"slices"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// addHeld adds to an explanation what the other edges of the region hold of its leased
// limits. It returns how many of them did not answer.
func addHeld(ctx context.Context, t *fleet.Target, nodes []consul.Node, answered consul.Node, e *adminapi.Explanation, q url.Values) (silent int) {
	if !slices.ContainsFunc(e.Rules, func(r adminapi.RuleDecision) bool { return r.Leased }) {
		return 0
	}
	others := fleet.Filter(nodes, func(n consul.Node) bool { return n.ID != answered.ID })
	said := make([]*adminapi.Explanation, len(others))
	fleet.Each(others, func(i int, n consul.Node) {
		brief, cancel := t.Bounded(ctx)
		defer cancel()
		if other, err := t.Admin.Explain(brief, n, q); err == nil {
			said[i] = other
		}
	})
	for _, other := range said {
		if other == nil {
			silent++
			continue
		}
		for i := range e.Rules {
			for _, r := range other.Rules {
				if r.Leased && r.Key == e.Rules[i].Key {
					e.Rules[i].Held += r.Held
				}
			}
		}
	}
	return silent
}
