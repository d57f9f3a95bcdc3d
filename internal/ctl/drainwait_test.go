package ctl

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/audit"
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
	args := []string{"drain", "ams1", "--message", "x", "--yes", "--ttl", "0s", "-o", "json"}
	r := f.run(t, args...)
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, "it is unknown whether requests still come to ams1-1 (")
	require.Contains(t, r.errOut, "the stub is silent")
	require.NotContains(t, r.errOut, "ams1-2 (")
	require.NotEmpty(t, parse[drain.Report](t, r.out).Nodes[0].Error)

	f.deregister(t, ams)
	f.good(t, args...)
}

// A regionctl is killed (SIGKILL) after each of its writes. A drain, and its end, is in the history
// or has not happened.
func TestDrainKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	drain := []string{"drain", "ams1", "--message", "kernel", "--by", "ana", "--yes", "--force", "--wait", "0"}
	undrain := []string{"undrain", "ams1", "--by", "ana", "--yes"}
	for _, c := range [][2][]string{{undrain, drain}, {drain, undrain}} {
		for n, killed := int32(1), true; killed; n++ {
			f.good(t, c[0]...)
			var puts atomic.Int32
			killed = f.killWhen(t, "eu-west", true, func(r *http.Request) bool { return writes(r, "") && puts.Add(1) == n }, c[1]...)
			drained := strings.Contains(f.good(t, "status", "--region", "eu-west", "-o", "json").out, `"why": "kernel"`)
			for _, e := range parse[[]audit.Entry](t, f.good(t, "audit", "list", "--region", "eu-west", "-n", "0", "-o", "json").out) {
				if strings.HasSuffix(e.Message, "drain ams1: kernel") || e.Message == "undrain ams1" {
					require.Equal(t, drained, strings.HasPrefix(e.Message, "drain "), "killed after write %d of %s: the last in the history is %s", n, c[1][0], e.Message)
					break
				}
			}
			f.good(t, "audit", "verify")
		}
	}
}
