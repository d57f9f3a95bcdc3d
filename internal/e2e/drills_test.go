package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A drill breaks one thing under load and holds weir to what it promises for that.
type drill struct {
	breaks  string        // what
	promise string        // besides that no request fails and that the limit holds within the bound
	local   bool          // Redis cannot decide meanwhile, so the nodes' shares must
	lost    int64         // how often Redis itself loses a client's count
	short   bool          // also part of make test
	budget  time.Duration // of the store, if not the default; promise says why
	run     func(t *testing.T, x *exercise)
}

const (
	drillLimit = 40
	drillNodes = 2
	greedy     = 8 // clients that spend their limit before, during and after
	// share is what a node lets a client do while Redis does not decide, shares what all do.
	share  = (drillLimit + drillNodes - 1) / drillNodes
	shares = drillNodes * share
)

var drillRules = fmt.Sprintf(`
rules:
  - {id: tight, match: {paths: [/tight]}, key: [client_ip], algorithm: fixed_window, limit: %d, window: 24h}
  - {id: roomy, match: {paths: [/]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h}
`, drillLimit)

// exercise is a drill that runs.
type exercise struct {
	t      *testing.T
	nodes  []*testenv.EdgeNode
	budget time.Duration // of the store, if not the usual one
	stop   func()

	asked, failed, cut atomic.Int64
	why                atomic.Value
	spent, passed      [greedy]atomic.Int64 // requests of the greedy clients, and how many of them passed
	killing            atomic.Bool          // a process is killed: what it was answering is lost
	aside              aside                // what nodes decided without Redis, and are no more asked

	accessor, token, tokenFile string   // that the nodes show Consul
	caches                     []string // where nodes keep their rules

	since     time.Time
	recovered time.Duration
}

// redis starts nodes before Redis, and the load.
func (x *exercise) redis(mode string, addrs []string, more string) {
	x.t.Helper()
	x.begin(edges(x.t, drillNodes, redisConfig(origin(x.t, nil), mode, addrs, max(budget, x.budget), drillNodes, more), drillRules))
}

// begin loads the nodes until the end of the drill: half of the requests are of clients that
// stay far below their limit, half of greedy ones. Each worker keeps to one node, so that a node that hangs
// holds up its own requests only; as a balancer does, it takes the other where one refuses connections.
func (x *exercise) begin(nodes []*testenv.EdgeNode) {
	x.t.Helper()
	x.nodes = nodes
	awaitRedis(x.t, nodes, "/", victim)
	x.sees("all nodes are counted", func(n *testenv.EdgeNode) bool {
		return metrics(x.t, n, "weir_store_nodes")["weir_store_nodes"] == drillNodes
	})
	x.aside.causes = map[string]int64{}
	for _, n := range nodes { // what failed before the load began is the cause of nothing
		for name, v := range metrics(x.t, n, "weir_store_errors_total") {
			x.aside.causes[name] -= int64(v)
		}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	c := client()
	c.MaxIdemponentCallAttempts = 1
	for worker := range 8 {
		wg.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-pace.C:
				}
				path, who, spender := "/", fmt.Sprintf("203.0.113.%d", (8*n+worker)%250), (n+worker)%greedy
				if worker%2 == 1 {
					path, who = "/tight", fmt.Sprintf("198.51.100.%d", 100+spender)
				}
				status, err := get(c, nodes[worker/2%len(nodes)].Public, path, who)
				if errors.Is(err, syscall.ECONNREFUSED) {
					status, err = get(c, nodes[(worker/2+1)%len(nodes)].Public, path, who)
				}
				x.asked.Add(1)
				if path == "/tight" {
					x.spent[spender].Add(1)
				}
				switch {
				case err != nil && x.killing.Load():
					x.cut.Add(1)
				case err != nil:
					x.failed.Add(1)
					x.why.Store(err.Error())
				case status == http.StatusOK && path == "/tight":
					x.passed[spender].Add(1)
				case status != http.StatusOK && (path == "/" || status != http.StatusTooManyRequests):
					x.failed.Add(1)
					x.why.Store(fmt.Sprintf("%s: status %d", path, status))
				}
			}
		})
	}
	x.stop = sync.OnceFunc(func() { close(done); wg.Wait(); c.CloseIdleConnections() })
	x.t.Cleanup(x.stop)
	x.answers(400)
}

// answers waits until the load has had n more.
func (x *exercise) answers(n int64) {
	x.t.Helper()
	from := x.asked.Load()
	eventually(x.t, time.Minute, "requests are answered", func() bool { return x.asked.Load() >= from+n })
}

// changes breaks something, or mends it: the time to recover counts from the last change.
func (x *exercise) changes(what func()) {
	what()
	x.since = time.Now()
}

// sees waits until a condition holds on every node.
func (x *exercise) sees(what string, is func(n *testenv.EdgeNode) bool) {
	x.t.Helper()
	for _, n := range x.nodes {
		eventually(x.t, time.Minute, what, func() bool { return is(n) })
	}
}

// recovers waits for the condition that ends the drill, and takes the time. Then every greedy client asks
// for twice its limit: a bound holds only for clients who tried to exceed it.
func (x *exercise) recovers(what string, is func(n *testenv.EdgeNode) bool) {
	x.t.Helper()
	x.sees(what, is)
	x.recovered = time.Since(x.since)
	var from [greedy]int64
	for i := range x.spent {
		from[i] = x.spent[i].Load()
	}
	for i := range x.spent {
		eventually(x.t, time.Minute, "greedy clients ask", func() bool { return x.spent[i].Load() >= from[i]+2*drillLimit })
	}
}

// kills ends a node's process. Its metrics die with it, so they are read before.
func (x *exercise) kills(n *testenv.EdgeNode) {
	x.t.Helper()
	x.killing.Store(true)
	x.aside.add(x.t, n)
	n.Kill()
}

// by reports whether a node's decisions come from there.
func by(source string) func(n *testenv.EdgeNode) bool {
	return func(n *testenv.EdgeNode) bool { return decidedBy(n) == source }
}

// falls waits until no node decides in Redis, and for some answers meanwhile.
func (x *exercise) falls() {
	x.t.Helper()
	x.sees("decisions fall back", by("fallback"))
	x.answers(800)
}

// returns ends a drill in which Redis was lost.
func (x *exercise) returns() { x.t.Helper(); x.recovers("Redis decides again", by("redis")) }

// aside is what nodes decided without Redis, by their own metrics.
type aside struct {
	passed int64            // requests of greedy clients
	causes map[string]int64 // all decisions that Redis did not make, by kind
}

func (a *aside) add(t *testing.T, n *testenv.EdgeNode) {
	t.Helper()
	passed := int64(metrics(t, n, "weir_decisions_total")[`weir_decisions_total{outcome="allowed",rule="tight",source="fallback"}`])
	require.LessOrEqual(t, passed, int64(greedy*share), "a node lets a client pass its share at most")
	a.passed += passed
	for name, v := range metrics(t, n, "weir_store_errors_total") {
		a.causes[name] += int64(v)
	}
}

// limits holds the drill to its bound: a client may exceed its limit by what nodes passed without Redis, which
// their shares bound, and by what Redis lost. Without either that is 0.
func (x *exercise) limits(d drill) (over, bound int64, because string) {
	x.t.Helper()
	a := &x.aside
	for _, n := range x.nodes {
		a.add(x.t, n)
	}
	if a.passed > 0 && !d.local {
		require.Positive(x.t, a.causes[`weir_store_errors_total{kind="timeout"}`],
			"Redis was there: only a missed budget lets nodes decide without it: %v", a.causes)
	}
	bound = min(a.passed, shares) + d.lost*drillLimit
	total := int64(0)
	for i := range x.passed {
		more := max(0, x.passed[i].Load()-drillLimit)
		over, total = max(over, more), total+more
	}
	require.LessOrEqual(x.t, over, bound, "over the limit; nodes passed %d without Redis: %v", a.passed, a.causes)
	require.LessOrEqual(x.t, total, a.passed+greedy*d.lost*drillLimit, "all clients over their limits; nodes passed %d without Redis: %v", a.passed, a.causes)
	var reasons []string
	if d.lost > 0 {
		reasons = append(reasons, fmt.Sprintf("counts lost ×%d: %d", d.lost, d.lost*drillLimit))
	}
	switch {
	case a.passed > 0 && d.local:
		reasons = append(reasons, fmt.Sprintf("shares: %d", min(a.passed, shares)))
	case a.passed > 0:
		reasons = append(reasons, fmt.Sprintf("budgets missed: %d", min(a.passed, shares)))
	case d.lost == 0:
		reasons = append(reasons, "nothing")
	}
	return over, bound, strings.Join(reasons, "; ")
}

func drills() []drill {
	return append(append(redisDrills(), consulDrills()...), edgeDrills()...)
}

// TestDrills runs those that are short; all of them with WEIR_DRILLS, the document into which
// make drills has them written.
func TestDrills(t *testing.T) {
	const document = "../../docs/DRILLS.md"
	into := os.Getenv("WEIR_DRILLS")
	var table strings.Builder
	table.WriteString("| what breaks | promised besides | requests | failed because of weir | over the limit of 40 | its bound | made of | recovered after |\n|---|---|---|---|---|---|---|---|\n")
	ran := 0
	for _, d := range drills() {
		if into == "" && !d.short {
			continue
		}
		t.Run(d.breaks, func(t *testing.T) {
			x := &exercise{t: t, budget: d.budget}
			d.run(t, x)
			x.stop()
			require.Zero(t, x.failed.Load(), "of %d requests; the last: %v", x.asked.Load(), x.why.Load())
			over, bound, because := x.limits(d)
			cut := ""
			if n := x.cut.Load(); n > 0 {
				cut = fmt.Sprintf(", and %d in flight on the killed process", n)
			}
			row := fmt.Sprintf("| %s | %s | %d | %d%s | %d | %d | %s | %s |\n", d.breaks, d.promise, x.asked.Load(), x.failed.Load(), cut, over, bound, because, elapsed(x.recovered))
			t.Log(row, x.aside.causes)
			table.WriteString(row)
			ran++
		})
	}
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	marked := regexp.MustCompile(`(?s)(<!-- make drills -->\n).*(<!-- end -->)`)
	require.Regexp(t, marked, string(text))
	if into != "" && !t.Failed() && ran == len(drills()) { // -run may choose fewer
		require.NoError(t, os.WriteFile(into, marked.ReplaceAll(text, []byte("${1}\n"+table.String()+"\n${2}")), 0o644))
		return
	}
	for _, d := range drills() {
		require.Contains(t, string(text), "\n| "+d.breaks+" | "+d.promise+" |", "docs/DRILLS.md is of other drills: make drills")
	}
}

func elapsed(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
