package region

import (
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// SetLoad sets the PoP's demand and capacity from what its passing nodes publish. What nodes
// measured while they were full comes first; then what the topology states for the PoP with
// all of its nodes; then what they promise. Nodes that tell nothing, those of the previous
// release, count as the mean of the others, since all nodes of a PoP get alike.
func (s *PoPState) SetLoad(passing []consul.Instance, stated *float64) {
	var sum consul.Load
	told, full := 0, 0
	for _, n := range passing {
		if n.TellsLoad {
			told++
			sum.Demand += n.Demand
			sum.CapacityAtLeast += n.CapacityAtLeast
		}
		if n.TellsLoad && n.Capacity > 0 {
			full++
			sum.Capacity += n.Capacity
		}
	}
	s.Demand, s.Capacity = 0, 0
	if told == 0 {
		return
	}
	all := float64(len(passing))
	s.Demand = sum.Demand * all / float64(told)
	switch {
	case full > 0:
		s.Capacity = sum.Capacity * all / float64(full)
	case stated != nil:
		s.Capacity = *stated * all / float64(max(s.Nodes, len(passing)))
	default:
		// Nobody has shown that it cannot serve what it is asked for.
		s.Capacity = max(sum.CapacityAtLeast*all/float64(told), s.Demand/receiveTo)
	}
}

// age returns for how long the nodes of a region have not been reported.
func (f *regionFacts) age(now time.Time) time.Duration {
	if _, known := f.effective(now); known || f.heard.IsZero() {
		return 0
	}
	return now.Sub(f.heard)
}
