package region

import (
	"math"
	"slices"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// fullestNode bounds how full one of two nodes counts. One that can serve hardly anything, as
// with a fault of its own, would otherwise send away most clients of the other.
const fullestNode = 2

// The nodes of a PoP are alike. So where there are enough for a median, no node counts for
// more demand than apart times the median, nor for a capacity further from it: a single node
// with false figures moves few clients. Chance and the heaviest networks stay below that.
const (
	enough = 3
	apart  = 1.25
)

// leastLoad is below what means anything: a request in a quarter of an hour.
const leastLoad = 1e-3

// SetLoad sets the PoP's demand and capacity from what its passing nodes publish. Nodes that
// tell nothing, those without a shedder, count as the mean of the others, since all nodes of a
// PoP are alike.
func (s *PoPState) SetLoad(passing []consul.Instance, stated *float64) {
	s.Demand, s.Capacity, s.CapacityEstimated = 0, 0, false
	reporting := slices.DeleteFunc(slices.Clone(passing), func(n consul.Instance) bool { return !n.TellsLoad })
	if len(reporting) == 0 {
		return
	}
	demands, most := make([]float64, len(reporting)), math.Inf(1)
	for i, n := range reporting {
		demands[i] = n.Demand
	}
	if len(reporting) >= enough {
		most = apart * median(demands)
	}
	capacities := s.capacities(reporting, most, len(passing), stated)
	if len(reporting) >= enough {
		middle := median(capacities)
		for i := range reporting {
			demands[i] = min(demands[i], most)
			capacities[i] = max(middle/apart, min(capacities[i], apart*middle))
		}
	}
	var full, demand, capacity float64
	for i, d := range demands {
		c := max(capacities[i], leastLoad)
		demand, capacity = demand+d, capacity+c
		if d > 0 {
			full += d * min(d/c, fullestNode)
		}
	}
	all := float64(len(passing)) / float64(len(reporting))
	if demand < leastLoad {
		s.Capacity = capacity * all
		return
	}
	s.Demand = demand * all
	even := demand / capacity
	s.Capacity = s.Demand / fullness(max(full/demand, even), even)
}

// capacities returns what each node can serve: what it measured while full; else what enough
// others measured; else the topology's figure for the PoP divided among all of its nodes; else
// what it promises. An idle node promises many times what it serves, so no promise counts for
// more than that of the node with the most demand that counts, which has shown more of what such a
// node can do.
func (s *PoPState) capacities(reporting []consul.Instance, most float64, passing int, stated *float64) []float64 {
	var measured []float64
	busiest := consul.Instance{Load: consul.Load{Demand: -1}}
	for _, n := range reporting {
		if n.Capacity > 0 {
			measured = append(measured, n.Capacity)
		}
		if n.Demand > busiest.Demand && n.Demand <= most {
			busiest = n
		}
	}
	few, all := 1, 1 // measurements that show that the PoP was full, and that count for all nodes
	if len(reporting) >= enough {
		few, all = 2, enough
	}
	s.CapacityEstimated = stated == nil && len(measured) < few
	list := make([]float64, len(reporting))
	for i, n := range reporting {
		switch {
		case n.Capacity > 0:
			list[i] = n.Capacity
		case len(measured) >= all:
			list[i] = median(measured)
		case stated != nil:
			list[i] = *stated / float64(max(s.Nodes, passing))
		default:
			// No evidence says that it cannot serve its demand.
			list[i] = max(min(n.CapacityAtLeast, max(busiest.Capacity, busiest.CapacityAtLeast)), n.Demand/receiveTo)
		}
	}
	return list
}

// median returns the median of a list that is not empty.
func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// fullness returns how full a PoP is: between the fullness of the node that a client uses,
// averaged over clients, and the fullness if clients spread evenly. Room on one node does
// not help clients of another: with one node overloaded and one idle, a PoP is full. But
// while all nodes have room, what matters is what new clients find, and answers spread
// those evenly.
func fullness(found, even float64) float64 {
	return even + (found-even)*min(1, found/returnBelow)
}
