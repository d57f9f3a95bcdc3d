package edge

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"

	"github.com/weir-edge/weir/pkg/region"
)

// openConsul prepares to follow Consul, if that is where the rules come from, and
// puts the cached rules in force. It connects to nothing yet.
func (e *Edge) openConsul() error {
	var err error
	if e.consul, err = region.OpenConsul(e.config.Consul.ConsulConfig); err != nil {
		return fmt.Errorf("consul: %w", err)
	}
	e.consulState = newCondition(e.log, "consul cannot be read, the node goes on with what it has", "consul can be read again", errNoAnswer)
	e.cacheState = newCondition(e.log, "rules cannot be cached, a start needs consul until they can", "rules are cached again", nil)
	if e.config.Consul.Register {
		e.registration = newCondition(e.log, "the node is not registered in consul", "the node is registered in consul again", errNoAnswer)
	}
	e.follower, err = newFollower(e)
	return err
}

// followConsul follows until ctx ends, and keeps the node registered until registered
// ends.
func (e *Edge) followConsul(wg *sync.WaitGroup, ctx, registered context.Context, public, admin net.Addr) {
	wg.Go(func() { e.follower.run(ctx) })
	if e.shared != nil && e.config.Store.Nodes == nil {
		wg.Go(func() { e.consul.WatchNodes(ctx, nil, e.countNodes) })
	}
	if e.registration != nil {
		wg.Go(func() { e.followLevel(ctx) })
		wg.Go(func() { e.register(registered, public, admin) })
	}
}

// register keeps the node registered until ctx ends, and then deregisters it, within
// 2 s in all.
func (e *Edge) register(ctx context.Context, public, admin net.Addr) {
	r, err := e.config.registration(public, admin)
	if err != nil {
		e.registration.note(err)
		return
	}
	e.consul.Register(ctx, r, e.meta, e.stateChanged, e.registration.note)
}

// meta is what the node's registration says beside where it is.
func (e *Edge) meta() map[string]string {
	meta := e.state.Load().meta()
	if told := e.shedderMeta.Load(); told != nil {
		maps.Copy(meta, *told)
	}
	if level := e.levelMeta(); level != "" {
		meta["shed_level"] = level
	}
	return meta
}

// countNodes takes the catalogue of nodes. That none of this region lives, though
// this one does, is no news but a catalogue that knows nothing: all would then take
// the whole limit as their share.
func (e *Edge) countNodes(all []region.Node) {
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
