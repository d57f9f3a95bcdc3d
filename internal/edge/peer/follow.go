package peer

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// lookEvery is how often another region's nodes are listed, plus or minus a fifth. A
	// watch would wake at each change of their load.
	lookEvery   = 10 * time.Second
	lookTimeout = 5 * time.Second
	// changeEvery is how soon a new region is noticed.
	changeEvery = time.Second
)

// Follower updates a Directory from the Consul of its region: the topology lists the
// regions, and other datacenters, joined over the WAN, list their nodes.
type Follower struct {
	Directory   *Directory
	Consul      *consul.Client
	Datacenters map[string]string // for regions whose datacenter has another name
	// Topology calls each with the topology's regions, now and at every change, until ctx
	// ends.
	Topology func(ctx context.Context, each func([]string))
	// State gets nil for each answer about another region, and an error for each failure.
	State func(region string, err error)
}

// Run follows until ctx ends. The caller sets the nodes of its own region.
func (f *Follower) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { f.Topology(ctx, f.Directory.SetRegions) })
	followed := map[string]bool{}
	for ended := error(nil); ended == nil; ended = consul.Pause(ctx, changeEvery) {
		for _, name := range f.Directory.Regions() {
			if !followed[name] && name != f.Directory.self.Region && !f.Directory.lists(name) {
				followed[name] = true
				all.Go(func() { f.follow(ctx, name) })
			}
		}
	}
}

// follow keeps the nodes of one region while it is in the topology.
func (f *Follower) follow(ctx context.Context, name string) {
	datacenter := cmp.Or(f.Datacenters[name], name)
	for failures := 0; ctx.Err() == nil; {
		pause := lookEvery*4/5 + rand.N(lookEvery*2/5)
		if slices.Contains(f.Directory.Regions(), name) {
			list, err := f.Consul.InstancesVia(ctx, f.Consul, datacenter, lookTimeout)
			if ctx.Err() != nil {
				return
			}
			f.State(name, err)
			if err != nil {
				pause = consul.Backoff(failures, rand.Float64())
				failures++
			} else {
				failures = 0
				nodes := make([]consul.Node, len(list))
				for i, n := range list {
					nodes[i] = n.Node
				}
				f.Directory.SetNodes(name, Reachable(nodes, name, f.Consul.Prefix()))
			}
		}
		_ = consul.Pause(ctx, pause)
	}
}

// Reachable returns the nodes of a region and fleet that have a peer listener and pass
// their check, or all that have a listener if none passes.
func Reachable(all []consul.Node, region, prefix string) (nodes []Node) {
	passing := false
	for _, n := range all {
		if n.Region != region || n.Peer == "" || n.Prefix != "" && n.Prefix != prefix {
			continue
		}
		if n.Passing && !passing {
			passing, nodes = true, nil
		}
		if n.Passing == passing {
			nodes = append(nodes, Node{Region: n.Region, ID: n.ID, Addr: n.Peer})
		}
	}
	return nodes
}
