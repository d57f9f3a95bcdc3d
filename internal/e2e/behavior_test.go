package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

// passwords refuses a client after 24 wrong passwords in a minute.
const passwords = `
mode: enforce
signals: {failures: {weight: 30, at_least: 12, share: 0.5}, presence: {weight: 0}, scan: {weight: 0}}
routes: {guessing: {weight: 0}}
tiers:
  - {name: normal}
  - {name: elevated, from: 30, until: 20}
  - {name: blocked, from: 60, until: 50, refuse: {for: 1h, max: 1h}}
`

// judges starts nodes of one region with a behavior policy and an origin that refuses every
// password.
func judges(t *testing.T, redis *testenv.Server, programs ...string) (nodes []*testenv.EdgeNode) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	policy, rules := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "rules.yaml")
	require.NoError(t, os.WriteFile(policy, []byte(passwords), 0o600))
	require.NoError(t, os.WriteFile(rules, []byte("rules: []"), 0o600))
	for i, program := range programs {
		nodes = append(nodes, testenv.StartEdgeOf(t, program, fmt.Sprintf("node: {id: judge-%d}\nrules: {file: %q}\npolicy: {file: %q}\n%s",
			i, rules, policy, redisConfig(s.URL, "single", []string{redis.Addr}, generous, len(programs), ""))))
	}
	for _, n := range nodes {
		n.WaitReady()
	}
	return nodes
}

// tierOf returns a client's tier on a node.
func tierOf(t *testing.T, n *testenv.EdgeNode, client string) string {
	t.Helper()
	resp, err := http.Get("http://" + n.Admin + "/v1/explain?path=/login&client=" + client)
	require.NoError(t, err)
	defer resp.Body.Close()
	var e struct {
		Behavior struct{ Tier string } `json:"behavior"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&e))
	return e.Behavior.Tier
}

// login tries a password at a node.
func login(t *testing.T, c *fasthttp.Client, n *testenv.EdgeNode, client string) int {
	t.Helper()
	status, err := get(c, n.Public, "/login", client)
	require.NoError(t, err)
	return status
}

func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, testenv.Patience, 10*time.Millisecond, what)
}

func together(t *testing.T, nodes []*testenv.EdgeNode) {
	t.Helper()
	for _, n := range nodes {
		soon(t, "the nodes judge together", func() bool { return metrics(t, n, "weir_behavior_nodes")["weir_behavior_nodes"] == float64(len(nodes)) })
	}
}

// A client that spreads its guesses over three nodes, each of which sees too few, is refused by
// all of them. The test prints how long after its last guess.
func TestAClientSpreadOverNodesIsRefused(t *testing.T) {
	program := testenv.Program(t, "edge")
	redis := testenv.Redis(t, testenv.Options{})
	nodes := judges(t, redis, program, program, program)
	together(t, nodes)
	c := client()
	defer c.CloseIdleConnections()
	var delays []time.Duration
	for k := range 3 * runs() {
		who := fmt.Sprintf("192.0.2.%d", k+1)
		for i := range 27 { // 9 at each node; one signal needs 12
			status := login(t, c, nodes[i%3], who)
			if i < 24 || status != http.StatusTooManyRequests { // 24 are enough once the nodes have told each other
				require.Equal(t, http.StatusUnauthorized, status, "guess %d", i)
			}
		}
		last := time.Now()
		for _, n := range nodes {
			soon(t, "it is refused", func() bool { return tierOf(t, n, who) == "blocked" })
		}
		delays = append(delays, time.Since(last))
		for _, n := range nodes {
			require.Equal(t, http.StatusTooManyRequests, login(t, c, n, who))
		}
		require.Equal(t, "normal", tierOf(t, nodes[0], "198.51.100.1"))
	}
	slices.Sort(delays)
	t.Logf("refused by all nodes after the last guess: median %s, worst of %d %s", delays[len(delays)/2].Round(time.Millisecond), len(delays), delays[len(delays)-1].Round(time.Millisecond))

	// Without Redis, each node scores what it sees itself and answers as before.
	redis.Suspend()
	for _, n := range nodes {
		soon(t, "it is alone", func() bool { return metrics(t, n, "weir_behavior_alone")["weir_behavior_alone"] == 1 })
	}
	for range 24 {
		require.Equal(t, http.StatusUnauthorized, login(t, c, nodes[0], "192.0.2.200"))
	}
	soon(t, "the node refuses it", func() bool { return login(t, c, nodes[0], "192.0.2.200") == http.StatusTooManyRequests })
	require.Equal(t, http.StatusUnauthorized, login(t, c, nodes[1], "192.0.2.200"))
	redis.Resume()
	together(t, nodes)
}
