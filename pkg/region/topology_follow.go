package region

import (
	"context"
	"errors"
	"sync"
)

// FollowTopology calls each with the topology that the only region of c holds, immediately
// and whenever it changes, until ctx ends. Missing or invalid data or an unreachable Consul
// does not change it: each then gets the last topology (nil before the first) and the
// reason. Only Regions, Verify and RequireSigned of c are used.
func FollowTopology(ctx context.Context, c FollowConfig, each func(*Topology, error)) {
	f := NewFollower(c)
	r := c.Regions[0]
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { f.watchTopology(ctx, r) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
		}
		f.mu.Lock()
		facts := *f.facts[r.Name]
		f.mu.Unlock()
		each(facts.topology, errors.Join(facts.topologyErr, facts.signatureErr))
	}
}

// Names returns the regions' names in order.
func (t *Topology) Names() []string {
	names := make([]string, len(t.Regions))
	for i, r := range t.Regions {
		names[i] = r.Name
	}
	return names
}
