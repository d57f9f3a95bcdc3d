package region

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// telling returns a node that publishes its load.
func telling(demand, capacity, atLeast float64) consul.Instance {
	return consul.Instance{TellsLoad: true, Load: consul.Load{Demand: demand, Capacity: capacity, CapacityAtLeast: atLeast}}
}

func TestLoadOfAPoP(t *testing.T) {
	before := consul.Instance{} // a node of the previous release
	f := func(demand, capacity float64, nodes int, stated float64, passing ...consul.Instance) {
		t.Helper()
		s, of := PoPState{Nodes: nodes}, &stated
		if stated == 0 {
			of = nil
		}
		s.SetLoad(passing, of)
		require.InDelta(t, demand, s.Demand, 1e-9)
		require.InDelta(t, capacity, s.Capacity, 0.5)
	}
	f(0, 0, 3, 5000)
	f(0, 0, 2, 5000, before, before)
	f(0, 1000, 2, 0, telling(0, 500, 0), telling(0, 0, 0))
	f(300, 390, 2, 0, telling(100, 0, 130), telling(200, 0, 260))
	f(300, 5000, 2, 5000, telling(150, 0, 195), telling(150, 0, 195))
	f(930, 1000, 1, 0, telling(930, 0, 950))
	f(100, 2500, 2, 5000, telling(100, 0, 130))
	f(1300, 1000, 2, 5000, telling(650, 500, 0), telling(650, 500, 0))
	f(1300, 1000, 2, 5000, telling(650, 500, 0), telling(650, 0, 900))
	f(600, 750, 3, 0, telling(200, 250, 0), telling(200, 250, 0), before)

	// One node is full and the other idle, whatever the idle one promises or the topology
	// states.
	f(105, 88, 2, 0, telling(100, 80, 0), telling(5, 0, 100))
	f(115, 103, 2, 5000, telling(100, 80, 0), telling(15, 0, 300))
	f(105, 88, 2, 0, telling(100, 80, 0), telling(5, 80, 0))
	f(157.5, 132, 3, 0, telling(100, 80, 0), telling(5, 0, 100), before)
	f(4005, 2506, 2, 5000, telling(4000, 0, 4100), telling(5, 0, 100)) // until it has measured 2,500
	// No node was ever full: an idle one promises no more than the busy one.
	f(115, 144, 2, 0, telling(100, 0, 110), telling(15, 0, 300))
	// A PoP with few clients has the room of all nodes, although one node serves all of the
	// clients.
	f(3, 4993, 2, 5000, telling(3, 0, 60), telling(0, 0, 0))
	f(40, 100, 2, 0, telling(40, 80, 0), telling(0, 80, 0))
	// One node of ten serves almost nothing: the PoP counts as 63 % full, not as overloaded
	// tenfold.
	f(1000, 1588.6, 10, 0, append([]consul.Instance{telling(100, 1, 0)}, slices.Repeat([]consul.Instance{telling(100, 200, 0)}, 9)...)...)
	f(1000, 1588.6, 10, 0, append([]consul.Instance{telling(100, 1e-300, 0)}, slices.Repeat([]consul.Instance{telling(100, 200, 0)}, 9)...)...)
	f(1000, 100, 2, 0, telling(500, 50, 0), telling(500, 50, 0)) // both are ten times too full
	// Slightly uneven demand changes little.
	f(180, 199, 2, 0, telling(95, 100, 0), telling(85, 100, 0))
}

// A PoP counts as at least as full as with evenly spread clients, and at most as full as its
// fullest node.
func TestLoadIsBetweenEvenAndTheFullestNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []consul.Instance
		sum, capacity, fullest := 0.0, 0.0, 0.0
		for range rapid.IntRange(1, 6).Draw(t, "nodes") {
			n := telling(rapid.Float64Range(0, 1e4).Draw(t, "demand"), rapid.Float64Range(1, 1e4).Draw(t, "capacity"), 0)
			nodes = append(nodes, n)
			sum, capacity, fullest = sum+n.Demand, capacity+n.Capacity, max(fullest, n.Demand/n.Capacity)
		}
		s := PoPState{Nodes: len(nodes)}
		s.SetLoad(nodes, nil)
		require.InDelta(t, sum, s.Demand, leastLoad)
		if load := s.Demand / s.Capacity; sum >= leastLoad {
			require.GreaterOrEqual(t, load*(1+1e-9), sum/capacity)
			require.LessOrEqual(t, load, fullest*(1+1e-9))
		}
	})
}
