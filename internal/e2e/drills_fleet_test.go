package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/internal/testenv"
)

// region starts a region whose rules come from Consul.
func (x *exercise) region(t *testing.T, o testenv.ConsulOptions) *fleet {
	t.Helper()
	o.Datacenter = "eu-west"
	consul := testenv.StartConsul(t, o)
	s := &site{name: o.Datacenter, consul: consul, redis: testenv.Redis(t, testenv.Options{}), budget: budget}
	f := &fleet{t: t, regions: []*site{s}}
	token := ""
	if o.ACL {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte(consul.Token()), 0o600))
		token = fmt.Sprintf(", token_file: %q", file)
	}
	f.write(token)
	backend := origin(t, nil)
	for n := range drillNodes {
		folder := t.TempDir()
		cache := filepath.Join(folder, "rules.json")
		x.caches = append(x.caches, cache)
		config := s.config(backend, n, cache, x.edgeToken(t, consul, o)) + fmt.Sprintf("access_log: {file: %q}\n", filepath.Join(folder, "access.log"))
		s.nodes = append(s.nodes, testenv.StartEdge(t, config))
	}
	f.registers()
	f.apply(drillRules)
	for _, n := range s.nodes {
		n.WaitReady()
	}
	x.begin(s.nodes)
	return f
}

// edgeToken writes a revocable token to a file and returns its configuration; "" without ACLs.
func (x *exercise) edgeToken(t *testing.T, consul *testenv.Consul, o testenv.ConsulOptions) string {
	t.Helper()
	if !o.ACL {
		return ""
	}
	if x.token == "" {
		x.accessor, x.token = consul.NewToken(t, testenv.Policy(t, "weir-edge"))
		x.tokenFile = filepath.Join(t.TempDir(), "edge.token")
		require.NoError(t, os.WriteFile(x.tokenFile, []byte(x.token), 0o600))
	}
	return fmt.Sprintf(", token_file: %q", x.tokenFile)
}

// follows matches nodes whose reads from Consul succeed, or fail if not ok.
func follows(ok bool) func(*testenv.EdgeNode) bool {
	return func(n *testenv.EdgeNode) bool {
		r, err := rulesOf(n)
		return err == nil && r.Consul.OK == ok
	}
}

var (
	// backOff is how a node finds a Consul that is back.
	backOff = steps{{"the longest pause between attempts", 8 * time.Second}, {"a dial in progress", 2 * time.Second}, looking}
	// publishing is how long a document takes to arrive.
	publishing = steps{{"Consul answers regionctl within", 5 * time.Second}, {"the watch's pause", 500 * time.Millisecond}, looking}
)

func consulDrills() []drill {
	const running = "rules and limits stay active"
	lose := func(lose, back func(c *testenv.Consul)) func(*testing.T, *exercise) {
		return func(t *testing.T, x *exercise) {
			c := x.region(t, testenv.ConsulOptions{}).regions[0].consul
			x.changes(func() { lose(c) })
			x.sees("Consul is missed", follows(false))
			x.answers(800)
			x.changes(func() { back(c) })
			x.recovers("Consul is followed again", follows(true))
		}
	}
	return []drill{
		{breaks: "Consul killed", guarantee: running, short: true, within: backOff, run: lose((*testenv.Consul).Kill, (*testenv.Consul).Start)},
		{breaks: "Consul hung", guarantee: running, within: backOff, run: lose((*testenv.Consul).Suspend, (*testenv.Consul).Resume)},
		{breaks: "Consul's leader killed three times, of three servers", guarantee: running, within: backOff, run: leaderFlaps},
		{breaks: "Consul lost its data", guarantee: running + " until rules are published again", within: publishing, run: func(t *testing.T, x *exercise) {
			f := x.region(t, testenv.ConsulOptions{})
			x.changes(func() {
				_, err := f.regions[0].consul.Client().KV().DeleteTree("weir/", nil)
				require.NoError(t, err)
			})
			x.answers(800)
			var version string
			repair := time.Now()
			x.changes(func() {
				f.apply(drillRules + "  - {id: more, match: {paths: [/more]}, key: [client_ip], limit: 5, window: 1m}\n")
				r, err := rulesOf(f.regions[0].nodes[0])
				require.NoError(t, err)
				version = r.Version
			})
			x.since = repair // includes the publishing
			x.recovers("the new rules run", func(n *testenv.EdgeNode) bool {
				r, err := rulesOf(n)
				return err == nil && r.Version == version
			})
		}},
		{breaks: "the nodes' Consul token revoked", guarantee: running, within: backOff, run: func(t *testing.T, x *exercise) {
			f := x.region(t, testenv.ConsulOptions{ACL: true})
			c := f.regions[0].consul
			x.changes(func() {
				_, err := c.Client().ACL().TokenDelete(x.accessor, nil)
				require.NoError(t, err)
			})
			x.sees("the revoked token shows", follows(false))
			x.answers(400)
			_, fresh := c.NewToken(t, testenv.Policy(t, "weir-edge"))
			x.changes(func() { require.NoError(t, os.WriteFile(x.tokenFile, []byte(fresh), 0o600)) })
			x.recovers("the new token is taken up", follows(true))
		}},
		{breaks: "disk full (no file can grow) under the copy of the rules and the access log", guarantee: "new rules apply immediately; lost log lines are counted", within: steps{{"the longest pause between attempts", 8 * time.Second}, looking}, run: fullDisk},
		{breaks: "rules published every second, eight times", guarantee: "unchanged rules keep their counts", within: atOnce, run: func(t *testing.T, x *exercise) {
			f := x.region(t, testenv.ConsulOptions{})
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for i := range 8 {
				<-tick.C
				x.changes(func() {
					f.apply(drillRules + fmt.Sprintf("  - {id: more, match: {paths: [/more]}, key: [client_ip], limit: %d, window: 1m}\n", i+1))
				})
			}
			x.returns()
		}},
	}
}

// fullDisk makes every write of the nodes to a file fail: the copy of the rules, the access
// log, and their output.
func fullDisk(t *testing.T, x *exercise) {
	f := x.region(t, testenv.ConsulOptions{})
	grow := func(to uint64) {
		for _, n := range x.nodes {
			require.NoError(t, unix.Prlimit(n.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: to, Max: unix.RLIM_INFINITY}, nil))
		}
	}
	x.changes(func() { grow(0) })
	more := drillRules + "  - {id: more, match: {paths: [/more]}, key: [client_ip], limit: 5, window: 1m}\n"
	f.apply(more) // returns when every node runs it
	x.sees("both miss it", func(n *testenv.EdgeNode) bool {
		return metrics(t, n, "weir_rules_cache_errors_total")["weir_rules_cache_errors_total"] > 0 &&
			metrics(t, n, "weir_access_log_dropped_total")["weir_access_log_dropped_total"] > 0
	})
	x.answers(800)
	x.changes(func() { grow(unix.RLIM_INFINITY) })
	x.recovers("the rules are on disk", func(*testenv.EdgeNode) bool {
		for _, file := range x.caches {
			if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "/more") {
				return false
			}
		}
		return true
	})
}

func leaderFlaps(t *testing.T, x *exercise) {
	c := x.region(t, testenv.ConsulOptions{Servers: 3}).regions[0].consul
	for range 3 {
		x.changes(func() { c.KillLeader() })
		c.WaitHealthy() // the other servers elect a leader
		x.changes(c.Start)
	}
	x.recovers("Consul is followed again", follows(true))
}

func edgeDrills() []drill {
	return []drill{
		{breaks: "an edge killed under load", guarantee: "other nodes are unaffected (with a budget of 5 s: a killed process cannot show which it missed)", short: true, budget: generous,
			within: steps{{"a start", time.Second}, inTime, looking},
			run: alone(func(t *testing.T, x *exercise, _ *testenv.Server) {
				x.changes(func() { x.kills(x.nodes[0]) })
				x.answers(800)
				x.changes(x.nodes[0].Start)
				x.nodes[0].WaitReady()
				x.killing.Store(false)
				x.returns()
			})},
		{breaks: "an edge stopped under load (SIGTERM)", guarantee: "it answers every request that it accepted; clients move to other nodes (with a budget of 5 s: a stopped process cannot show which it missed)", short: true, budget: generous,
			within: steps{{"a start", time.Second}, inTime, looking},
			run: alone(func(t *testing.T, x *exercise, _ *testenv.Server) {
				x.aside.add(t, x.nodes[0], x.most())
				x.stopping.Store(true)
				x.changes(x.nodes[0].Terminate)
				x.answers(800)
				x.changes(x.nodes[0].Start)
				x.nodes[0].WaitReady()
				x.stopping.Store(false)
				x.returns()
			})},
		{breaks: "an edge paused for 10 s", guarantee: "its requests wait, and its share decides those that were waiting for Redis; others are unaffected", local: true,
			within: afterProbe,
			run: alone(func(t *testing.T, x *exercise, _ *testenv.Server) {
				require.NoError(t, x.nodes[0].Signal(syscall.SIGSTOP))
				<-time.After(10 * time.Second)
				x.changes(func() { require.NoError(t, x.nodes[0].Signal(syscall.SIGCONT)) })
				x.returns()
			})},
		{breaks: "an upstream that answers after 2 s", guarantee: "requests to others continue", within: atOnce, run: bad(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(2 * time.Second):
			case <-r.Context().Done():
			}
		})},
		{breaks: "an upstream that lies about the length", guarantee: "requests to others continue", within: atOnce, run: bad(func(w http.ResponseWriter, _ *http.Request) {
			reply(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
		})},
		{breaks: "10,000 idle connections", guarantee: "other clients are unaffected", within: atOnce, run: crowd(10_000, nil)},
		{breaks: "1,000 clients that send a byte in 100 ms", guarantee: "other clients are unaffected", within: atOnce, run: crowd(1000, []byte("GET /tight HTTP/1.1\r\nHost: x\r\nX-Slow: "+strings.Repeat("a", 100)))},
		{breaks: "no file descriptors left", guarantee: "open connections continue, new ones wait", within: steps{{"the longest pause before accepting again", time.Second}, inTime, looking}, run: noFiles},
		{breaks: "a stampede after an outage: Redis killed and started empty, 64 clients with 6,400 cold keys at once", guarantee: "each node admits up to its share per client; the count starts over", local: true,
			within: afterDial, run: stampede},
		{breaks: "an upstream that resets connections", guarantee: "requests to others continue", within: atOnce, run: bad(func(w http.ResponseWriter, _ *http.Request) { reply(w, "") })},
	}
}

// crowd opens n connections to a node and sends each one's text byte by byte.
func crowd(n int, says []byte) func(*testing.T, *exercise) {
	return alone(func(t *testing.T, x *exercise, _ *testenv.Server) {
		conns := make([]net.Conn, n)
		x.changes(func() {
			for i := range conns {
				var err error
				conns[i], err = net.Dial("tcp", x.nodes[0].Public)
				require.NoError(t, err)
			}
		})
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := range min(len(says), 50) {
			for _, c := range conns {
				_, _ = c.Write(says[i : i+1]) // the node may have closed it
			}
			<-tick.C
		}
		x.answers(1200)
		x.changes(func() {
			for _, c := range conns {
				_ = c.Close() // likewise
			}
		})
		x.returns()
	})
}

// noFiles keeps a node from opening anything more.
func noFiles(t *testing.T, x *exercise) {
	alone(func(t *testing.T, x *exercise, _ *testenv.Server) {
		n := x.nodes[0]
		var limit unix.Rlimit
		require.NoError(t, unix.Prlimit(n.Pid(), unix.RLIMIT_NOFILE, nil, &limit))
		none := limit
		none.Cur = 1 // open files stay open
		x.changes(func() { require.NoError(t, unix.Prlimit(n.Pid(), unix.RLIMIT_NOFILE, &none, nil)) })
		fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answered := make(chan error, 20)
		for range cap(answered) {
			go func() {
				resp, err := fresh.Get("http://" + n.Public + "/")
				if err == nil {
					err = resp.Body.Close()
				}
				answered <- err
			}()
		}
		x.answers(1200)
		require.Empty(t, answered, "a new connection waits")
		x.changes(func() { require.NoError(t, unix.Prlimit(n.Pid(), unix.RLIMIT_NOFILE, &limit, nil)) })
		for range cap(answered) {
			require.NoError(t, <-answered)
		}
		x.returns()
	})(t, x)
}

func stampede(t *testing.T, x *exercise) {
	alone(func(t *testing.T, x *exercise, s *testenv.Server) {
		x.changes(s.Kill)
		x.forgets(nil)
		x.falls()
		x.changes(s.Start)
		c := client()
		defer c.CloseIdleConnections()
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for k := range 100 {
					status, err := get(c, x.nodes[k%len(x.nodes)].Public, "/", fmt.Sprintf("192.0.%d.%d", 2+i, k))
					x.asked.Add(1)
					if err != nil || status != http.StatusOK {
						x.failed.Add(1)
						x.why.Store(fmt.Sprint(status, err))
					}
				}
			})
		}
		x.returns()
		wg.Wait()
	})(t, x)
}

// reply writes these bytes and closes the connection.
func reply(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = conn.Write([]byte(text)) // the peer may have closed it
	_ = conn.Close()                // likewise
}

// bad runs a drill in which one upstream group answers like this.
func bad(answer http.HandlerFunc) func(*testing.T, *exercise) {
	return func(t *testing.T, x *exercise) {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		stop := x.beside(t, s.URL, "")
		x.answers(1200)
		x.changes(stop)
		x.returns()
	}
}

// beside begins a drill with an upstream in its own group, which gets requests for /bad until
// stop.
func (x *exercise) beside(t *testing.T, url, more string) (stop func()) {
	t.Helper()
	redis := testenv.Redis(t, testenv.Options{})
	config := redisConfig(origin(t, nil), "single", []string{redis.Addr}, max(budget, x.budget), drillNodes, "")
	config = strings.Replace(config, "}]\n", fmt.Sprintf("}, {url: %q, group: bad}]\nroutes: [{match: {paths: [/bad]}, group: bad}]\n%s", url, more), 1)
	x.begin(edges(t, drillNodes, config, drillRules))
	c := client()
	done := make(chan struct{})
	for range 20 {
		go func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-done:
					return
				case <-pace.C:
					_, _ = get(c, x.nodes[0].Public, "/bad", victim) // their outcome is not part of the drill
				}
			}
		}()
	}
	stop = sync.OnceFunc(func() { close(done); c.CloseIdleConnections() })
	t.Cleanup(stop)
	return stop
}
