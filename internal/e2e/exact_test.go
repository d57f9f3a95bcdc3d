package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const limit = 50

// longRules limit each algorithm over a window that outlasts the test.
var longRules = `
rules:
  - {id: fixed, match: {paths: [/fixed]}, key: [client_ip], algorithm: fixed_window, limit: 50, window: ` + testenv.LongWindow() + `}
  - {id: sliding, match: {paths: [/sliding]}, key: [client_ip], algorithm: sliding_window, limit: 50, window: ` + testenv.LongWindow() + `}
  - {id: token, match: {paths: [/token]}, key: [client_ip], algorithm: token_bucket, limit: 50, window: 24h, burst: 50}
  - {id: leaky, match: {paths: [/leaky]}, key: [client_ip], algorithm: leaky_bucket, limit: 50, window: 24h, burst: 49}
  - {id: ring, match: {paths: [/ring]}, key: [client_ip], algorithm: rolling_window, limit: 50, window: 24h}
  - {id: set, match: {paths: [/set]}, key: [client_ip], algorithm: rolling_window, storage: sorted_set, limit: 50, window: 24h}
`

// generous is a time budget that no healthy decision exceeds, even on a busy machine: these
// tests check counts, and a fallback would count separately.
const generous = 5 * time.Second

func edges(t testing.TB, n int, config, rules string) []*testenv.EdgeNode {
	t.Helper()
	var nodes []*testenv.EdgeNode
	for range n {
		nodes = append(nodes, testenv.Edge(t, config, rules))
	}
	return nodes
}

// awaitRedis waits until every node decides in Redis.
func awaitRedis(t testing.TB, nodes []*testenv.EdgeNode, path, who string) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, testenv.Patience, n.Public+" decides in Redis", func() bool {
			e, err := explain(n, path, who)
			return err == nil && len(e.Rules) > 0 && e.Rules[0].Source == "redis"
		})
	}
}

func TestExactOverThreeNodesAndACluster(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	nodes := edges(t, 3, redisConfig(origin(t, nil), "cluster", cluster.Addrs(), generous, 3, ""), longRules)
	for run := range runs() {
		for _, path := range []string{"fixed", "sliding", "token", "leaky", "ring", "set"} {
			t.Run(fmt.Sprintf("%s/%d", path, run), func(t *testing.T) {
				who := fmt.Sprintf("198.51.100.%d", run)
				awaitRedis(t, nodes, "/"+path, who)
				got := statuses(t, nodes, "/"+path, who, 200, 1000)
				require.Equal(t, map[int]int{http.StatusOK: limit, http.StatusTooManyRequests: 1000 - limit}, got)
			})
		}
	}
}

// Nodes count together from the first answered request, even while a cluster is slow to report
// its slots: requests to a starting node wait instead of using its own share.
func TestExactFromTheFirstRequest(t *testing.T) {
	t.Parallel()
	p := link(t, testenv.Cluster(t, testenv.Options{}).Addrs()[0])
	_, err := p.Toxics.AddToxicJson(strings.NewReader(`{"name":"slow","type":"latency","attributes":{"latency":50}}`))
	require.NoError(t, err)
	config := redisConfig(origin(t, nil), "cluster", []string{p.Listen}, generous, 3, "")
	file := write(t, "rules.yaml", longRules)
	got := map[int]int{}
	for range 3 {
		n := testenv.StartEdge(t, fmt.Sprintf("rules: {source: file, file: %q}\n%s", file, config))
		eventually(t, testenv.Patience, "the node listens", func() bool {
			conn, err := net.Dial("tcp", n.Public)
			if err != nil {
				return false
			}
			return conn.Close() == nil
		})
		for status, count := range statuses(t, []*testenv.EdgeNode{n}, "/fixed", "198.51.100.7", 20, 100) {
			got[status] += count
		}
	}
	require.Equal(t, map[int]int{http.StatusOK: limit, http.StatusTooManyRequests: 300 - limit}, got)
}

func TestExactConcurrencyOverThreeNodes(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t, testenv.Options{})
	const rules = "rules:\n  - {id: in-flight, key: [client_ip], algorithm: concurrency, limit: 50, window: 10m}\n"
	for run := range runs() {
		hold := make(chan struct{})
		nodes := edges(t, 3, redisConfig(origin(t, hold), "cluster", cluster.Addrs(), generous, 3, ""), rules)
		who := fmt.Sprintf("198.51.100.%d", run)
		awaitRedis(t, nodes, "/", who)
		var got map[int]int
		var wg sync.WaitGroup
		wg.Go(func() { got = statuses(t, nodes, "/", who, 200, 200) })
		eventually(t, testenv.Patience, "all others are refused", func() bool {
			refused := 0.0
			for _, n := range nodes {
				refused += metrics(t, n, "weir_requests_total")[`weir_requests_total{code_class="4xx"}`]
			}
			return refused == 200-limit
		})
		close(hold)
		wg.Wait()
		require.Equal(t, map[int]int{http.StatusOK: limit, http.StatusTooManyRequests: 200 - limit}, got)
		for _, n := range nodes { // every slot came back
			eventually(t, testenv.Patience, "slots come back", func() bool {
				e, err := explain(n, "/", who)
				return err == nil && e.Rules[0].Remaining == limit
			})
		}
	}
}

// Windows begin and end under load: the admitted requests equal Redis's writes, and no window
// exceeds the limit.
func TestExactInEveryWindow(t *testing.T) {
	t.Parallel()
	const rules = `
rules:
  - {id: fixed, match: {paths: [/fixed]}, key: [client_ip], algorithm: fixed_window, limit: 20, window: 1s}
  - {id: set, match: {paths: [/set]}, key: [client_ip], algorithm: rolling_window, storage: sorted_set, limit: 20, window: 1s}
`
	cluster := testenv.Cluster(t, testenv.Options{})
	nodes := edges(t, 3, redisConfig(origin(t, nil), "cluster", cluster.Addrs(), generous, 3, ""), rules)
	for run := range runs() {
		who := fmt.Sprintf("198.51.100.%d", run)
		t.Run(fmt.Sprintf("fixed/%d", run), func(t *testing.T) {
			passed, written := loadRecorded(t, cluster, nodes, "/fixed", who)
			counts := map[string]int{} // by start of the window
			for _, command := range written {
				if command[0] == "SET" {
					start, count, _ := strings.Cut(command[2], " ")
					n, err := strconv.Atoi(count)
					require.NoError(t, err)
					counts[start] = max(counts[start], n)
				}
			}
			require.Greater(t, len(counts), 2)
			total := 0
			for _, n := range counts {
				require.LessOrEqual(t, n, 20)
				total += n
			}
			require.Equal(t, passed, total)
		})
		t.Run(fmt.Sprintf("rolling/%d", run), func(t *testing.T) {
			passed, written := loadRecorded(t, cluster, nodes, "/set", who)
			log := map[string]float64{} // member to time
			for _, command := range written {
				if command[0] == "ZADD" { // key, NX, then alternating scores and members
					for i := 3; i < len(command); i += 2 {
						at, err := strconv.ParseFloat(command[i], 64)
						require.NoError(t, err)
						log[command[i+1]] = at
					}
				}
			}
			require.Len(t, log, passed)
			var times []float64
			for _, at := range log {
				times = append(times, at)
			}
			slices.Sort(times)
			full := 0
			for i := range times {
				if j := i + 20; j < len(times) {
					require.Greater(t, times[j]-times[i], 1e6-1, "21 requests within a second")
					full++
				}
			}
			require.Positive(t, full)
		})
	}
}

// loadRecorded loads one key until more than three times its limit has passed. It returns the
// number of admitted requests and every command on the key.
func loadRecorded(t *testing.T, cluster *testenv.RedisCluster, nodes []*testenv.EdgeNode, path, who string) (passed int, commands [][]string) {
	t.Helper()
	awaitRedis(t, nodes, path, who)
	e, err := explain(nodes[0], path, who)
	require.NoError(t, err)
	recorded := record(t, cluster.MasterOf(e.Rules[0].Key), e.Rules[0].Key)
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	c := client()
	defer c.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				status, err := get(c, nodes[n%len(nodes)].Public, path, who)
				if err == nil && status == http.StatusOK {
					mu.Lock()
					if passed++; passed > 3*20 {
						cancel()
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return passed, recorded()
}

var quoted = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// record follows a server's MONITOR, which prints each command as it runs, including scripts'
// own. Unlike polls of the key, it misses nothing, however busy the machine. end stops the
// recording and returns the commands on the key.
func record(t *testing.T, server *testenv.Server, key string) (end func() [][]string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "MONITOR\r\n")
	require.NoError(t, err)
	lines := bufio.NewScanner(conn)
	require.True(t, lines.Scan(), "%v", lines.Err())
	require.Equal(t, "+OK", lines.Text())
	const mark = "the recording ends here"
	done := make(chan [][]string)
	go func() {
		defer close(done)
		var commands [][]string
		for lines.Scan() {
			var command []string
			for _, m := range quoted.FindAllStringSubmatch(lines.Text(), -1) {
				command = append(command, m[1])
			}
			switch {
			case len(command) > 1 && command[1] == key:
				commands = append(commands, command)
			case len(command) == 2 && command[1] == mark:
				done <- commands
				return
			}
		}
	}()
	return func() [][]string {
		t.Helper()
		require.NoError(t, server.Client().Echo(context.Background(), mark).Err())
		commands, whole := <-done
		require.True(t, whole, "the recording broke off")
		return commands
	}
}
