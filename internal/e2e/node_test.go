package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// TLS, an ACL user and a password file, as in production.
func TestSecureRedis(t *testing.T) {
	t.Parallel()
	const user, password = "weir", "correct-horse"
	options := testenv.Options{TLS: true, User: user, Password: password}
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	secure := func(ca string) string {
		return fmt.Sprintf(", username: %s, password_file: %q, tls: {ca_file: %q}", user, file, ca)
	}
	t.Run("single", func(t *testing.T) {
		s := testenv.Redis(t, options)
		strict(t, redisConfig(origin(t, nil), "single", []string{s.Addr}, generous, 1, secure(s.TLS().CAFile)))
	})
	t.Run("cluster", func(t *testing.T) {
		c := testenv.Cluster(t, options)
		strict(t, redisConfig(origin(t, nil), "cluster", c.Addrs(), generous, 1, secure(c.Nodes[0].TLS().CAFile)))
	})
	t.Run("sentinel", func(t *testing.T) {
		s := testenv.Sentinel(t, options)
		strict(t, redisConfig(origin(t, nil), "sentinel", s.SentinelAddrs, generous, 1, secure(s.Nodes[0].TLS().CAFile)+", master_name: "+s.MasterName))
	})
}

// strict checks that a node with this configuration counts in Redis.
func strict(t *testing.T, config string) {
	t.Helper()
	nodes := edges(t, 1, config, longRules)
	awaitRedis(t, nodes, "/ring", victim)
	require.Equal(t, map[int]int{http.StatusOK: limit, http.StatusTooManyRequests: 50}, statuses(t, nodes, "/ring", victim, 20, limit+50))
}

// A node that dies holds its concurrency slots no longer than the window.
func TestSlotsOfADeadNodeComeBack(t *testing.T) {
	t.Parallel()
	const rules = "rules:\n  - {id: in-flight, key: [client_ip], algorithm: concurrency, limit: 3, window: 5s}\n"
	server := testenv.Redis(t, testenv.Options{})
	hold := make(chan struct{})
	defer close(hold)
	config := redisConfig(origin(t, hold), "single", []string{server.Addr}, generous, 2, "")
	nodes := edges(t, 2, config, rules)
	awaitRedis(t, nodes, "/", victim)

	var wg sync.WaitGroup
	wg.Go(func() { statuses(t, nodes[:1], "/", victim, 3, 3) })
	remaining := func() int64 {
		e, err := explain(nodes[1], "/", victim)
		if err != nil || len(e.Rules) == 0 {
			return -1
		}
		return e.Rules[0].Remaining
	}
	eventually(t, testenv.Patience, "all slots are taken", func() bool { return remaining() == 0 })
	require.Equal(t, map[int]int{http.StatusTooManyRequests: 1}, statuses(t, nodes[1:], "/", victim, 1, 1))
	nodes[0].Kill()
	wg.Wait()
	eventually(t, testenv.Patience, "the slots expire", func() bool { return remaining() == 3 })
}

// SIGTERM under load: requests in flight finish, and the process exits in time.
func TestTerminateFinishesRequests(t *testing.T) {
	t.Parallel()
	const rules = "rules:\n  - {id: roomy, key: [client_ip], algorithm: token_bucket, limit: 100000, burst: 100000, window: 1s}\n"
	server := testenv.Redis(t, testenv.Options{})
	hold := make(chan struct{})
	nodes := edges(t, 1, redisConfig(origin(t, hold), "single", []string{server.Addr}, generous, 1, "")+"shutdown: {timeout: 1m}\n", rules)
	awaitRedis(t, nodes, "/", victim)
	var got map[int]int
	var wg sync.WaitGroup
	wg.Go(func() { got = statuses(t, nodes, "/", victim, 20, 20) })
	allowed := `weir_decisions_total{outcome="allowed",rule="roomy",source="redis"}`
	eventually(t, testenv.Patience, "requests are in flight", func() bool { return metrics(t, nodes[0], allowed)[allowed] == 20 })

	asked := time.Now()
	gone := make(chan struct{})
	go func() { nodes[0].Terminate(); close(gone) }()
	eventually(t, testenv.Patience, "readyz fails first", func() bool {
		resp, err := http.Get("http://" + nodes[0].Admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	close(hold)
	wg.Wait()
	require.Equal(t, map[int]int{http.StatusOK: 20}, got)
	<-gone
	promised(t, "the process ends", time.Since(asked), 5*time.Second)
}

// Requests that end or begin while Redis hangs leave no slot behind.
func TestSlotsOutlastAHang(t *testing.T) {
	t.Parallel()
	const rules = "rules:\n  - {id: in-flight, key: [client_ip], algorithm: concurrency, limit: 4, window: 1h}\n"
	server := testenv.Redis(t, testenv.Options{})
	hold := make(chan struct{})
	nodes := edges(t, 1, redisConfig(origin(t, hold), "single", []string{server.Addr}, generous, 1, ""), rules)
	awaitRedis(t, nodes, "/", victim)
	remaining := func(source string) int64 {
		e, err := explain(nodes[0], "/", victim)
		if err != nil || len(e.Rules) == 0 || e.Rules[0].Source != source {
			return -1
		}
		return e.Rules[0].Remaining
	}
	var wg sync.WaitGroup
	wg.Go(func() { statuses(t, nodes, "/", victim, 2, 2) })
	eventually(t, testenv.Patience, "two slots are taken", func() bool { return remaining("redis") == 2 })
	server.Suspend()
	wg.Go(func() { statuses(t, nodes, "/", victim, 2, 2) }) // Redis reads these when it wakes
	eventually(t, testenv.Patience, "they pass locally", func() bool { return remaining("fallback") == 2 })
	close(hold)
	wg.Wait()
	server.Resume()
	eventually(t, testenv.Patience, "every slot is free", func() bool { return remaining("redis") == 4 })
}
