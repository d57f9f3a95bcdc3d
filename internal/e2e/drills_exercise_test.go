package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

// exercise is a running drill.
type exercise struct {
	t      *testing.T
	nodes  []*testenv.EdgeNode
	budget time.Duration // of the store, unless the default
	stop   func()

	// ask sends a worker's request; nil: to the worker's node.
	ask func(c *fasthttp.Client, worker int, path, who string) (int, error)

	asked, failed, cut atomic.Int64
	why                atomic.Value
	lastCut            atomic.Int64 // in ns
	spenders           atomic.Pointer[[]*spender]
	turns              [workers]atomic.Int64 // requests that each worker has finished
	killing            atomic.Bool           // a process is being killed: its requests in flight are lost
	stopping           atomic.Bool           // a process is being stopped: the kernel resets what it has not accepted
	aside              aside                 // decisions without Redis by nodes that no longer run
	again              int64                 // how often a clock step makes a node restart its shares

	accessor, token, tokenFile string   // the nodes' token for Consul
	caches                     []string // the nodes' cached rules

	since     time.Time
	recovered time.Duration
}

// spender is a greedy client.
type spender struct {
	addr          string
	asked, passed atomic.Int64
	forgiven      int64 // how many of its admitted requests Redis may have lost since
}

// joins adds clients that exceed their limit.
func (x *exercise) joins(addrs ...string) {
	var list []*spender
	if old := x.spenders.Load(); old != nil {
		list = slices.Clone(*old)
	}
	for _, addr := range addrs {
		list = append(list, &spender{addr: addr})
	}
	x.spenders.Store(&list)
}

// newcomers returns greedy clients that Redis has not counted.
func newcomers() (addrs []string) {
	for i := range greedy / 2 {
		addrs = append(addrs, fmt.Sprintf("198.51.100.%d", 150+i))
	}
	return addrs
}

// passes maps greedy clients to their admitted requests.
type passes map[*spender]int64

func (x *exercise) counted() passes {
	p := passes{}
	for _, s := range *x.spenders.Load() {
		p[s] = s.passed.Load()
	}
	return p
}

// replicated returns the counts that replicas of these masters certainly have too.
func (x *exercise) replicated(replicas int, masters ...*testenv.Server) passes {
	x.t.Helper()
	p := x.counted() // and Redis had counted it before
	for _, m := range masters {
		have, err := m.Client().Wait(x.t.Context(), replicas, testenv.Patience).Result()
		require.NoError(x.t, err)
		require.EqualValues(x.t, replicas, have)
	}
	return p
}

// forgets records that Redis may have lost the requests admitted since kept. If kept is nil, it
// may have lost everything.
func (x *exercise) forgets(kept passes, clients ...string) {
	x.t.Helper()
	var from [workers]int64
	for i := range x.turns {
		from[i] = x.turns[i].Load()
	}
	for i := range x.turns { // waits for answers to earlier decisions
		eventually(x.t, testenv.Patience, "a worker continues", func() bool { return x.turns[i].Load() > from[i] })
	}
	for s, passed := range x.counted() {
		if len(clients) == 0 || slices.Contains(clients, s.addr) {
			s.forgiven += min(drillLimit, passed-kept[s])
		}
	}
}

// redis starts nodes with Redis, and the load.
func (x *exercise) redis(mode string, addrs []string, more string) {
	x.t.Helper()
	x.begin(edges(x.t, drillNodes, redisConfig(origin(x.t, nil), mode, addrs, max(budget, x.budget), drillNodes, more), drillRules))
}

// begin loads the nodes until the drill ends: half of the requests come from clients far below
// their limit, half from greedy ones. Each worker keeps to one node, so a hanging node delays
// only its own requests; as behind a balancer, it uses the other node when its own refuses
// connections.
func (x *exercise) begin(nodes []*testenv.EdgeNode) {
	x.t.Helper()
	x.nodes = nodes
	awaitRedis(x.t, nodes, "/", victim)
	x.sees("all nodes are counted", func(n *testenv.EdgeNode) bool {
		return metrics(x.t, n, "weir_store_nodes")["weir_store_nodes"] >= drillNodes
	})
	x.aside.causes = map[string]int64{}
	for _, n := range nodes { // earlier failures do not count
		for name, v := range metrics(x.t, n, "weir_store_errors_total") {
			x.aside.causes[name] -= int64(v)
		}
	}
	for i := range greedy {
		x.joins(fmt.Sprintf("198.51.100.%d", 100+i))
	}
	if x.ask == nil {
		x.ask = x.balanced
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	c := client()
	c.MaxIdemponentCallAttempts = 1
	for worker := range workers {
		wg.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				x.request(c, worker, n)
				x.turns[worker].Add(1)
			}
		})
	}
	x.stop = sync.OnceFunc(func() { close(done); wg.Wait(); c.CloseIdleConnections() })
	x.t.Cleanup(x.stop)
	x.answers(400)
}

// balanced asks the worker's node, or the other one if that refuses connections. While a node stops,
// its last connections may break before any byte of an answer: then it must refuse the next.
func (x *exercise) balanced(c *fasthttp.Client, worker int, path, who string) (int, error) {
	node := x.nodes[worker/2%len(x.nodes)].Public
	status, err := get(c, node, path, who)
	if x.stopping.Load() && unanswered(err) {
		_, err = get(c, node, path, who) // the kernel refuses connections before it resets others; an answer fails as status 0
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return get(c, x.nodes[(worker/2+1)%len(x.nodes)].Public, path, who)
	}
	return status, err
}

// unanswered reports whether a connection broke before any byte of an answer.
func unanswered(err error) bool {
	var op *net.OpError
	broke := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	return errors.Is(err, fasthttp.ErrConnectionClosed) || broke && errors.As(err, &op) && op.Op != "read"
}

// request sends a worker's nth request and checks the answer.
func (x *exercise) request(c *fasthttp.Client, worker, n int) {
	path, who, list := "/", fmt.Sprintf("203.0.113.%d", (workers*n+worker)%250), *x.spenders.Load()
	spender := list[(n+worker)%len(list)]
	if worker%2 == 1 {
		path, who = "/tight", spender.addr
	}
	status, err := x.ask(c, worker, path, who)
	x.asked.Add(1)
	if path == "/tight" {
		spender.asked.Add(1)
	}
	switch {
	case err != nil && x.killing.Load():
		x.cut.Add(1)
		x.lastCut.Store(time.Now().UnixNano())
	case err != nil:
		x.failed.Add(1)
		x.why.Store(err.Error())
	case status == http.StatusOK && path == "/tight":
		spender.passed.Add(1)
	case status != http.StatusOK && (path == "/" || status != http.StatusTooManyRequests):
		x.failed.Add(1)
		x.why.Store(fmt.Sprintf("%s: status %d", path, status))
	}
}

// answers waits for n more answers of the load.
func (x *exercise) answers(n int64) {
	x.t.Helper()
	from := x.asked.Load()
	eventually(x.t, testenv.Patience, "requests are answered", func() bool { return x.asked.Load() >= from+n })
}

// changes breaks or repairs something: the recovery is timed from the last change.
func (x *exercise) changes(what func()) {
	what()
	x.since = time.Now()
}

// sees waits until a condition is true for every node.
func (x *exercise) sees(what string, is func(n *testenv.EdgeNode) bool) {
	x.t.Helper()
	for _, n := range x.nodes {
		eventually(x.t, testenv.Patience, what, func() bool { return is(n) })
	}
}

// recovers waits for the condition that ends the drill, and records the time.
func (x *exercise) recovers(what string, is func(n *testenv.EdgeNode) bool) {
	x.t.Helper()
	x.sees(what, is)
	x.recovered = time.Since(x.since)
	x.exceed()
}

// exceed waits until every greedy client has sent twice its limit: a bound is tested only by
// clients that tried to exceed the limit.
func (x *exercise) exceed() {
	x.t.Helper()
	from := map[*spender]int64{}
	for _, s := range *x.spenders.Load() {
		from[s] = s.asked.Load()
	}
	for s, asked := range from {
		eventually(x.t, testenv.Patience, "greedy clients ask", func() bool { return s.asked.Load() >= asked+2*drillLimit })
	}
}

// kills ends a node's process, after reading its metrics, which die with it.
func (x *exercise) kills(n *testenv.EdgeNode) {
	x.t.Helper()
	x.killing.Store(true)
	x.aside.add(x.t, n, x.most())
	n.Kill()
}

// by matches nodes that decide by this source.
func by(source string) func(n *testenv.EdgeNode) bool {
	return func(n *testenv.EdgeNode) bool { return decidedBy(n) == source }
}

// falls waits until no node decides in Redis, and then for some answers.
func (x *exercise) falls() {
	x.t.Helper()
	x.sees("decisions fall back", by("fallback"))
	x.answers(800)
}

// fallsWriting is falls for a Redis that can still be read, which answers what only looks.
func (x *exercise) fallsWriting() {
	x.t.Helper()
	aside := func(n *testenv.EdgeNode) (sum float64) {
		for name, v := range metrics(x.t, n, "weir_decisions_total") {
			if strings.Contains(name, `source="fallback"`) {
				sum += v
			}
		}
		return sum
	}
	before := map[*testenv.EdgeNode]float64{}
	for _, n := range x.nodes {
		before[n] = aside(n)
	}
	x.sees("requests are decided aside", func(n *testenv.EdgeNode) bool { return aside(n) > before[n] })
	x.answers(800)
}

// returns ends a drill in which Redis was lost.
func (x *exercise) returns() { x.t.Helper(); x.recovers("Redis decides again", by("redis")) }

// aside is what nodes decided without Redis, by their own metrics.
type aside struct {
	passed int64            // greedy clients' requests
	causes map[string]int64 // all decisions without Redis, by kind
}

// most returns the most requests of greedy clients that a node admits alone.
func (x *exercise) most() int64 { return int64(len(*x.spenders.Load())) * share * (1 + x.again) }

func (a *aside) add(t *testing.T, n *testenv.EdgeNode, most int64) {
	t.Helper()
	passed := int64(metrics(t, n, "weir_decisions_total")[`weir_decisions_total{outcome="allowed",rule="tight",source="fallback"}`])
	require.LessOrEqual(t, passed, most, "a node lets a client pass its share at most")
	a.passed += passed
	for name, v := range metrics(t, n, "weir_store_errors_total") {
		a.causes[name] += int64(v)
	}
}

// limits checks the drill's bound: a client may exceed its limit by the requests that nodes
// admitted without Redis, which their shares bound, and by those that Redis lost. It returns
// the figures of the client with the largest excess.
func (x *exercise) limits(d drill) (over, bound int64, because string) {
	x.t.Helper()
	a := &x.aside
	for _, n := range x.nodes {
		a.add(x.t, n, x.most())
	}
	if a.passed > 0 && !d.local {
		require.Positive(x.t, a.causes[`weir_store_errors_total{kind="timeout"}`],
			"Redis was there: only a missed budget lets nodes decide without it: %v", a.causes)
	}
	alone := min(a.passed, shares+share*x.again)
	total, forgiven := int64(0), int64(0)
	over, bound = -1, 0
	for _, s := range *x.spenders.Load() {
		more := max(0, s.passed.Load()-drillLimit)
		require.LessOrEqual(x.t, more, alone+s.forgiven, "%s over the limit; nodes passed %d without Redis: %v", s.addr, a.passed, a.causes)
		if more > over || more == over && s.forgiven < bound-alone {
			over, bound = more, alone+s.forgiven
		}
		total, forgiven = total+more, forgiven+s.forgiven
	}
	require.LessOrEqual(x.t, total, a.passed+forgiven, "all clients over their limits; nodes passed %d without Redis: %v", a.passed, a.causes)
	var reasons []string
	if bound > alone {
		reasons = append(reasons, fmt.Sprintf("%s: %d", cmp.Or(d.forgives, "counts lost"), bound-alone))
	}
	switch {
	case a.passed > 0 && d.local:
		reasons = append(reasons, fmt.Sprintf("shares: %d", alone))
	case a.passed > 0:
		reasons = append(reasons, fmt.Sprintf("budgets missed: %d", alone))
	case bound == 0:
		reasons = append(reasons, "nothing")
	}
	return over, bound, strings.Join(reasons, "; ")
}
