package edge

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/edge/chain"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// storage decides.
type storage struct {
	chain  *chain.Chain
	shards *shardStates // nil without Redis
	nodes  atomic.Int64 // how many share the store
	born   int64        // Unix time in microseconds
}

// openStore builds the chain of layers.
func (e *Edge) openStore() error {
	c := &e.config.Store
	config := chain.Config{
		Memory: memory.Config{MaxKeys: c.MaxKeys, Clock: c.Clock}, DeniedMemory: c.DeniedMemory,
		Nodes: func() int { return int(e.nodes.Load()) },
	}
	if e.born = time.Now().UnixMicro(); e.config.Listen.Peer != nil {
		config.Node = e.config.Node.ID + "." + strconv.FormatInt(e.born, 36)
	}
	if c.Kind != "memory" {
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
		config.Redis, config.Failed = &rc, e.shards.failed
	}
	e.metrics.storeUp.Set(1) // until a shard is reported
	var err error
	if e.chain, err = chain.Build(config); err != nil {
		return err
	}
	if e.chain.Shared != nil {
		e.metrics.exportLeases(e.chain.Leases)
		e.metrics.exportReports(e.chain.Reports)
	}
	e.decider.Precheck, e.decider.Take, e.decider.Peek, e.rules.ForgetInactive = e.chain.Precheck, e.chain.Take, e.chain.Peek, e.chain.ForgetInactive
	return nil
}

// startPatience bounds how long a starting node waits for its store.
const startPatience = time.Second

// awaitStore waits so that the node's first requests count with the others': until the
// store has answered they would fall back. Connections wait in the listener's queue
// meanwhile.
func (e *Edge) awaitStore(ctx context.Context) {
	if e.chain.Shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := e.chain.Shared.Await(ctx); err != nil {
		e.log.Warn("starting without the store; rules apply on_store_failure", "error", err)
	}
}
