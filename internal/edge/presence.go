package edge

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Each node holds a concurrency slot of the store, which shows how many nodes use it.
const (
	presenceEvery  = 10 * time.Second
	presenceWindow = time.Minute // a dead node still counts for this long
	presenceKey    = "weir:{~nodes}"
)

// showPresence holds this node's slot until ctx ends, and warns if more nodes use the store
// than the number by which limits are divided while it is unreachable. It does not warn if
// that number comes from Consul: nodes that start together use the store before Consul lists
// them, and store.nodes would end the counting.
func (e *Edge) showPresence(ctx context.Context) {
	limit := &limiter.Limit{
		Rule: "~nodes", Algorithm: limiter.Concurrency, Limit: limiter.MaxLogLimit, Window: presenceWindow,
	}
	checks := []limiter.Check{{Limit: limit, Key: []byte(presenceKey), Cost: 1, Slot: rand.Uint64()}}
	var d limiter.Decision
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	counted := e.registration != nil && e.config.Store.Nodes == nil
	warned := int64(0)
	for {
		if err := e.chain.Shared.Take(ctx, checks, &d); err == nil {
			seen, nodes := limit.Limit-d.Results[0].Remaining, e.nodes.Load()
			if !counted && seen > nodes && seen > warned {
				e.log.Warn("more nodes use the store than store.nodes says, so together they pass more than a limit while it is unreachable; set it to their number",
					"seen", seen, "store_nodes", nodes)
				warned = seen
			}
		}
		select {
		case <-ctx.Done():
			if len(d.Results) > 0 {
				_ = e.chain.Shared.Return(context.WithoutCancel(ctx), checks, &d) // otherwise it expires
			}
			return
		case <-tick.C:
		}
	}
}
