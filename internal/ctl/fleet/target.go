package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	strayed sync.Once // for the warning about edges of other regions

	lookup   sync.Once
	identity *consul.Identity

	confirmed atomic.Bool // its Consul is that of the region
}

// Identity returns the owner of regionctl's token in the region; nil without ACLs, or if it
// cannot be determined.
func (t *Target) Identity(ctx context.Context) *consul.Identity {
	t.lookup.Do(func() {
		ctx, cancel := t.Bounded(ctx)
		defer cancel()
		var err error
		if t.identity, err = t.Consul.Self(ctx); err != nil {
			t.Warn("%s: the history will not say whose token made the change: %v", t.Name, err)
		}
	})
	return t.identity
}

// Ahead is by how much its Consul's clock is ahead of this machine's, as far as that is known.
func (t *Target) Ahead() time.Duration {
	ahead, _ := t.Consul.Ahead()
	return ahead
}

// Registered are the registered edges of the region. It warns of no others.
func (t *Target) Registered(ctx context.Context) ([]consul.Node, error) {
	all, err := t.Consul.Nodes(ctx)
	return Filter(all, t.owns), err
}

func (t *Target) owns(n consul.Node) bool {
	return (n.Prefix == "" || n.Prefix == t.Prefix) && n.Region == t.Name
}

// Nodes returns the registered edges of the region. One datacenter may serve several
// regions, each with its own prefix.
func (t *Target) Nodes(ctx context.Context) ([]consul.Node, error) {
	all, err := t.Consul.Nodes(ctx)
	if err == nil {
		t.warnOfForeign(all)
	}
	return Filter(all, t.owns), err
}

// warnOfForeign warns once of edges that are registered in the region and not of it.
func (t *Target) warnOfForeign(all []consul.Node) {
	renamed, misled := map[string]int{}, map[string]int{}
	for _, n := range all {
		switch here := n.Prefix == "" || n.Prefix == t.Prefix; {
		case t.owns(n):
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
}

// claim begins a sentence about what nodes report about themselves.
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
