// Package sites reads what each region's Consul reports about PoPs.
package sites

import (
	"cmp"
	"context"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Region is what one region's Consul reports about PoPs.
type Region struct {
	topology *region.Topology // nil: none that can be read
	Drains   region.Drains
	Nodes    []consul.Node // of this region
}

func Of(ctx context.Context, t *fleet.Target) (*Region, error) {
	s := &Region{}
	err := fleet.Together(func() error {
		topology, index, err := region.PublishedTopology(ctx, t.Consul)
		if s.topology = topology; index > 0 { // Consul answers; what cannot be read is none
			return nil
		}
		return err
	}, func() error {
		drains, index, err := region.PublishedDrains(ctx, t.Consul)
		if s.Drains = *drains; err != nil && index > 0 {
			t.Warn("%s: %v", t.Name, err)
			return nil
		}
		return err
	}, func() (err error) {
		s.Nodes, err = t.Nodes(ctx)
		return err
	})
	return s, err
}

func (s *Region) Pops() (names []string) {
	if s.topology != nil {
		for _, r := range s.topology.Regions {
			for _, p := range r.PoPs {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

// DrainOf returns the drain of a PoP, whether or not it is over, or nil.
func (s *Region) DrainOf(pop string) *region.Drain {
	if d, is := s.Drains.Begun[pop]; is {
		return &d
	}
	return nil
}

func DrainsOf(list []*Region) (all []region.Drains) {
	for _, s := range list {
		all = append(all, s.Drains)
	}
	return all
}

func SameDrain(a, b *region.Drain) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

// Overall returns what applies to the fleet: for each PoP the oldest drain that any region
// holds, and the first topology found.
func Overall(list []*Region) (map[string]*region.Drain, *region.Topology) {
	drains, all := map[string]*region.Drain{}, DrainsOf(list)
	var topology *region.Topology
	for _, s := range list {
		topology = cmp.Or(topology, s.topology)
		for name := range s.Drains.Begun {
			if d := region.Oldest(name, all, region.Ended(name, all)); d != nil {
				drains[name] = d
			}
		}
	}
	return drains, topology
}
