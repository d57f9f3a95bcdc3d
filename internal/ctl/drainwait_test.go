package ctl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/drain"
	"github.com/weir-edge/weir/internal/ctl/term"
)

func TestBusyNodes(t *testing.T) {
	require.Equal(t, []string{"b (2.0/s, 0 in flight)", "c (0.0/s, 1 in flight)"}, drain.BusyNodes([]drain.TrafficLeft{
		{ID: "a", Rate: drain.Stray}, {ID: "b", Rate: 2}, {ID: "c", InFlight: 1}, {ID: "d", Error: "away"},
	}))
}

// For an unreachable node, only Consul shows whether it has stopped.
func TestDrainNamesNodesThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	ams := f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) { s.silent = true })
	f.edge(t, "eu-west", "ams1", "ams1-2")
	f.edge(t, "us-east", "iad1", "iad1-1")
	args := []string{"drain", "ams1", "--reason", "x", "--yes", "--ttl", "0s", "-o", "json"}
	r := f.run(t, args...)
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, "it is unknown whether requests still come to ams1-1 (")
	require.Contains(t, r.errOut, "the stub is silent")
	require.NotContains(t, r.errOut, "ams1-2 (")
	require.NotEmpty(t, parse[drain.Report](t, r.out).Nodes[0].Error)

	f.deregister(t, ams)
	f.good(t, args...)
}
