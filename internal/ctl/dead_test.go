package ctl

import (
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// A dead edge has not converged, although it registered the active version before it died.
func TestADeadEdgeHasNotConverged(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(1)), "--yes", "--wait", "0")
	require.NoError(t, f.consuls["eu-west"].Client().Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: "weir-edge-ams1-1", Name: consul.Service, Meta: map[string]string{
			consul.MetaRegion: "eu-west", consul.MetaPoP: "ams1", consul.MetaNode: "ams1-1", consul.MetaPrefix: f.prefix,
			consul.MetaAdmin: "127.0.0.1:1", consul.MetaRulesVersion: f.current(t, "eu-west"),
		},
		Check: &api.AgentServiceCheck{TTL: "1h", Status: api.HealthCritical},
	}))
	require.Eventually(t, func() bool {
		nodes, err := f.open["eu-west"].Nodes(t.Context())
		return err == nil && len(nodes) == 1 && !nodes[0].Passing
	}, patience, tick)
	r := f.run(t, "rules", "status")
	require.Equal(t, term.StatusPartial, r.status, r.out)
	require.Regexp(t, `ams1-1 +ams1 +[0-9a-f]+ +- +- +catalog +failing +no`, r.out)
	require.Contains(t, r.errOut, "not converged: eu-west")
}
