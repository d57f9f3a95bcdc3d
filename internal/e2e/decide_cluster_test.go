package e2e

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const askedRules = `
rules:
  - {id: exact, match: {paths: [/exact]}, key: [client_ip], algorithm: rolling_window, limit: 50, window: 24h, on_store_failure: closed}
  - {id: closed, match: {paths: [/closed]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, on_store_failure: closed}
  - {id: open, match: {paths: [/open]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, on_store_failure: open}
`

// askers are the ways in which a request reaches the rules.
var askers = []struct {
	name, path string
	headers    func(path, client string) http.Header
}{
	{"Caddy", "/v1/decide", func(path, client string) http.Header {
		return http.Header{"X-Forwarded-For": {client}, "X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {path}, "X-Forwarded-Host": {"shop.example.com"}}
	}},
	{"nginx", "/v1/decide/nginx", func(path, client string) http.Header {
		return http.Header{"X-Forwarded-For": {client}, "X-Original-Method": {"GET"}, "X-Original-Uri": {path}, "X-Original-Host": {"shop.example.com"}}
	}},
	{"the edge", "", func(_, client string) http.Header { return http.Header{"X-Forwarded-For": {client}} }},
}

// decideNode is a node with listen.decide.
type decideNode struct {
	*testenv.EdgeNode
	decide string
}

// status returns the status of a client's request: 200 if it may pass.
func (n *decideNode) status(c *http.Client, how int, path, client string) (int, error) {
	a := askers[how]
	url := "http://" + n.decide + a.path
	if a.path == "" {
		url = "http://" + n.Public + path
	}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header = a.headers(path, client)
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	status := resp.StatusCode
	switch status {
	case http.StatusNoContent:
		status = http.StatusOK
	case http.StatusForbidden:
		_, err = fmt.Sscan(resp.Header.Get("Weir-Status"), &status)
	}
	return status, err
}

// Gateways' questions at three nodes and requests through them share one exact count in a Redis
// Cluster of six. When a master dies, each rule decides what gateways get.
func TestGatewaysOverACluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t, testenv.Options{})
	rules, ports := write(t, "rules.yaml", askedRules), testenv.FreePorts(t, 3)
	config := redisConfig(origin(t, nil), "cluster", cluster.Addrs(), generous, len(ports), "")
	var nodes []*decideNode
	var plain []*testenv.EdgeNode
	for _, port := range ports {
		decide := fmt.Sprintf("127.0.0.1:%d", port)
		n := &decideNode{testenv.StartEdge(t, fmt.Sprintf("  decide: {address: %q, from: [127.0.0.1]}\nrules: {file: %q}\n%s", decide, rules, config)), decide}
		nodes, plain = append(nodes, n), append(plain, n.EdgeNode)
	}
	for _, n := range nodes {
		n.WaitReady()
	}
	const who = "198.51.100.7"
	for _, path := range []string{"/exact", "/closed", "/open"} {
		awaitRedis(t, plain, path, who)
	}
	c := &http.Client{Timeout: testenv.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(c.CloseIdleConnections)

	got := map[int]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 45 { // five callers for each node and way
		wg.Go(func() {
			for range 20 {
				status, err := nodes[i%3].status(c, i/3%3, "/exact", who)
				if err != nil {
					status = -1
				}
				mu.Lock()
				got[status]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, map[int]int{http.StatusOK: limit, http.StatusTooManyRequests: 900 - limit}, got)

	e, err := explain(plain[0], "/closed", who)
	require.NoError(t, err)
	cluster.MasterOf(e.Rules[0].Key).Kill()
	everywhere := func(path string, want int) bool {
		for _, n := range nodes {
			for how := range askers {
				if status, err := n.status(c, how, path, who); err != nil || status != want {
					return false
				}
			}
		}
		return true
	}
	eventually(t, testenv.Patience, "the replica takes over, and gateways may pass requests again", func() bool {
		status, err := nodes[0].status(c, 0, "/closed", who)
		require.NoError(t, err)
		require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, status, "no rule is skipped, and no gateway gets another answer")
		require.True(t, everywhere("/open", http.StatusOK))
		return everywhere("/closed", http.StatusOK)
	})
}
