package e2e

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// outage is a way to lose the master that owns a key.
type outage struct {
	// addrs go into the nodes' configuration, with more for the mode.
	mode, more string
	addrs      []string
	// lose takes down the key's master and returns it.
	lose func(key string) *testenv.Server
	// master returns the key's owner according to Redis.
	master func(key string) *testenv.Server
	// bound is how soon after the loss Redis decides again: for a cluster, its node timeout and
	// 3 s; sentinels also vote. Nearly all of it is Redis's election; weir's part begins with
	// the promotion.
	bound time.Duration
}

const (
	budget    = 25 * time.Millisecond
	victim    = "198.51.100.1"
	nodeCount = 2
	// afterPromotion is how long a node may take to find a promoted master.
	afterPromotion = 3 * time.Second
)

// outageRules have one rule for each failure policy. One key of each is used up before the
// outage; all other clients stay far below their limit.
const outageRules = `
rules:
  - {id: local, match: {paths: [/local]}, key: [client_ip], algorithm: rolling_window, limit: 40, window: 24h, on_store_failure: local}
  - {id: closed, match: {paths: [/closed]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, on_store_failure: closed}
  - {id: open, match: {paths: [/open]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, on_store_failure: open}
  - {id: others, match: {paths: [/others]}, key: [client_ip], algorithm: leaky_bucket, limit: 1000, burst: 1000, window: 1s, on_store_failure: local}
`

func outages(t *testing.T) map[string]func(t *testing.T) outage {
	cluster := func(hang bool) func(*testing.T) outage {
		return func(t *testing.T) outage {
			c := testenv.Cluster(t, testenv.Options{})
			return outage{mode: "cluster", addrs: c.Addrs(), bound: c.NodeTimeout + 3*time.Second, master: c.MasterOf, lose: func(key string) *testenv.Server {
				return take(c.MasterOf(key), hang)
			}}
		}
	}
	sentinel := func(hang bool) func(*testing.T) outage {
		return func(t *testing.T) outage {
			s := testenv.Sentinel(t, testenv.Options{})
			return outage{mode: "sentinel", addrs: s.SentinelAddrs, more: ", master_name: " + s.MasterName, bound: s.DownAfter + 10*time.Second,
				master: func(string) *testenv.Server { return s.Master() },
				lose:   func(string) *testenv.Server { return take(s.Master(), hang) }}
		}
	}
	return map[string]func(t *testing.T) outage{
		"cluster/killed": cluster(false), "cluster/hung": cluster(true),
		"sentinel/killed": sentinel(false), "sentinel/hung": sentinel(true),
	}
}

func take(s *testenv.Server, hang bool) *testenv.Server {
	if hang {
		s.Suspend()
	} else {
		s.Kill()
	}
	return s
}

func TestMasterLoss(t *testing.T) {
	for name, open := range outages(t) {
		t.Run(name, func(t *testing.T) { masterLoss(t, open(t)) })
	}
}

// tally counts the answers on one path before and after the loss.
type tally struct{ ok, limited, failed, other atomic.Int64 }

func (c *tally) add(status int) {
	switch {
	case status == http.StatusOK:
		c.ok.Add(1)
	case status == http.StatusTooManyRequests:
		c.limited.Add(1)
	case status >= 500:
		c.failed.Add(1)
	default:
		c.other.Add(1)
	}
}

func masterLoss(t *testing.T, o outage) {
	nodes := edges(t, nodeCount, redisConfig(origin(t, nil), o.mode, o.addrs, budget, nodeCount, o.more), outageRules)
	for _, path := range []string{"/local", "/closed", "/open"} {
		awaitRedis(t, nodes, path, victim)
	}
	// Part of the limit is used before the loss.
	const counted = 15
	require.Equal(t, map[int]int{http.StatusOK: counted}, statuses(t, nodes, "/local", victim, 5, counted))
	before := make([]map[string]float64, len(nodes))
	for i, n := range nodes {
		before[i] = metrics(t, n, "weir_")
	}
	e, err := explain(nodes[0], "/local", victim)
	require.NoError(t, err)

	// All policies and all shards are under load throughout. Before the loss, which takes its time on a busy machine, only
	// a few requests use the limit that nodes then share: a used up one passes nothing more.
	punctual := timers(t)
	var tallies [4]tally
	var early atomic.Int64
	var gone atomic.Bool
	paths := [4]string{"/local", "/closed", "/open", "/others"}
	done := make(chan struct{})
	var wg sync.WaitGroup
	c := client()
	for i, path := range paths {
		for worker := range 4 {
			wg.Go(func() {
				pace := time.NewTicker(20 * time.Millisecond)
				defer pace.Stop()
				for n := worker; ; n++ {
					select {
					case <-done:
						return
					case <-pace.C:
					}
					if path == "/local" && !gone.Load() && early.Add(1) > 10 {
						continue
					}
					who := victim
					if path == "/others" {
						who = fmt.Sprintf("203.0.113.%d", n%200)
					}
					status, err := get(c, nodes[n%len(nodes)].Public, path, who)
					if err != nil {
						status = -1
					}
					tallies[i].add(status)
				}
			})
		}
	}

	lost := time.Now()
	key := e.Rules[0].Key
	server := o.lose(key)
	gone.Store(true)
	// The shard falls back, then Redis decides again on every node.
	for _, n := range nodes {
		eventually(t, testenv.Patience, "the loss is noticed", func() bool {
			return source(n) == "fallback"
		})
	}
	eventually(t, testenv.Patience, "a replica is promoted", func() bool { return o.master(key) != server })
	promoted := time.Since(lost)
	for _, n := range nodes {
		eventually(t, testenv.Patience, "Redis decides again", func() bool { return source(n) == "redis" })
	}
	back := time.Since(lost)
	close(done)
	wg.Wait()
	c.CloseIdleConnections()
	inTime := punctual()

	local, closed, open, others := &tallies[0], &tallies[1], &tallies[2], &tallies[3]
	t.Logf("back after %s, of which Redis took %s to promote; local %d passed %d limited; closed %d passed %d unavailable; open %d passed; others %d passed",
		back.Round(10*time.Millisecond), promoted.Round(10*time.Millisecond), local.ok.Load(), local.limited.Load(), closed.ok.Load(), closed.failed.Load(), open.ok.Load(), others.ok.Load())
	promised(t, "back to Redis once it has a master", back-promoted, afterPromotion)
	promised(t, "back to Redis", back, o.bound)
	for i := range tallies {
		require.Zero(t, tallies[i].other.Load(), "%s: broken answers", paths[i])
	}
	require.Zero(t, local.failed.Load(), "local: 5xx")
	require.Zero(t, others.failed.Load(), "others: 5xx")
	require.Zero(t, open.failed.Load(), "open: 5xx")
	require.Zero(t, open.limited.Load(), "open: refused")
	require.Positive(t, closed.failed.Load(), "closed: never refused")

	share := math.Ceil(40.0 / nodeCount)
	for i, n := range nodes {
		after := metrics(t, n, "weir_")
		delta := func(name string) float64 { return after[name] - before[i][name] }
		passedAlone := delta(`weir_decisions_total{outcome="allowed",rule="local",source="fallback"}`)
		require.LessOrEqual(t, passedAlone, share, "local: a node passes at most its share")
		require.Positive(t, passedAlone)
		require.Zero(t, delta(`weir_decisions_total{outcome="allowed",rule="closed",source="fallback"}`), "closed: passed without a count")
		decisionsInBudget(t, delta, inTime)
	}
	if strings.Contains(t.Name(), "hung") {
		server.Resume()
	}
}

// source returns the source of that node's decision about the victim. Its rule is never
// exhausted, because a node remembers refusals whatever their source.
func source(n *testenv.EdgeNode) string {
	e, err := explain(n, "/open", victim)
	if err != nil || len(e.Rules) == 0 {
		return ""
	}
	return e.Rules[0].Source
}

// decisionsInBudget requires that 99 of 100 decisions take at most the store's budget and 5 ms,
// or as many as bare timers of the same duration achieve, if other work on the machine delays
// those.
func decisionsInBudget(t *testing.T, delta func(string) float64, punctual float64) {
	t.Helper()
	var all, within float64
	for _, s := range []string{"redis", "fallback", "denied_memory"} {
		all += delta(fmt.Sprintf(`weir_decision_seconds_count{source=%q}`, s))
		within += delta(fmt.Sprintf(`weir_decision_seconds_bucket{source=%q,le="0.03"}`, s))
	}
	t.Logf("%.0f decisions, %.2f%% within %s; %.2f%% of bare timers", all, 100*within/all, budget+5*time.Millisecond, 100*punctual)
	require.GreaterOrEqual(t, within/all, 0.99*punctual)
}

// timers runs concurrent timers of the budget until stop is called, which returns the share of
// them that fired within 5 ms.
func timers(t *testing.T) (stop func() float64) {
	t.Helper()
	var all, within atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				began := time.Now()
				select {
				case <-done:
					return
				case <-time.After(budget):
				}
				all.Add(1)
				if time.Since(began) <= budget+5*time.Millisecond {
					within.Add(1)
				}
			}
		})
	}
	end := sync.OnceFunc(func() { close(done); wg.Wait() })
	t.Cleanup(end)
	return func() float64 { end(); return float64(within.Load()) / float64(all.Load()) }
}
