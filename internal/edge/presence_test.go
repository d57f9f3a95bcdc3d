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
