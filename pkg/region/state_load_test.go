package region

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestLoadOfAPoP(t *testing.T) {
	node := func(demand, capacity, atLeast float64) consul.Instance {
		return consul.Instance{TellsLoad: true, Load: consul.Load{Demand: demand, Capacity: capacity, CapacityAtLeast: atLeast}}
	}
	before := consul.Instance{} // a node of the previous release
	f := func(demand, capacity float64, nodes int, stated float64, passing ...consul.Instance) {
		t.Helper()
		s, of := PoPState{Nodes: nodes}, &stated
		if stated == 0 {
			of = nil
		}
		s.SetLoad(passing, of)
		require.InDelta(t, demand, s.Demand, 1e-9)
		require.InDelta(t, capacity, s.Capacity, 1e-9)
	}
	f(0, 0, 3, 5000)
	f(0, 0, 2, 5000, before, before)
	f(300, 390, 2, 0, node(100, 0, 130), node(200, 0, 260))
	f(300, 5000, 2, 5000, node(100, 0, 130), node(200, 0, 260))
	f(930, 1000, 1, 0, node(930, 0, 950))
	f(100, 2500, 2, 5000, node(100, 0, 130))
	f(1300, 1000, 2, 5000, node(600, 500, 0), node(700, 500, 0))
	f(1300, 1000, 2, 5000, node(600, 500, 0), node(700, 0, 900))
	f(600, 750, 3, 0, node(200, 250, 0), node(200, 250, 0), before)
}
