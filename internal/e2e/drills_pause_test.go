package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// pausing hangs the master of a rule that fails closed, and suspends the master of another rule of
// the same requests again and again, until its callers have gone. Nothing that is answered 503 may use
// up the other rule.
func pausing(t *testing.T, x *exercise) {
	const limit, rounds, callers = 1000, 10, 32
	c := testenv.Cluster(t, testenv.Options{})
	rules := drillRules + fmt.Sprintf(`
  - {id: closed, match: {paths: [/pair]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, on_store_failure: closed}
  - {id: shared, match: {paths: [/pair]}, key: [], algorithm: fixed_window, limit: %d, window: 24h}
`, limit)
	x.begin(edges(t, drillNodes, redisConfig(origin(t, nil), "cluster", c.Addrs(), max(budget, x.budget), drillNodes, ""), rules))
	look := func(who string) explained {
		e, err := explain(x.nodes[0], "/pair", who)
		require.NoError(t, err)
		require.Len(t, e.Rules, 2)
		require.Equal(t, "closed", e.Rules[0].Rule)
		return e
	}
	var who string
	var hung, paused *testenv.Server
	for i := 1; hung == paused; i++ {
		who = fmt.Sprintf("192.0.2.%d", i)
		e := look(who)
		hung, paused = c.MasterOf(e.Rules[0].Key), c.MasterOf(e.Rules[1].Key)
	}
	kept := x.replicated(1, c.Nodes[:3]...)
	x.changes(hung.Suspend)
	x.forgets(kept)
	var passed, missed atomic.Int64
	cl := client()
	defer cl.CloseIdleConnections()
	for range rounds {
		paused.Suspend()
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				status, err := get(cl, x.nodes[i%len(x.nodes)].Public, "/pair", who)
				if err != nil {
					t.Error(err)
				}
				switch status {
				case http.StatusOK:
					passed.Add(1)
				case http.StatusServiceUnavailable:
					missed.Add(1)
				}
			})
		}
		all.Wait()
		paused.Resume()
		x.answers(workers)
	}
	x.recovers("Redis decides for the client", func(n *testenv.EdgeNode) bool {
		e, err := explain(n, "/pair", who)
		return err == nil && e.Rules[0].Source == "redis" && e.Rules[1].Source == "redis"
	})
	hung.Resume()
	left := look(who).Rules[1].Remaining
	t.Logf("%d answered 503, %d passed, %d of %d left", missed.Load(), passed.Load(), left, limit)
	require.Positive(t, missed.Load())
	require.GreaterOrEqual(t, left, limit-passed.Load())
}
