package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Target is a region that a command works on.
type Target struct {
	Name   string
	Consul *consul.Client
	Kind   *Kind
	Docs   *consul.Documents // of that kind
	Admin  *Admin

	Timeout time.Duration // of one question to its Consul
	Prefix  string        // of the keys that its edges follow
	Warn    func(format string, args ...any)
	strayed sync.Once // the warning of strangers
}

// Nodes are the registered edges of the region. One datacenter may serve several
// regions, each with a prefix of its own.
func (t *Target) Nodes(ctx context.Context) ([]consul.Node, error) {
	all, err := t.Consul.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var own []consul.Node
	renamed, misled := map[string]int{}, map[string]int{}
	for _, n := range all {
		switch here := n.Prefix == "" || n.Prefix == t.Prefix; {
		case here && n.Region == t.Name:
			own = append(own, n)
		case here:
			renamed[n.Region]++
		case n.Region == t.Name:
			misled[n.Prefix]++
		}
	}
	if len(renamed)+len(misled) > 0 {
		t.strayed.Do(func() {
			for _, name := range slices.Sorted(maps.Keys(renamed)) {
				t.Warn("%s: %s in region %s; the fleet file calls this one %s", t.Name, claim(renamed[name]), term.OrDash(name), t.Name)
			}
			for _, prefix := range slices.Sorted(maps.Keys(misled)) {
				t.Warn("%s: %s configured with consul.prefix %s; the fleet file says %s", t.Name, claim(misled[prefix]), term.Printable(prefix), t.Prefix)
			}
		})
	}
	return own, nil
}

// claim begins a sentence about what nodes say of themselves.
func claim(nodes int) string {
	if nodes == 1 {
		return "1 node says it is"
	}
	return fmt.Sprintf("%d nodes say they are", nodes)
}

// Bounded limits one question to its Consul.
func (t *Target) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, t.Timeout, fmt.Errorf("no answer within %s", t.Timeout))
}
