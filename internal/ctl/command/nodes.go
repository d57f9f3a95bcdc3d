package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Candidates returns the nodes of a region to ask, best first: those that pass, and among
// them those not on trial, because they count by the active rules.
func Candidates(ctx context.Context, t *fleet.Target, id string) ([]consul.Node, error) {
	nodes, err := t.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if id != "" {
		nodes = fleet.Filter(nodes, func(n consul.Node) bool { return n.ID == id })
		if len(nodes) == 0 {
			return nil, fmt.Errorf("no edge %q is registered there; regionctl rules status lists them", id)
		}
		return nodes, nil
	}
	if len(nodes) == 0 {
		return nil, errors.New("no edge is registered there, or this token may not see them")
	}
	canaries, _, _ := t.Docs.Canaries(ctx) // without them, the order is only less good
	rank := func(n consul.Node) int {
		_, onTrial := canaries[n.PoP]
		switch {
		case !n.Passing:
			return 2
		case onTrial:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(nodes, func(a, b consul.Node) int { return rank(a) - rank(b) })
	return nodes, nil
}

// mostAttempts is how many nodes of a region are tried before it counts as silent.
const mostAttempts = 3

// AskOne asks a region's nodes in turn until one answers. A refusal is an answer.
func AskOne[T any](ctx context.Context, nodes []consul.Node, question func(context.Context, consul.Node) (T, error)) (T, consul.Node, error) {
	var zero T
	var errs []error
	for _, n := range nodes[:min(len(nodes), mostAttempts)] {
		value, err := question(ctx, n)
		if err == nil {
			return value, n, nil
		}
		var refused *fleet.StatusError
		if errors.As(err, &refused) && refused.Code == 400 {
			return zero, n, term.Misused("%w", err)
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return zero, consul.Node{}, errors.Join(errs...)
}
