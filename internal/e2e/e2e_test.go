// Package e2e tests whole nodes: real edge processes with a real Redis, under load of real
// clients, while parts of it die.
package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

// soak reports whether the long forms were requested.
func soak() bool { return os.Getenv("WEIR_SOAK") != "" }

// runs is how often an exactness test repeats.
func runs() int {
	if soak() {
		return 20
	}
	return 2
}

// origin answers 200, after hold is closed if it is not nil.
func origin(t testing.TB, hold <-chan struct{}) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// redisConfig returns a node's configuration with these servers.
func redisConfig(originURL, mode string, addrs []string, budget time.Duration, nodes int, more string) string {
	list, _ := json.Marshal(addrs)
	return fmt.Sprintf(`
upstreams: [{url: %q}]
trusted_proxies: [127.0.0.1]
log: {level: info}
shedder: {signals: {cpu: off, sched_latency: off, upstream_wait: off}}
store:
  kind: redis
  timeout: %s
  nodes: %d
  redis: {mode: %s, addrs: %s%s}
`, originURL, budget, nodes, mode, list, more)
}

// get sends a request as that client and returns the status.
func get(c *fasthttp.Client, node, path, client string) (int, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + node + path)
	req.Header.Set("X-Forwarded-For", client)
	if err := c.DoTimeout(req, resp, 60*time.Second); err != nil {
		return 0, err
	}
	return resp.StatusCode(), nil
}

func client() *fasthttp.Client {
	return &fasthttp.Client{MaxConnsPerHost: 1024, NoDefaultUserAgentHeader: true}
}

// statuses sends n requests from `callers` clients at once, over all nodes in turn, and
// counts the statuses.
func statuses(t testing.TB, nodes []*testenv.EdgeNode, path, who string, callers, n int) map[int]int {
	t.Helper()
	c := client()
	defer c.CloseIdleConnections()
	var mu sync.Mutex
	got := map[int]int{}
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			<-begin
			for k := i; k < n; k += callers {
				status, err := get(c, nodes[k%len(nodes)].Public, path, who)
				if err != nil {
					status = -1
				}
				mu.Lock()
				got[status]++
				mu.Unlock()
			}
		})
	}
	close(begin)
	wg.Wait()
	return got
}

// explained is what /v1/explain reports for one rule.
type explained struct {
	Verdict string `json:"verdict"`
	Rules   []struct {
		Rule      string `json:"rule"`
		Key       string `json:"key"`
		Remaining int64  `json:"remaining"`
		Source    string `json:"source"`
	} `json:"rules"`
}

func explain(node *testenv.EdgeNode, path, who string) (explained, error) {
	var e explained
	resp, err := http.Get(fmt.Sprintf("http://%s/v1/explain?client=%s&path=%s", node.Admin, who, path))
	if err != nil {
		return e, err
	}
	defer resp.Body.Close()
	return e, json.NewDecoder(resp.Body).Decode(&e)
}

// metrics returns a node's samples whose name begins with prefix, by their full name
// with labels.
func metrics(t testing.TB, node *testenv.EdgeNode, prefix string) map[string]float64 {
	t.Helper()
	return metricsAt(t, node.Admin, prefix)
}

// metricsAt is the same of any program.
func metricsAt(t testing.TB, addr, prefix string) map[string]float64 {
	t.Helper()
	out, err := scrape(addr, prefix)
	require.NoError(t, err)
	return out
}

// scrape is metricsAt of a program that may have ended.
func scrape(addr, prefix string) (map[string]float64, error) {
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || !strings.HasPrefix(name, prefix) {
			continue
		}
		if out[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, err
		}
	}
	return out, lines.Err()
}

// promised holds a duration to what users are promised. Only the long forms do: elsewhere
// other work may slow the machine.
func promised(t testing.TB, what string, took, most time.Duration) {
	t.Helper()
	t.Logf("%s after %s", what, took.Round(10*time.Millisecond))
	if soak() || long() {
		require.LessOrEqual(t, took, most, what)
	}
}

// eventually polls for a condition.
func eventually(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			require.FailNow(t, "not within "+limit.String(), what)
		case <-tick.C:
		}
	}
}
