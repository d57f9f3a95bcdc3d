package consul

import (
	"net/http"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
)

func TestMaintenanceIsNotUnchecked(t *testing.T) {
	f := func(id, status, output string, want bool) {
		t.Helper()
		n := newInstance(&api.ServiceEntry{Service: &api.AgentService{}, Checks: api.HealthChecks{{CheckID: id, Status: status, Output: output}}})
		require.Equal(t, want, n.Unchecked)
	}
	f("service:weir-edge-a", api.HealthCritical, "", true)
	f("service:weir-edge-a", api.HealthCritical, "HTTP GET: 503", false)
	f("service:weir-edge-a", api.HealthPassing, "", false)
	f("_node_maintenance", api.HealthCritical, "", false)
	f("_service_maintenance:weir-edge-a", api.HealthCritical, "", false)
}

func TestPulseNeedsALeader(t *testing.T) {
	t.Parallel()
	leader := `"127.0.0.1:8300"`
	c := answers(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(leader)) })
	require.NoError(t, c.Pulse(t.Context(), patience))
	leader = `""`
	require.ErrorContains(t, c.Pulse(t.Context(), patience), "find the leader: none is elected")
}
