package edge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// publishPolicies writes behavior policies as publish writes rules, and makes sure that there
// are rules.
func publishPolicies(t *testing.T, c *testenv.Consul) *publisher {
	t.Helper()
	p := publish(t, c)
	p.apply(ruleA)
	client, err := consul.Open(p.config())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	p.Documents = client.Documents("policy")
	return p
}

func (p *publisher) judging() setup {
	cache := filepath.Join(p.t.TempDir(), "policy.json")
	return p.setup(func(c *config.Config) { c.Policy.Source, c.Policy.Cache = config.FromConsul, cache })
}

func TestFollowingPolicies(t *testing.T) {
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	for name, f := range map[string]func(*testing.T, *publisher){
		"changes": policiesChange, "canary": policyOnTrial, "cache": policyIsCached, "refused": policyIsRefused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, publishPolicies(t, consul))
		})
	}
}

func (n *node) policyView() (v adminapi.Policy) {
	n.t.Helper()
	a := n.operate("GET", "/v1/policy")
	require.Equal(n.t, 200, a.status, a.body)
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &v))
	return v
}

func (n *node) judges(version string) (v adminapi.Policy) {
	n.t.Helper()
	eventually(n.t, "it judges by "+version, func() bool { v = n.policyView(); return v.Version == version && !v.Stale })
	return v
}

func policiesChange(t *testing.T, p *publisher) {
	n := start(t, p.judging())
	eventually(t, "Consul answers", func() bool { return n.policyView().Consul.OK && !n.policyView().Stale })
	v := n.policyView()
	require.Equal(t, "none", v.Source)
	require.Nil(t, v.Refused, "nothing was published that could be refused")
	require.Empty(t, v.Version)
	require.Equal(t, "1", n.meta()["policy_schema"])
	require.NotContains(t, n.meta(), "policy_version")
	eventually(t, "the rules are there", func() bool { return n.rules.Running() != nil })
	require.Equal(t, 200, n.get("/").status)
	require.Nil(t, n.behaviorOf("192.0.2.1"), "nobody is judged")

	first := p.apply("mode: shadow")
	v = n.judges(first)
	require.Equal(t, "consul", v.Source)
	require.Equal(t, "shadow", v.Mode)
	require.Equal(t, first, n.meta()["policy_version"])
	require.Equal(t, first, n.behaviorOf("192.0.2.1").PolicyVersion)
	second := p.apply("mode: enforce")
	require.Equal(t, "enforce", n.judges(second).Mode)
	require.EqualValues(t, 1, n.metric(`weir_behavior_policy_info{mode="enforce",version="`+second+`"}`))
	require.EqualValues(t, 1, n.metric("weir_behavior_policy_source_up"))

	// What is gone changes nothing.
	p.remove(p.CurrentKey())
	eventually(t, "the loss is noticed", func() bool { return n.policyView().Refused != nil })
	require.Equal(t, second, n.policyView().Version)
}

func policyOnTrial(t *testing.T, p *publisher) {
	first := p.apply("mode: shadow")
	n := start(t, p.judging())
	n.judges(first)
	candidate := p.canary("ams1", "mode: enforce", time.Hour)
	v := n.judges(candidate)
	require.True(t, v.Canary)
	p.endCanary("ams1")
	require.False(t, n.judges(first).Canary)
}

func policyIsCached(t *testing.T, p *publisher) {
	first := p.apply("mode: enforce" + quick)
	n := start(t, p.judging())
	n.judges(first)
	eventually(t, "it is on disk", func() bool {
		c, err := documents.ReadCache(n.config.Policy.Cache, n.config.CacheOwner())
		return err == nil && c.Pointer.Version == first
	})
	kept, rules := n.config.Policy.Cache, n.config.Rules.Cache
	eventually(t, "so are the rules", func() bool { _, err := n.kept(); return err == nil })
	n.stop()

	// Consul is unreachable when the node starts again.
	again := start(t, p.setup(func(c *config.Config) {
		c.Policy.Source, c.Policy.Cache, c.Rules.Cache = config.FromConsul, kept, rules
		c.Consul.Addr = "127.0.0.1:1"
	}))
	v := again.policyView()
	require.Equal(t, first, v.Version)
	require.Equal(t, "cache", v.Source)
	require.True(t, v.Stale)
	eventually(t, "the loss shows", func() bool { return again.metric("weir_behavior_policy_source_up") == 0 })
	again.stop()

	require.NoError(t, os.WriteFile(kept, []byte("{"), 0o600))
	_, err := config.Check(again.config)
	require.ErrorContains(t, err, "policy.cache: "+kept)
	damaged := start(t, p.setup(func(c *config.Config) { c.Policy.Source, c.Policy.Cache = config.FromConsul, kept }))
	damaged.judges(first)
	require.NotZero(t, damaged.metric("weir_behavior_policy_cache_errors_total"))
}

func policyIsRefused(t *testing.T, p *publisher) {
	first := p.apply("mode: enforce")
	n := start(t, p.judging())
	n.judges(first)
	bad := p.apply("{mode: on, half_life: 0s}")
	eventually(t, "it refuses", func() bool { v := n.policyView(); return v.Refused != nil && v.Refused.Version == bad })
	v := n.policyView()
	require.Equal(t, first, v.Version)
	require.True(t, v.Stale)
	require.Len(t, v.Refused.Errors, 2)
	_, state := n.readyz()
	require.Contains(t, state["policy_refused"], bad+": ")
	require.Contains(t, n.meta()["policy_refused"], bad+": ")
	require.EqualValues(t, 1, n.metric("weir_behavior_policy_rejected_total"))
	require.Nil(t, n.judges(p.apply("mode: shadow")).Refused)
}
