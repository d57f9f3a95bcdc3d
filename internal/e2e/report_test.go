package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
)

const reportedLimit = 3000

// reportedRules have one reported rule for each algorithm that permits it, with a window that
// outlasts the test.
var reportedRules = `
rules:
  - {id: fixed, match: {paths: [/fixed]}, key: [client_ip], algorithm: fixed_window, limit: 3000, window: ` + testenv.LongWindow() + `, consistency: reported, on_store_failure: closed}
  - {id: sliding, match: {paths: [/sliding]}, key: [client_ip], algorithm: sliding_window, limit: 3000, window: ` + testenv.LongWindow() + `, consistency: reported, on_store_failure: closed}
  - {id: token, match: {paths: [/token]}, key: [client_ip], algorithm: token_bucket, limit: 3000, window: 24h, burst: 3000, consistency: reported, on_store_failure: closed}
`

// reported returns a node's metric of a rule.
func reported(t *testing.T, n *testenv.EdgeNode, name, rule, more string) float64 {
	return metrics(t, n, name)[fmt.Sprintf("%s{%srule=%q}", name, more, rule)]
}

// Three nodes and a cluster: every node refuses once all together have used up the limit, and
// the sum of their reports is what passed. The excess depends on this machine's speed, and
// nodes measure it.
func TestReportsOfThreeNodesAndACluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t, testenv.Options{})
	nodes := edges(t, 3, redisConfig(origin(t, nil), "cluster", cluster.Addrs(), generous, 3, ""), reportedRules)
	for i, rule := range []string{"fixed", "sliding", "token"} {
		t.Run(rule, func(t *testing.T) {
			path, who := "/"+rule, fmt.Sprintf("198.51.100.%d", i)
			passed := exhaust(t, nodes, path, who)
			t.Logf("%d passed of %d", passed, reportedLimit)
			require.GreaterOrEqual(t, passed, reportedLimit)
			require.Equal(t, map[int]int{http.StatusTooManyRequests: 6}, statuses(t, nodes, path, who, 3, 6))
			eventually(t, testenv.Patience, "all of it is reported", func() bool {
				counted := 0.0
				for _, n := range nodes {
					counted += reported(t, n, "weir_reported_units_total", rule, `fate="counted",`)
				}
				return counted == float64(passed)
			})
			over := 0.0
			for _, n := range nodes {
				require.Zero(t, reported(t, n, "weir_reported_units_total", rule, `fate="lost",`))
				over = max(over, reported(t, n, "weir_overshoot_ratio", rule, ""))
			}
			require.InDelta(t, float64(passed-reportedLimit)/reportedLimit, over, 0.01)
		})
	}
}

// asking is clients that ask nodes concurrently until stop, with the times of each request and
// answer.
type asking struct {
	mu    sync.Mutex
	asked []span
}

type span struct {
	sent, answered time.Time
	passed         bool
}

// ask sends a request every few milliseconds from `callers` clients of each node, until stop is
// closed.
func (a *asking) ask(nodes []*testenv.EdgeNode, path, who string, callers int, stop <-chan struct{}) {
	c := client()
	defer c.CloseIdleConnections()
	var group sync.WaitGroup
	for _, n := range nodes {
		for range callers {
			group.Go(func() {
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
					}
					one := span{sent: time.Now()}
					status, err := get(c, n.Public, path, who)
					one.answered, one.passed = time.Now(), status == http.StatusOK && err == nil
					a.mu.Lock()
					a.asked = append(a.asked, one)
					a.mu.Unlock()
				}
			})
		}
	}
	group.Wait()
}

// passed returns how many passed.
func (a *asking) passed() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.asked {
		if one.passed {
			n++
		}
	}
	return n
}

// most returns the most that nodes can have been asked for in any interval of that length.
func (a *asking) most(length time.Duration) (most int) {
	var sent, answered []time.Time
	for _, one := range a.asked {
		sent, answered = append(sent, one.sent), append(answered, one.answered)
	}
	slices.SortFunc(sent, time.Time.Compare)
	slices.SortFunc(answered, time.Time.Compare)
	gone := 0
	for i, at := range sent {
		for gone < len(answered) && answered[gone].Before(at.Add(-length)) {
			gone++
		}
		most = max(most, i+1-gone)
	}
	return most
}

// Three nodes under concurrent demand of many times the limit exceed the printed bound by at
// most the demand in the delay, two requests a node, and the contents of lost reports. The same
// applies to a client that moves from node to node, of which each learns only when asked.
func TestReportsStayWithinTheBound(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t, testenv.Options{})
	const budget = 100 * time.Millisecond
	const limit = 10_000 // used up in seconds, many times the delay
	rules := strings.ReplaceAll(reportedRules, "3000", strconv.Itoa(limit))
	nodes := edges(t, 3, redisConfig(origin(t, nil), "single", []string{redis.Addr}, budget, 3, ""), rules)
	for i, rule := range []string{"fixed", "sliding", "token"} {
		for j, name := range []string{"at once", "in turn"} {
			t.Run(rule+", "+name, func(t *testing.T) {
				path, who := "/"+rule, fmt.Sprintf("198.51.100.%d", 2*i+j)
				a := &asking{}
				for _, some := range map[string][][]*testenv.EdgeNode{"at once": {nodes}, "in turn": {nodes[:1], nodes[1:2], nodes[2:]}}[name] {
					stop, before := make(chan struct{}), a.passed()
					var load sync.WaitGroup
					load.Go(func() { a.ask(some, path, who, 18/len(some), stop) })
					eventually(t, testenv.Patience, "the limit is used up, and these nodes know", func() bool {
						now := a.passed()
						defer func() { before = now }()
						return now >= limit && now == before && statuses(t, some, path, who, 1, 3*len(some))[http.StatusTooManyRequests] == 3*len(some)
					})
					close(stop)
					load.Wait()
				}
				lost, delay := 0.0, limiter.ReportDelay(budget)
				for _, n := range nodes {
					lost += reported(t, n, "weir_reported_units_total", rule, `fate="lost",`)
				}
				if lost > 0 { // on a busy machine its node learns one report later
					delay *= 2
				}
				over, bound := a.passed()-limit, a.most(delay)+2*len(nodes)+int(lost)
				t.Logf("%d asked, %d over the limit of %d, bound %d", len(a.asked), over, limit, bound)
				require.GreaterOrEqual(t, over, 0)
				require.LessOrEqual(t, over, bound)
				for _, n := range nodes {
					if lost == 0 {
						require.LessOrEqual(t, reported(t, n, "weir_overshoot_ratio", rule, ""), reported(t, n, "weir_overshoot_bound_ratio", rule, ""))
					}
				}
			})
		}
	}
}

// A stopping node reports what it has admitted. If its store is unreachable, it applies
// on_store_failure, and asks again when the store is back.
func TestReportsWhenPartsFail(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t, testenv.Options{})
	nodes := edges(t, 2, redisConfig(origin(t, nil), "single", []string{redis.Addr}, generous, 2, ""), reportedRules)
	const path, who = "/fixed", "198.51.100.1"
	require.Equal(t, map[int]int{http.StatusOK: 100}, statuses(t, nodes[:1], path, who, 4, 100))
	nodes[0].Terminate()
	eventually(t, testenv.Patience, "the other node hears of it", func() bool {
		require.Equal(t, map[int]int{http.StatusOK: 1}, statuses(t, nodes[1:], path, who, 1, 1))
		return reported(t, nodes[1], "weir_overshoot_bound_ratio", "fixed", "") > 0
	})
	redis.Suspend()
	eventually(t, testenv.Patience, "it fails closed", func() bool {
		return statuses(t, nodes[1:], path, who, 1, 1)[http.StatusServiceUnavailable] == 1
	})
	redis.Resume()
	eventually(t, testenv.Patience, "it recovers", func() bool {
		return statuses(t, nodes[1:], path, who, 1, 1)[http.StatusOK] == 1
	})
	keys, err := redis.Client().Keys(t.Context(), "weir:{"+who+"}:fixed:fr:*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	eventually(t, testenv.Patience, "what the first node admitted was counted", func() bool {
		n, err := redis.Client().Get(t.Context(), keys[0]).Int()
		return err == nil && n > 100
	})
	require.Positive(t, redis.Client().PTTL(t.Context(), keys[0]).Val())
}
