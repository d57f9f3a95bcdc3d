package e2e

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/lua"
)

// Six nodes in three regions apply new rules within two seconds, never half of a document;
// counts are kept, and Redis needs no new script.
func TestApplyReachesEveryNode(t *testing.T) {
	t.Parallel()
	const before, after, spent = 100_000, 200_000, 30
	f := startFleet(t, testenv.ConsulOptions{}, 2, "eu-west", "us-east", "ap-south")
	for _, n := range f.nodes() {
		eventually(t, testenv.Patience, "the admin side answers", func() bool { _, err := rulesOf(n); return err == nil })
		status, text := readyz(t, n)
		require.Equal(t, http.StatusServiceUnavailable, status, "ready without rules: %s", text)
	}
	f.apply(doc(before))
	for _, n := range f.nodes() {
		n.WaitReady()
		awaitRedis(t, []*testenv.EdgeNode{n}, "/", victim)
	}
	for _, s := range f.regions {
		require.Equal(t, map[int]int{http.StatusOK: spent}, statuses(t, s.nodes, "/", victim, 2, spent))
		scriptsLoaded(t, s.redis)
	}
	cached := map[string]string{}
	for _, s := range f.regions {
		cached[s.name] = cachedScripts(t, s.redis)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for i, n := range f.nodes() {
		wg.Go(func() {
			swapped := false
			for asked := 0; ctx.Err() == nil; asked++ {
				got, err := policies(n, "/", fmt.Sprintf("203.0.113.%d", asked%250))
				switch {
				case err != nil:
					t.Errorf("node %d: %v", i, err)
					return
				case got == policyOf(before) && !swapped:
				case got == policyOf(after):
					swapped = true
				default:
					t.Errorf("node %d: decided by %s, new rules before: %t", i, got, swapped)
					return
				}
			}
		})
	}
	f.apply(doc(after))
	for i, n := range f.nodes() {
		got, err := policies(n, "/", "203.0.113.251")
		require.NoError(t, err)
		require.Equal(t, policyOf(after), got, "node %d, when apply had ended", i)
	}
	stop()
	wg.Wait()

	slowest := time.Duration(0)
	for _, n := range f.nodes() {
		r, err := rulesOf(n)
		require.NoError(t, err)
		slowest = max(slowest, r.Since.Sub(r.Pointer.AppliedAt))
	}
	promised(t, "the last node has the rules", slowest, 2*time.Second)
	for _, s := range f.regions {
		for _, n := range s.nodes {
			e, err := explain(n, "/", victim)
			require.NoError(t, err)
			for _, rule := range e.Rules {
				require.Equal(t, int64(after-spent), rule.Remaining, "%s: counts are lost: %v", rule.Rule, e)
			}
		}
		scriptsLoaded(t, s.redis)
		require.Equal(t, cached[s.name], cachedScripts(t, s.redis))
	}
}

// scriptsLoaded checks with SCRIPT EXISTS that Redis has the repository's scripts.
func scriptsLoaded(t *testing.T, s *testenv.Server) {
	t.Helper()
	sum := sha1.Sum([]byte(lua.Take()))
	there, err := s.Client().ScriptExists(t.Context(), hex.EncodeToString(sum[:])).Result()
	require.NoError(t, err)
	require.Equal(t, []bool{true}, there)
}

func cachedScripts(t *testing.T, s *testenv.Server) string {
	t.Helper()
	info, err := s.Client().InfoMap(t.Context(), "memory").Result()
	require.NoError(t, err)
	return info["Memory"]["number_of_cached_scripts"]
}

// Consul is killed under load and returns with newer rules.
func TestConsulLoss(t *testing.T) {
	t.Parallel()
	f := startFleet(t, testenv.ConsulOptions{}, 2, "eu-west")
	s := f.regions[0]
	f.apply(doc(100_000))
	for _, n := range s.nodes {
		n.WaitReady()
	}
	stop := load(s.nodes)
	s.consul.Kill()
	for _, n := range s.nodes {
		eventually(t, testenv.Patience, "the loss shows", func() bool {
			return metrics(t, n, "weir_rules_source_up")["weir_rules_source_up"] == 0
		})
	}
	looks := time.NewTicker(100 * time.Millisecond)
	defer looks.Stop()
	for until := time.Now().Add(awayFor()); time.Now().Before(until); <-looks.C {
		for _, n := range s.nodes {
			status, text := readyz(t, n)
			require.Equal(t, http.StatusOK, status, text)
			require.Contains(t, text, "consul")
			r, err := rulesOf(n)
			require.NoError(t, err)
			require.False(t, r.Consul.OK)
			require.NotEmpty(t, r.Consul.Error)
		}
	}
	// A node that starts now uses its copy on disk.
	s.nodes[1].Terminate()
	s.nodes[1].Start()
	s.nodes[1].WaitReady()
	r, err := rulesOf(s.nodes[1])
	require.NoError(t, err)
	require.Equal(t, "cache", r.Source)

	s.consul.Start()
	back := time.Now()
	f.apply(doc(200_000))
	for _, n := range s.nodes {
		eventually(t, testenv.Patience, "in sync", func() bool {
			r, err := rulesOf(n)
			return err == nil && r.Consul.OK && r.Source == "consul" && r.Refused == nil
		})
		got, err := policies(n, "/", "203.0.113.251")
		require.NoError(t, err)
		require.Equal(t, policyOf(200_000), got)
	}
	promised(t, "in sync, once Consul was back,", time.Since(back), 10*time.Second)
	asked, _ := stop()
	require.Positive(t, asked)
	for i, n := range s.nodes {
		m := metrics(t, n, "weir_requests_total")
		require.Zero(t, m[`weir_requests_total{code_class="5xx"}`], "node %d", i)
		require.Positive(t, m[`weir_requests_total{code_class="2xx"}`], "node %d", i)
	}
}

// awayFor returns how long Consul stays unreachable.
func awayFor() time.Duration {
	if soak() {
		return time.Minute
	}
	return 2 * time.Second
}

// A leader is killed; the others elect another, and rules keep changing.
func TestConsulElection(t *testing.T) {
	t.Parallel()
	f := startFleet(t, testenv.ConsulOptions{Servers: 3}, 1, "eu-west")
	s := f.regions[0]
	f.apply(doc(100_000))
	s.nodes[0].WaitReady()
	stop := load(s.nodes)
	lost := s.consul.KillLeader()
	s.consul.WaitHealthy()
	if lost == s.consul.Addr() { // the server that the node and regionctl use
		s.consul.Start()
	}
	f.apply(doc(200_000))
	status, text := readyz(t, s.nodes[0])
	require.Equal(t, http.StatusOK, status, text)
	got, err := policies(s.nodes[0], "/", "203.0.113.251")
	require.NoError(t, err)
	require.Equal(t, policyOf(200_000), got)
	asked, bad := stop()
	require.Positive(t, asked)
	require.Zero(t, bad)
}
