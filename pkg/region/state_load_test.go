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
	silent := consul.Instance{} // it has no shedder
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
	f(0, 0, 2, 5000, silent, silent)
	f(0, 1000, 2, 0, telling(0, 500, 0), telling(0, 0, 0))
	f(300, 390, 2, 0, telling(100, 0, 130), telling(200, 0, 260))
	f(300, 5000, 2, 5000, telling(150, 0, 195), telling(150, 0, 195))
	f(930, 1000, 1, 0, telling(930, 0, 950))
	f(100, 2500, 2, 5000, telling(100, 0, 130))
	f(1300, 1000, 2, 5000, telling(650, 500, 0), telling(650, 500, 0))
	f(1300, 1000, 2, 5000, telling(650, 500, 0), telling(650, 0, 900))
	f(600, 750, 3, 0, telling(200, 250, 0), telling(200, 250, 0), silent)

	// One node is full and the other idle, whatever the idle one promises or the topology
	// states.
	f(105, 88, 2, 0, telling(100, 80, 0), telling(5, 0, 100))
	f(115, 103, 2, 5000, telling(100, 80, 0), telling(15, 0, 300))
	f(105, 88, 2, 0, telling(100, 80, 0), telling(5, 80, 0))
	f(157.5, 132, 3, 0, telling(100, 80, 0), telling(5, 0, 100), silent)
	f(4005, 2506, 2, 5000, telling(4000, 0, 4100), telling(5, 0, 100)) // until it has measured 2,500
	// No node was ever full: an idle one promises no more than the busy one.
	f(115, 144, 2, 0, telling(100, 0, 110), telling(15, 0, 300))
	// A PoP with few clients has the room of all nodes, although one node serves all of the
	// clients.
	f(3, 4993, 2, 5000, telling(3, 0, 60), telling(0, 0, 0))
	f(40, 100, 2, 0, telling(40, 80, 0), telling(0, 80, 0))
	// One node of ten serves almost nothing: the PoP counts as 51% full, not as overloaded
	// tenfold.
	f(1000, 1954.6, 10, 0, append([]consul.Instance{telling(100, 1, 0)}, slices.Repeat([]consul.Instance{telling(100, 200, 0)}, 9)...)...)
	f(1000, 1954.6, 10, 0, append([]consul.Instance{telling(100, 1e-300, 0)}, slices.Repeat([]consul.Instance{telling(100, 200, 0)}, 9)...)...)
	f(1000, 100, 2, 0, telling(500, 50, 0), telling(500, 50, 0)) // both are ten times too full
	// One of three that claims to be the busiest does not say what the others promise.
	f(162.5, 325, 3, 0, telling(50, 0, 100), telling(50, 0, 300), telling(1e9, 0, 1e-9))
	f(152.5, 323.2, 3, 0, telling(50, 0, 100), telling(40, 0, 300), telling(1e9, 0, 1e9))
	// Slightly uneven demand changes little.
	f(180, 199, 2, 0, telling(95, 100, 0), telling(85, 100, 0))
}

// Whatever one node of three or more publishes, the PoP counts as about as full as the others
// find it.
func TestOneNodeCannotSpeakForItsPoP(t *testing.T) {
	honest := func(nodes int, demand, capacity, atLeast float64) []consul.Instance {
		return slices.Repeat([]consul.Instance{telling(demand, capacity, atLeast)}, nodes)
	}
	stated := 300.0
	for _, others := range [][]consul.Instance{honest(2, 50, 100, 0), honest(4, 50, 100, 0), honest(2, 50, 0, 100), honest(2, 50, 0, 65)} {
		for _, capacity := range []*float64{nil, &stated} {
			for _, demand := range []float64{0, 1e-9, 20, 50, 200, 1e9} {
				for _, claim := range []float64{1e-9, 20, 100, 1e9} {
					for _, liar := range []consul.Instance{telling(demand, claim, 0), telling(demand, 0, claim)} {
						truth, s := PoPState{Nodes: len(others)}, PoPState{Nodes: len(others) + 1}
						truth.SetLoad(others, capacity)
						s.SetLoad(append(slices.Clone(others), liar), capacity)
						all := float64(len(others) + 1)
						require.LessOrEqual(t, s.Demand, all*1.25*50, "%v among %v", liar, others)
						require.GreaterOrEqual(t, s.Demand, (all-1)*50)
						if !s.CapacityEstimated { // a PoP that only promises gives nothing away
							require.LessOrEqual(t, s.Demand/s.Capacity, 1.25*max(truth.Demand/truth.Capacity, 0.5), "%v among %v", liar, others)
						}
						require.LessOrEqual(t, s.Capacity, 1.25*all*max(100, 50/receiveTo))
					}
				}
			}
		}
	}
}

// A node that lies about its load, one of three, sends no clients away, and attracts none that the
// others cannot serve.
func TestALyingNodeMovesNoClients(t *testing.T) {
	topology := mustParse(t, row)
	kept := func(honest, neighbor float64, liar consul.Instance) float64 {
		states := loads(topology, 0, 0, neighbor, 1000, 300, 310)
		a := states["a1"]
		a.Nodes = 3
		a.SetLoad([]consul.Instance{telling(honest, 400, 0), telling(honest, 400, 0), liar}, nil)
		states["a1"] = a
		v := settle(NewView(topology, states, nil))
		mine, _ := of(v, 0)
		others, _ := of(v, 1)
		return mine["a1"] - others["a1"]
	}
	for _, liar := range []consul.Instance{telling(200, 20, 0), telling(1e9, 1, 0), telling(200, 0, 20)} {
		require.InDelta(t, 1, kept(200, 500, liar), 0, "%v", liar)
	}
	for _, liar := range []consul.Instance{telling(0, 1e9, 0), telling(0, 0, 1e9)} {
		require.InDelta(t, 1, kept(380, 1200, liar), 0.01, "%v", liar)
	}
}

// A PoP counts as at least as full as with evenly spread clients, and at most as full as its
// fullest node.
func TestLoadIsBetweenEvenAndTheFullestNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []consul.Instance
		sum, capacity, fullest := 0.0, 0.0, 0.0
		demand, most := rapid.Float64Range(0, 1e4), rapid.Float64Range(1, 1e4)
		count := rapid.IntRange(1, 6).Draw(t, "nodes")
		if count >= enough { // their median bounds each
			demand, most = rapid.Float64Range(900, 1100), rapid.Float64Range(900, 1100)
		}
		for range count {
			n := telling(demand.Draw(t, "demand"), most.Draw(t, "capacity"), 0)
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
