package edge

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// registrar keeps the node in the region's catalog.
type registrar struct {
	consul       *consul.Client       // nil unless Consul is followed
	registration *documents.Condition // also nil if the node does not register
	stateChanged chan struct{}        // holds one signal
}

// openConsul prepares to follow Consul. It does not connect yet.
func (e *Edge) openConsul() (err error) {
	if e.consul, err = consul.Open(e.config.Consul.Config); err != nil {
		return fmt.Errorf("consul: %w", err)
	}
	if e.config.Consul.Register {
		e.registration = documents.NewCondition(e.log, "the node is not registered in consul", "the node is registered in consul again", documents.ErrNoAnswer)
	}
	return nil
}

// changed causes the registration to be updated soon.
func (r *registrar) changed() {
	select { // one pending signal covers all changes
	case r.stateChanged <- struct{}{}:
	default:
	}
}

// followConsul follows until ctx ends, and keeps the node registered until registered
// ends.
func (e *Edge) followConsul(wg *sync.WaitGroup, ctx, registered context.Context, public, admin net.Addr) {
	counted := e.chain.Shared != nil && e.config.Store.Nodes == nil
	if counted || e.listeners.Peers != nil {
		wg.Go(func() {
			e.consul.WatchNodes(ctx, nil, func(all []consul.Node) {
				if counted {
					e.countNodes(all)
				}
				e.listeners.Peers.TakeNodes(all, e.consul.Prefix())
			})
		})
	}
	if p := e.listeners.Peers; p != nil {
		wg.Go(func() { p.Follow(ctx, e.consul) })
	}
	if e.registration != nil {
		wg.Go(func() { e.registered.Run(ctx, e.changed) })
		wg.Go(func() { e.register(registered, public, admin) })
	}
}

// register keeps the node registered until ctx ends, and then deregisters it, within
// 2 s in all.
func (e *Edge) register(ctx context.Context, public, admin net.Addr) {
	r, err := e.config.Registration(public, admin)
	if err != nil {
		e.registration.Note(err)
		return
	}
	e.consul.Register(ctx, r, e.meta, e.stateChanged, e.registration.Note)
}

// meta returns the metadata of the node's registration.
func (e *Edge) meta() map[string]string {
	meta := map[string]string{consul.MetaSchema: strconv.Itoa(rules.Schema)}
	e.rules.Meta(meta)
	e.shedding.Meta(meta)
	if by := e.config.Documents.SignedBy(); by != "" {
		meta[consul.MetaSignedBy] = by
	}
	if e.tiers != nil {
		e.tiers.Meta(meta)
	}
	if e.clients != nil {
		e.clients.Meta(meta)
	}
	e.registered.Meta(meta)
	e.listeners.Peers.Meta(meta)
	return meta
}

// countNodes updates the number of nodes from the catalog. A catalog without a live node of
// this region is ignored: Consul has lost its data, and every node would take the whole
// limit as its share.
func (e *Edge) countNodes(all []consul.Node) {
	live := 0
	for _, n := range all {
		if n.Region == e.config.Node.Region && n.Passing {
			live++
		}
	}
	if live > 0 {
		e.setNodes(live)
	}
}

func (e *Edge) setNodes(n int) {
	e.nodes.Store(int64(n))
	e.metrics.storeNodes.Set(float64(n))
}
