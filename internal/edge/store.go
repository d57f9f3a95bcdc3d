package edge

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/lease"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/report"
)

// storage holds the stores behind decisions.
type storage struct {
	local    *memory.Store
	shared   *redisstore.Store // nil without Redis
	fallback *limiter.Fallback // nil without Redis
	leases   *lease.Store      // nil without Redis
	reports  *report.Store     // nil without Redis
	shards   *shardStates      // nil without Redis
	nodes    atomic.Int64      // how many share the store
}

// openStore composes the layers that decide. From the request inwards:
//
//	Denied    refusals known to still apply: no I/O
//	report    what this node knows of reported limits: no I/O
//	lease     what this node was granted in advance: no I/O
//	Spread    all or nothing across slots (cluster only)
//	Fallback  each rule's policy while the store is unreachable
//	Store     the master that owns the key; per master:
//	  Breaker   stop paying for a master that does not answer
//	  Combine   one round trip for all waiting decisions, within the time budget
//	  node      one script, atomically
func (e *Edge) openStore() error {
	c := &e.config.Store
	e.local = memory.New(memory.Config{MaxKeys: c.MaxKeys})
	if c.Kind == "memory" {
		e.decider.Store = limiter.Forgetful{TakeReturner: e.local}
		e.metrics.storeUp.Set(1)
		return nil
	}
	rc, err := c.RedisConfig()
	if err != nil {
		return err
	}
	e.shards = newShardStates(e.log, e.metrics)
	rc.Hooks = redisstore.Hooks{
		Batch: func(calls int) { e.metrics.batchSize.Observe(float64(calls)) },
		Shard: e.shards.set, Eviction: e.shards.evicts,
		Clock: func(addr string, by time.Duration) { clockSet(e.log, e.metrics, "store", addr, by) },
	}
	e.metrics.storeUp.Set(1) // until a shard is reported
	shared, err := redisstore.Open(rc)
	if err != nil {
		return err
	}
	e.shared = shared
	nodes := func() int { return int(e.nodes.Load()) }
	e.fallback = limiter.NewFallback(shared, e.local, nodes, e.shards.failed)
	var next limiter.TakeReturner = e.fallback
	var returns time.Duration
	if shared.Slots() {
		spread := limiter.NewSpread(e.fallback, c.Timeout)
		next, returns = spread, spread.Returns()
	}
	e.leases = lease.New(lease.Config{Next: next, Grants: shared, Nodes: nodes, Returns: returns})
	e.metrics.registry.MustRegister(leaseMetrics{e.leases})
	e.reports = report.New(report.Config{
		Next: e.leases, Reporter: shared, Local: e.fallback, Nodes: nodes, Trip: c.Timeout, Failed: e.shards.failed,
	})
	e.metrics.registry.MustRegister(reportMetrics{e.reports})
	e.remember(limiter.NewDenied(e.reports, c.DeniedMemory, returns))
	return nil
}

// startPatience bounds how long a starting node waits for its store.
const startPatience = time.Second

// awaitStore waits so that the node's first requests count with the others': until the
// store has answered they would fall back. Connections wait in the listener's queue
// meanwhile.
func (e *Edge) awaitStore(ctx context.Context) {
	if e.shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := e.shared.Await(ctx); err != nil {
		e.log.Warn("starting without the store; rules apply on_store_failure", "error", err)
	}
}

// remember puts the memory of refusals in front.
func (e *Edge) remember(denied *limiter.Denied) {
	e.decider.Store = denied
	e.rules.keep = func(holds func(*limiter.Limit) bool) {
		denied.Keep(holds)
		if e.leases != nil {
			e.leases.Keep(holds)
			e.reports.Keep(holds)
		}
	}
}
