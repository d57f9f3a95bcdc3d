package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const roomyRules = `
rules:
  - {id: roomy, key: [client_ip], algorithm: rolling_window, limit: 10000, window: 1h}
`

// load runs clients on these nodes until stop is called, which returns the requests and the
// answers other than 200.
func load(nodes []*testenv.EdgeNode) (stop func() (asked, bad int64)) {
	done := make(chan struct{})
	var asked, bad atomic.Int64
	var wg sync.WaitGroup
	c := client()
	for worker := range 8 {
		wg.Go(func() {
			for n := worker; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				status, err := get(c, nodes[n%len(nodes)].Public, "/", fmt.Sprintf("203.0.113.%d", n%250))
				asked.Add(1)
				if err != nil || status != http.StatusOK {
					bad.Add(1)
				}
			}
		})
	}
	return func() (int64, int64) {
		close(done)
		wg.Wait()
		c.CloseIdleConnections()
		return asked.Load(), bad.Load()
	}
}

// fallbacks returns how many checks a node decided without Redis.
func fallbacks(t *testing.T, n *testenv.EdgeNode) float64 {
	const name = `weir_decisions_total{outcome="allowed",rule="roomy",source="fallback"}`
	return metrics(t, n, name)[name]
}

// awaitRequests waits until the node has served n more requests.
func awaitRequests(t *testing.T, node *testenv.EdgeNode, n float64) {
	t.Helper()
	const name = `weir_requests_total{code_class="2xx"}`
	from := metrics(t, node, name)[name]
	eventually(t, testenv.Patience, "requests are served", func() bool { return metrics(t, node, name)[name] >= from+n })
}

func TestScriptFlushFailsNoRequest(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	nodes := edges(t, 1, redisConfig(origin(t, nil), "single", []string{server.Addr}, generous, 1, ""), roomyRules)
	awaitRedis(t, nodes, "/", victim)
	stop := load(nodes)
	for range 20 {
		awaitRequests(t, nodes[0], 50)
		require.NoError(t, server.Client().ScriptFlush(context.Background()).Err())
	}
	awaitRequests(t, nodes[0], 50)
	asked, bad := stop()
	require.Positive(t, asked)
	require.Zero(t, bad)
	require.Zero(t, fallbacks(t, nodes[0]), "Redis decided every one")
}

func TestRestartFailsNoRequest(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	nodes := edges(t, 1, redisConfig(origin(t, nil), "single", []string{server.Addr}, budget, 1, ""), roomyRules)
	awaitRedis(t, nodes, "/", victim)
	stop := load(nodes)
	for range 3 {
		awaitRequests(t, nodes[0], 50)
		server.Kill()
		awaitRequests(t, nodes[0], 50)
		server.Start()
		awaitRedis(t, nodes, "/", victim)
	}
	asked, bad := stop()
	require.Positive(t, asked)
	require.Zero(t, bad)
}

// In a planned handover a replica takes over, which does not have the scripts.
func TestPromotionFailsNoRequest(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	nodes := edges(t, 2, redisConfig(origin(t, nil), "cluster", cluster.Addrs(), generous, 2, ""), roomyRules)
	awaitRedis(t, nodes, "/", victim)
	e, err := explain(nodes[0], "/", victim)
	require.NoError(t, err)
	stop := load(nodes)
	awaitRequests(t, nodes[0], 50)
	old := cluster.MasterOf(e.Rules[0].Key)
	var begun time.Time
	eventually(t, testenv.Patience, "the replica is master", func() bool {
		if cluster.MasterOf(e.Rules[0].Key) != old {
			return true
		}
		if time.Since(begun) < 6*time.Second { // Redis abandons a handover after 5 s, silently; a command before would restart it
			return false
		}
		for _, n := range cluster.Nodes {
			info := n.Client().Info(context.Background(), "replication").Val()
			if replicaOf(info, old.Addr) {
				t.Log(n.Client().ClusterFailover(context.Background()))
			}
		}
		begun = time.Now()
		return false
	})
	for _, n := range nodes {
		awaitRequests(t, n, 200)
	}
	asked, bad := stop()
	require.Positive(t, asked)
	require.Zero(t, bad)
	for _, n := range nodes {
		require.Zero(t, fallbacks(t, n), "Redis decided every one")
	}
}

// replicaOf reads INFO replication.
func replicaOf(info, addr string) bool {
	host, port, _ := net.SplitHostPort(addr)
	return strings.Contains(info, "master_host:"+host+"\r\n") && strings.Contains(info, "master_port:"+port+"\r\n")
}
