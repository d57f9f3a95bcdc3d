package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const reportedLimit = 3000

// reportedRules report each algorithm that can be, over a window longer than any test.
const reportedRules = `
rules:
  - {id: fixed, match: {paths: [/fixed]}, key: [client_ip], algorithm: fixed_window, limit: 3000, window: 24h, consistency: reported, on_store_failure: closed}
  - {id: sliding, match: {paths: [/sliding]}, key: [client_ip], algorithm: sliding_window, limit: 3000, window: 24h, consistency: reported, on_store_failure: closed}
  - {id: token, match: {paths: [/token]}, key: [client_ip], algorithm: token_bucket, limit: 3000, window: 24h, burst: 3000, consistency: reported, on_store_failure: closed}
`

// reported returns the value of a node's metric of a rule.
func reported(t *testing.T, n *testenv.EdgeNode, name, rule, more string) float64 {
	return metrics(t, n, name)[fmt.Sprintf("%s{%srule=%q}", name, more, rule)]
}

// Three nodes and a cluster: every node refuses once all together have used up the limit,
// and what has passed is what all reported. By how much it exceeds the limit depends on the
// speed of this machine, and nodes measure it.
func TestReportsOfThreeNodesAndACluster(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	nodes := edges(t, 3, redisConfig(origin(t, nil), "cluster", cluster.Addrs(), generous, 3, ""), reportedRules)
	for i, rule := range []string{"fixed", "sliding", "token"} {
		t.Run(rule, func(t *testing.T) {
			path, who := "/"+rule, fmt.Sprintf("198.51.100.%d", i)
			passed := exhaust(t, nodes, path, who)
			t.Logf("%d passed of %d", passed, reportedLimit)
			require.GreaterOrEqual(t, passed, reportedLimit)
			require.Equal(t, map[int]int{http.StatusTooManyRequests: 6}, statuses(t, nodes, path, who, 3, 6))
			counted, over := 0.0, 0.0
			for _, n := range nodes {
				counted += reported(t, n, "weir_reported_units_total", rule, `fate="counted",`)
				require.Zero(t, reported(t, n, "weir_reported_units_total", rule, `fate="lost",`))
				over = max(over, reported(t, n, "weir_overshoot_ratio", rule, ""))
			}
			require.EqualValues(t, passed, counted)
			require.InDelta(t, float64(passed-reportedLimit)/reportedLimit, over, 0.01)
		})
	}
}

// A node that stops reports what it has admitted. One whose store is unreachable follows
// on_store_failure, and asks again when it is back.
func TestReportsWhenPartsFail(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	nodes := edges(t, 2, redisConfig(origin(t, nil), "single", []string{redis.Addr}, 100*time.Millisecond, 2, ""), reportedRules)
	const path, who = "/fixed", "198.51.100.1"
	require.Equal(t, map[int]int{http.StatusOK: 100}, statuses(t, nodes[:1], path, who, 4, 100))
	nodes[0].Terminate()
	eventually(t, time.Minute, "the other node hears of it", func() bool {
		require.Equal(t, map[int]int{http.StatusOK: 1}, statuses(t, nodes[1:], path, who, 1, 1))
		return reported(t, nodes[1], "weir_overshoot_bound_ratio", "fixed", "") > 0
	})
	redis.Suspend()
	eventually(t, time.Minute, "it fails closed", func() bool {
		return statuses(t, nodes[1:], path, who, 1, 1)[http.StatusServiceUnavailable] == 1
	})
	redis.Resume()
	eventually(t, time.Minute, "it recovers", func() bool {
		return statuses(t, nodes[1:], path, who, 1, 1)[http.StatusOK] == 1
	})
	keys, err := redis.Client().Keys(t.Context(), "weir:{"+who+"}:fixed:fr:*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	eventually(t, time.Minute, "what the first node admitted was counted", func() bool {
		n, err := redis.Client().Get(t.Context(), keys[0]).Int()
		return err == nil && n > 100
	})
	require.Positive(t, redis.Client().PTTL(t.Context(), keys[0]).Val())
}
