package ctl

import (
	"cmp"
	"context"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// sites is what one region's Consul reports about PoPs.
type sites struct {
	topology *region.Topology // nil: none that can be read
	drains   region.Drains
	nodes    []consul.Node // of this region
}

func siteOf(ctx context.Context, t *fleet.Target) (*sites, error) {
	s := &sites{}
	err := fleet.Together(func() error {
		topology, index, err := region.PublishedTopology(ctx, t.Consul)
		if s.topology = topology; index > 0 { // Consul answers; what cannot be read is none
			return nil
		}
		return err
	}, func() (err error) {
		var wrong []error
		s.drains, wrong, err = region.ListDrains(ctx, t.Consul)
		for _, e := range wrong {
			t.Warn("%s: %v", t.Name, e)
		}
		return err
	}, func() (err error) {
		s.nodes, err = t.Nodes(ctx)
		return err
	})
	return s, err
}

func (s *sites) pops() (names []string) {
	if s.topology != nil {
		for _, r := range s.topology.Regions {
			for _, p := range r.PoPs {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

// drainOf returns the drain of a PoP, whether or not it is over, or nil.
func (s *sites) drainOf(pop string) *region.Drain {
	if d, is := s.drains.Begun[pop]; is {
		return &d
	}
	return nil
}

func drainsOf(list []*sites) (all []region.Drains) {
	for _, s := range list {
		all = append(all, s.drains)
	}
	return all
}

func sameDrain(a, b *region.Drain) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

// overall returns what applies to the fleet: for each PoP the oldest drain that any region
// holds, and the first topology found.
func overall(list []*sites) (map[string]*region.Drain, *region.Topology) {
	drains, all := map[string]*region.Drain{}, drainsOf(list)
	var topology *region.Topology
	for _, s := range list {
		topology = cmp.Or(topology, s.topology)
		for name := range s.drains.Begun {
			if d := region.Oldest(name, all, region.Ended(name, all)); d != nil {
				drains[name] = d
			}
		}
	}
	return drains, topology
}
