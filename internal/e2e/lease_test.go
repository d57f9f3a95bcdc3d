package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/testenv"
)

const leasedLimit = 3000

// leasedRules have one leased rule for each algorithm that permits it, with a window that
// outlasts the test.
var leasedRules = `
rules:
  - {id: fixed, match: {paths: [/fixed]}, key: [client_ip], algorithm: fixed_window, limit: 3000, window: ` + testenv.LongWindow() + `, consistency: leased, on_store_failure: closed}
  - {id: sliding, match: {paths: [/sliding]}, key: [client_ip], algorithm: sliding_window, limit: 3000, window: ` + testenv.LongWindow() + `, consistency: leased, on_store_failure: closed}
  - {id: token, match: {paths: [/token]}, key: [client_ip], algorithm: token_bucket, limit: 3000, window: 24h, burst: 3000, consistency: leased, on_store_failure: closed}
  - {id: ring, match: {paths: [/ring]}, key: [client_ip], algorithm: rolling_window, limit: 3000, window: 24h, consistency: leased, on_store_failure: closed}
  - {id: set, match: {paths: [/set]}, key: [client_ip], algorithm: rolling_window, storage: sorted_set, limit: 3000, window: 24h, consistency: leased, on_store_failure: closed}
  - {id: local, match: {paths: [/local]}, key: [client_ip], algorithm: fixed_window, limit: 3000, window: ` + testenv.LongWindow() + `, consistency: leased, on_store_failure: local}
`

// refilled is the refill of a token_bucket of these rules during a test.
const refilled = 10

// exhaust sends requests until the limit is used up: no node holds units, and nothing passes that is
// asked after longer than a lease, for which a node may remember a refusal. It returns how many
// requests passed.
func exhaust(t *testing.T, nodes []*testenv.EdgeNode, path, who string) (passed int) {
	t.Helper()
	for last := time.Now(); ; {
		began := time.Now()
		n := statuses(t, nodes, path, who, 60, 300)[http.StatusOK]
		passed += n
		switch {
		case n > refilled/5 || slices.ContainsFunc(nodes, func(n *testenv.EdgeNode) bool { return holds(t, n, path[1:]) }):
			last = time.Now()
		case began.Sub(last) >= 2*time.Second:
			return passed
		}
	}
}

// holds reports whether a node has units of a rule that it neither spent nor returned.
func holds(t *testing.T, n *testenv.EdgeNode, rule string) bool {
	m := metrics(t, n, "weir_lease_units")
	fate := func(name string) float64 {
		return m[fmt.Sprintf(`weir_lease_units_total{fate=%q,rule=%q}`, name, rule)]
	}
	return fate("granted") > fate("spent")+fate("returned")+fate("stranded")
}

func leased(t *testing.T, n *testenv.EdgeNode, rule string) float64 {
	return metrics(t, n, "weir_lease_units_total")[fmt.Sprintf(`weir_lease_units_total{fate="spent",rule=%q}`, rule)]
}

func TestLeasesAreExactOverThreeNodesAndACluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t, testenv.Options{})
	nodes := edges(t, 3, redisConfig(origin(t, nil), "cluster", cluster.Addrs(), generous, 3, ""), leasedRules)
	for i, rule := range []string{"fixed", "sliding", "token", "ring", "set"} {
		t.Run(rule, func(t *testing.T) {
			path, who := "/"+rule, fmt.Sprintf("198.51.100.%d", i)
			awaitRedis(t, nodes, path, who)
			require.InDelta(t, leasedLimit, exhaust(t, nodes, path, who), refilled*map[bool]float64{true: 1}[rule == "token"])
			for _, n := range nodes {
				require.Positive(t, leased(t, n, rule), "nothing was leased")
			}
		})
	}
}

// When a node is killed, or a node or the store stops for longer than a lease, no more than the
// limit passes.
func TestLeasesWhenPartsFail(t *testing.T) {
	type failure func(t *testing.T, nodes []*testenv.EdgeNode, redis *testenv.Server) (rest []*testenv.EdgeNode)
	killed := func(_ *testing.T, nodes []*testenv.EdgeNode, _ *testenv.Server) []*testenv.EdgeNode {
		nodes[2].Kill()
		return nodes[:2]
	}
	paused := func(t *testing.T, nodes []*testenv.EdgeNode, _ *testenv.Server) []*testenv.EdgeNode {
		require.NoError(t, nodes[2].Signal(syscall.SIGSTOP))
		eventually(t, testenv.Patience, "ten seconds have passed", after(10*time.Second))
		require.NoError(t, nodes[2].Signal(syscall.SIGCONT))
		return nodes
	}
	unreachable := func(t *testing.T, nodes []*testenv.EdgeNode, redis *testenv.Server) []*testenv.EdgeNode {
		redis.Suspend()
		eventually(t, testenv.Patience, "ten seconds have passed", after(10*time.Second))
		redis.Resume()
		return nodes
	}
	for name, c := range map[string]struct {
		rule string
		fail failure
	}{
		"killed, fixed": {"fixed", killed}, "killed, token": {"token", killed},
		"paused, ring": {"ring", paused}, "paused, token": {"token", paused},
		"store, set": {"set", unreachable}, "store, sliding": {"sliding", unreachable}, "store, local": {"local", unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := c.rule
			redis := testenv.Redis(t, testenv.Options{})
			nodes := edges(t, 3, redisConfig(origin(t, nil), "single", []string{redis.Addr}, 100*time.Millisecond, 3, ""), leasedRules)
			who := "198.51.100.1"
			awaitRedis(t, nodes, "/"+rule, who)
			var passed, more int
			var load sync.WaitGroup
			load.Go(func() { passed = statuses(t, nodes, "/"+rule, who, 30, 2*leasedLimit)[http.StatusOK] })
			eventually(t, testenv.Patience, "it is leased", func() bool { return leased(t, nodes[2], rule) > 0 })
			rest := c.fail(t, nodes, redis)
			load.Wait()
			awaitRedis(t, rest, "/"+rule, "198.51.100.2") // a node may remember that it refused who
			more = exhaust(t, rest, "/"+rule, who)
			t.Logf("%d passed of %d", passed+more, leasedLimit)
			// With on_store_failure: local, each node also admits its share.
			require.LessOrEqual(t, passed+more, leasedLimit+map[string]int{"token": refilled, "local": leasedLimit}[rule])
			require.Greater(t, passed+more, leasedLimit/2)
		})
	}
}

func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

// The runbook of WeirLeasesStranded: a Redis that hangs and a node that is killed lose
// the units that nodes hold; a reset restores the client's whole limit.
func TestLostUnits(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t, testenv.Options{})
	nodes := edges(t, 2, redisConfig(origin(t, nil), "single", []string{redis.Addr}, generous, 2, ""), leasedRules)
	const who = "198.51.100.1"
	awaitRedis(t, nodes, "/fixed", who)
	units := func(n *testenv.EdgeNode, fate string) float64 {
		return metrics(t, n, "weir_lease_units_total")[fmt.Sprintf(`weir_lease_units_total{fate=%q,rule="fixed"}`, fate)]
	}
	held := func(n *testenv.EdgeNode) float64 {
		return metrics(t, n, "weir_lease_units_held")[`weir_lease_units_held{rule="fixed"}`]
	}
	passed := 0
	lease := func(n *testenv.EdgeNode) {
		eventually(t, testenv.Patience, "it holds units", func() bool {
			passed += statuses(t, nodes, "/fixed", who, 4, 20)[http.StatusOK]
			return held(n) > 0
		})
	}
	eventually(t, testenv.Patience, "a node reports its units and their lease time", func() bool {
		lease(nodes[0])
		e, err := adminGet[adminapi.Explanation](nodes[0], "/v1/explain?path=/fixed&client="+who)
		if err != nil || len(e.Rules) == 0 || e.Rules[0].Held == 0 {
			return false // the lease has expired
		}
		left, err := time.ParseDuration(e.Rules[0].HeldFor)
		return err == nil && left > 0 && left <= time.Second
	})
	one := nodes[0]
	eventually(t, testenv.Patience, "units are lost, and counted", func() bool {
		lease(one)
		redis.Suspend()
		eventually(t, testenv.Patience, "the lease has ended", func() bool {
			return held(one) == 0 && units(one, "granted") == units(one, "spent")+units(one, "returned")+units(one, "stranded")
		})
		redis.Resume()
		awaitRedis(t, nodes, "/fixed", who)
		return units(one, "stranded") > 0
	})
	lease(nodes[1])
	nodes[1].Kill()
	rest := nodes[:1]
	awaitRedis(t, rest, "/fixed", who)
	passed += exhaust(t, rest, "/fixed", who)
	require.LessOrEqual(t, passed, leasedLimit)

	req, err := http.NewRequest(http.MethodDelete, fmt.Sprintf("http://%s/v1/limits?rule=fixed&path=/fixed&client=%s", nodes[0].Admin, who), nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, leasedLimit, exhaust(t, rest, "/fixed", who))
}
