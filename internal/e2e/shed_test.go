package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	document "github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/internal/testenv"
)

// shedderStatus returns the status of a node's upstream groups by name.
func shedderStatus(t testing.TB, node *testenv.EdgeNode) map[string]document.UpstreamStatus {
	t.Helper()
	resp, err := http.Get("http://" + node.Admin + "/v1/shedder?brief")
	require.NoError(t, err)
	defer resp.Body.Close()
	var v struct {
		Upstreams []document.UpstreamStatus `json:"upstreams"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&v))
	groups := map[string]document.UpstreamStatus{}
	for _, u := range v.Upstreams {
		groups[u.Name] = u
	}
	return groups
}

// A slow origin causes shedding on its own routes only, which ends when it is fast again.
func TestSlowOriginShedsItsOwn(t *testing.T) {
	t.Parallel()
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(100 * time.Millisecond) }))
	t.Cleanup(slow.Close)
	// The clients wait for their answers, so they demand no more than is served: only chance
	// shortens the patience.
	node := testenv.Edge(t, fmt.Sprintf(`
upstreams: [{url: %q}, {url: %q, group: reports}]
routes: [{match: {paths: ["/reports/*"]}, group: reports}]
store: {kind: memory}
shedder:
  patience: 1s
  signals: {cpu: off, sched_latency: off, upstream_wait: off}
  upstreams: {reports: {signals: {inflight: {low: 0, high: 20}}}}
`, origin(t, nil), slow.URL), "rules: []")
	nodes := []*testenv.EdgeNode{node}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			c := client()
			defer c.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status, err := get(c, node.Public, "/reports/x", fmt.Sprintf("198.51.100.%d", i)); err != nil || status == http.StatusServiceUnavailable {
					<-time.After(20 * time.Millisecond) // a client with a shorter wait would only measure the node
				}
			}
		})
	}
	stopped := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer stopped()
	eventually(t, testenv.Patience, "reports are shed", func() bool {
		s := shedderStatus(t, node)["reports"]
		return s.Level > 0 && s.Classes[2].ShedByLevel > 100 && s.Winner == "inflight"
	})
	require.Equal(t, map[int]int{http.StatusOK: 500}, statuses(t, nodes, "/", victim, 5, 500))
	other := shedderStatus(t, node)["default"]
	require.Zero(t, other.Level)
	for _, c := range other.Classes {
		require.Zero(t, c.ShedByLevel+c.ShedByCap)
	}
	shed := metrics(t, node, `weir_shed_total{class="read",reason="inflight",upstream=`)
	require.Positive(t, shed[`weir_shed_total{class="read",reason="inflight",upstream="reports"}`])
	require.Zero(t, shed[`weir_shed_total{class="read",reason="inflight",upstream="default"}`])

	stopped()
	eventually(t, testenv.Patience, "nothing is shed and nothing in flight", func() bool {
		s := shedderStatus(t, node)["reports"]
		return s.Level == 0 && s.Classes[2].InFlight == 0
	})
	require.Equal(t, map[int]int{http.StatusOK: 20}, statuses(t, nodes, "/reports/x", victim, 2, 20))
}

// operate sends a request to the admin listener and returns the status.
func operate(t testing.TB, node *testenv.EdgeNode, method, path, body string) int {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+node.Admin+path, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

// The kill switch works on a node that sheds, for exactly the requested time.
func TestKillSwitch(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	node := testenv.Edge(t, fmt.Sprintf(`
upstreams: [{url: %q}]
store: {kind: memory}
shedder:
  signals: {cpu: off, sched_latency: off, upstream_wait: off}
  classes: [{name: all, max_in_flight: 1}]
  default_class: all
`, origin(t, hold)), "rules: []")
	nodes := []*testenv.EdgeNode{node}
	var wg sync.WaitGroup
	defer wg.Wait()
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	wg.Go(func() { statuses(t, nodes, "/", victim, 1, 1) })
	eventually(t, testenv.Patience, "one is in flight", func() bool { return shedderStatus(t, node)["default"].Classes[0].InFlight == 1 })
	require.Equal(t, map[int]int{http.StatusServiceUnavailable: 3}, statuses(t, nodes, "/", victim, 1, 3))
	const off = `{"enabled": false, "classes": [{"name": "all", "max_in_flight": 1}], "default_class": "all"}`
	require.Equal(t, http.StatusOK, operate(t, node, http.MethodPut, "/v1/shedder?for=1h", off))
	var passed map[int]int
	wg.Go(func() { passed = statuses(t, nodes, "/", victim, 3, 3) })
	eventually(t, testenv.Patience, "all are in flight", func() bool { return shedderStatus(t, node)["default"].Classes[0].InFlight == 4 })
	require.Equal(t, http.StatusOK, operate(t, node, http.MethodDelete, "/v1/shedder", ""))
	require.Equal(t, map[int]int{http.StatusServiceUnavailable: 3}, statuses(t, nodes, "/", victim, 1, 3))
	release()
	wg.Wait()
	require.Equal(t, map[int]int{http.StatusOK: 3}, passed)
}
