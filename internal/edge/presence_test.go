package edge

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/testenv"
)

// Two nodes that each assume they are alone would pass twice a limit while Redis is
// unreachable: the second warns at startup. Two that know of each other do not.
func TestMoreNodesThanTheConfigurationSays(t *testing.T) {
	const line = "more nodes use the store than store.nodes says"
	for _, nodes := range []int{1, 2} {
		redis := testenv.Redis(t, testenv.Options{})
		second := func() *node {
			return start(t, setup{redis: redis, rules: ruleA, config: func(c *config.Config) { c.Store.Nodes = &nodes }})
		}
		held := func() int64 { return redis.Client().ZCard(t.Context(), presenceKey).Val() }
		second()
		eventually(t, "the first node is seen", func() bool { return held() == 1 })
		n := second()
		eventually(t, "both are seen", func() bool { return held() == 2 })
		if nodes == 1 {
			eventually(t, "the second warns", func() bool { return strings.Contains(n.logs.String(), line) })
			continue
		}
		n.stop()
		eventually(t, "a node that ends is gone", func() bool { return held() == 1 })
		require.NotContains(t, n.logs.String(), line)
	}
}

// Nodes that start together use Redis before Consul lists them. A node that counts those in
// Consul does not warn. One that does not register is not counted, so store.nodes must be set.
func TestNodesInConsulNeedNoStoreNodes(t *testing.T) {
	const line = "more nodes use the store than store.nodes says"
	redis := testenv.Redis(t, testenv.Options{})
	p := publish(t, testenv.StartConsul(t, testenv.ConsulOptions{}))
	p.apply(ruleA)
	begin := func(id string, change func(*config.Config)) *node {
		s := p.setup(func(c *config.Config) { c.Node.ID, c.Consul.Register = id, true }, change)
		s.redis = redis
		return start(t, s)
	}
	counted := func(*config.Config) {}
	nodes := []*node{begin("one", counted), begin("two", counted)}
	for _, n := range nodes {
		eventually(t, "Consul lists both", func() bool { return n.metric("weir_store_nodes") == 2 })
	}
	for _, change := range []func(*config.Config){
		func(c *config.Config) { c.Store.Nodes = new(1) },
		func(c *config.Config) { c.Consul.Register = false },
	} {
		n := begin("odd", change)
		eventually(t, "it warns", func() bool { return strings.Contains(n.logs.String(), line) })
		n.stop()
	}
	for _, n := range nodes {
		require.NotContains(t, n.logs.String(), line)
	}
}
