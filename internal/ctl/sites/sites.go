// Package sites reads what each region's Consul reports about PoPs.
package sites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Region is what one region's Consul reports about PoPs.
type Region struct {
	topology *region.Topology // nil: none that can be read
	Drains   region.Drains
	Unread   error         // why its drains are unknown
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
		if err == nil {
			s.Drains = *drains
		} else if index > 0 || errors.Is(err, consul.ErrGone) {
			s.Unread = fmt.Errorf("%w; nobody can drain or undrain there before regionctl undo drain --region %s gives it what it had", err, t.Name)
			t.Warn("%s: %v", t.Name, s.Unread)
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
		if s.Unread == nil {
			all = append(all, s.Drains)
		}
	}
	return all
}

func SameDrain(a, b *region.Drain) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

// Strands says which PoPs some drains take out of DNS although no other would be left: in the
// topology, not drained, with an edge that passes. changed has the next drains of each region that
// gets others. "": none.
func Strands(list []*Region, changed map[*Region]region.Drains) string {
	var after []*Region
	for _, s := range list {
		if next, is := changed[s]; is {
			s = &Region{topology: s.topology, Drains: next, Nodes: s.Nodes}
		}
		after = append(after, s)
	}
	was, _ := Overall(list)
	is, _ := Overall(after)
	var out []string
	for _, pop := range slices.Sorted(maps.Keys(is)) {
		if was[pop] == nil {
			out = append(out, pop)
		}
	}
	serving := map[string]bool{}
	for _, s := range after {
		for _, n := range s.Nodes {
			serving[n.PoP] = serving[n.PoP] || n.Passing
		}
	}
	left := slices.ContainsFunc(after, func(s *Region) bool {
		return slices.ContainsFunc(s.Pops(), func(pop string) bool { return serving[pop] && is[pop] == nil })
	})
	if len(out) == 0 || left {
		return ""
	}
	return fmt.Sprintf("without %s no healthy PoP would be left that is not drained, and DNS would keep answering with it; put another back with regionctl undrain", strings.Join(out, ", "))
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
