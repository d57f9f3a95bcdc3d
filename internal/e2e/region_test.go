package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const (
	// dnsTTL is short, so that the tests are: what they bound is TTL + 5 s.
	dnsTTL = 2 * time.Second
	// outWithin and backWithin are the bounds for a PoP whose edges are killed, and
	// come back.
	outWithin, backWithin = 5 * time.Second, 10 * time.Second
	zone                  = "edge.example.com"
	europe, america       = "198.51.100.0/24", "203.0.113.0/24" // clients of ams1, and of iad1
)

// pop is a site: edges behind one public address, where a balancer sends each
// connection to one that says that it is ready, as those of clouds do.
type pop struct {
	name, addr string
	region     *site
	nodes      []*testenv.EdgeNode
	ready      []atomic.Bool
	next       atomic.Int64
	last       atomic.Int64 // when a connection came, in ns
	sentAway   atomic.Value // why the balancer closed a connection without an answer, at last
}

// world is regions with PoPs, a DNS router and what clients need.
type world struct {
	*fleet
	pops   []*pop
	port   int
	router string // its address for DNS
	log    string
}

// startWorld starts eu with ams1 and fra1, us with iad1, and ap with sin1, each of two
// edges. What comes under /slow is held.
func startWorld(t *testing.T) *world {
	t.Helper()
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(100 * time.Millisecond) }))
	t.Cleanup(slow.Close)
	backend := origin(t, nil)
	w := &world{fleet: &fleet{t: t}, port: testenv.FreePorts(t, 1)[0]}
	var topology strings.Builder
	fmt.Fprintf(&topology, "zone: %s\nregions:\n", zone)
	sites := map[string][]string{"eu": {"ams1", "fra1"}, "us": {"iad1"}, "ap": {"sin1"}}
	clients := map[string]string{"ams1": "198.51.0.0/16", "iad1": america}
	for i, consul := range testenv.StartConsuls(t, testenv.ConsulOptions{}, "eu", "us", "ap") {
		s := &site{name: consul.Datacenter, consul: consul}
		w.regions = append(w.regions, s)
		fmt.Fprintf(&topology, "  - name: %s\n    pops:\n", s.name)
		for j, name := range sites[s.name] {
			p := &pop{name: name, region: s, addr: fmt.Sprintf("127.2.%d.%d", i+1, j+1), ready: make([]atomic.Bool, 2)}
			for n := range p.ready {
				node := testenv.StartEdge(t, fmt.Sprintf(`
node: {id: %s-%d, region: %s, pop: %[1]s}
rules: {source: consul, cache: %[4]q}
consul: {addr: %[5]q}
upstreams: [{url: %[6]q}, {url: %[7]q, group: slow}]
trusted_proxies: [127.0.0.1]
routes: [{match: {paths: ["/slow/*"]}, group: slow}]
store: {kind: memory}
shedder:
  signals: {cpu: off, sched_latency: off, upstream_wait: off}
  upstreams: {slow: {patience: 1s, signals: {inflight: {low: 0, high: 10}}}}
`, name, n+1, s.name, filepath.Join(t.TempDir(), "rules.json"), consul.Addr(), backend, slow.URL))
				p.nodes, s.nodes = append(p.nodes, node), append(s.nodes, node)
			}
			fmt.Fprintf(&topology, "      - {name: %s, addresses: [%q], clients: [%s]}\n", name, p.addr, clients[name])
			p.balance(t, w.port)
			w.pops = append(w.pops, p)
		}
	}
	w.write("")
	w.good("topology", "apply", w.file2("topology.yaml", topology.String()), "--yes")
	w.apply("rules: []\n")
	w.startRouter()
	w.within("eu's clients are sent to ams1", time.Minute, func() bool { return w.answer(europe) == w.pop("ams1").addr })
	w.within("america's to iad1", time.Minute, func() bool { return w.answer(america) == w.pop("iad1").addr })
	return w
}

func (w *world) file2(name, text string) string {
	file := filepath.Join(w.t.TempDir(), name)
	require.NoError(w.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// good runs regionctl and requires that all is well.
func (w *world) good(args ...string) string {
	w.t.Helper()
	stdout, stderr, status := w.regionctl(args...)
	require.Zero(w.t, status, "%v: %s\n%s", args, stdout, stderr)
	return stdout + stderr
}

func (w *world) pop(name string) *pop {
	for _, p := range w.pops {
		if p.name == name {
			return p
		}
	}
	require.FailNow(w.t, "no pop", name)
	return nil
}

// startRouter runs regionctl dns until the end of the test, and requires that it stops
// as it should.
func (w *world) startRouter() {
	w.t.Helper()
	ports := testenv.FreePorts(w.t, 2)
	w.router = fmt.Sprintf("127.0.0.1:%d", ports[0])
	w.log = filepath.Join(w.t.TempDir(), "dns.log")
	log, err := os.Create(w.log)
	require.NoError(w.t, err)
	cmd := exec.Command(testenv.Program(w.t, "regionctl"), "dns", "--listen", w.router, "--metrics", fmt.Sprintf("127.0.0.1:%d", ports[1]),
		"--ttl", dnsTTL.String(), "--ns", "ns1="+"127.0.0.1", "--rate-limit", "0", "--fleet", w.file)
	cmd.Stderr = log
	require.NoError(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // Wait tells if it was gone
		if err := cmd.Wait(); err != nil || w.t.Failed() {
			text, _ := os.ReadFile(w.log)
			w.t.Errorf("the router ended with %v; its log:\n%s", err, text)
		}
		_ = log.Close() // written by another process
	})
	w.within("the router is ready", time.Minute, func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[1]))
		if err != nil {
			return false
		}
		_ = resp.Body.Close() // nothing was read
		return resp.StatusCode == http.StatusOK
	})
}

// resolve asks the router as a client of a network.
func (w *world) resolve(network string) ([]string, error) {
	m := new(wire.Msg)
	m.SetQuestion(zone+".", wire.TypeA)
	prefix := netip.MustParsePrefix(network)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []wire.EDNS0{&wire.EDNS0_SUBNET{Code: wire.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(prefix.Bits()), Address: prefix.Addr().AsSlice()}}
	c := wire.Client{Timeout: time.Second}
	r, _, err := c.Exchange(m, w.router)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, rr := range r.Answer {
		if a, ok := rr.(*wire.A); ok {
			addrs = append(addrs, a.A.String())
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("no address: %s", wire.RcodeToString[r.Rcode])
	}
	return addrs, nil
}

// answer is what a network is sent to, in one word.
func (w *world) answer(network string) string {
	addrs, err := w.resolve(network)
	if err != nil {
		return err.Error()
	}
	return strings.Join(addrs, " ")
}

// within waits for a condition, and says how long that took.
func (w *world) within(what string, limit time.Duration, done func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	eventually(w.t, limit, what, done)
	took := time.Since(began)
	w.t.Logf("%s after %s", what, took.Round(10*time.Millisecond))
	return took
}

// balance serves the PoP's public address until the end of the test.
func (p *pop) balance(t *testing.T, port int) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", p.addr, port))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	probe := http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	for i, n := range p.nodes {
		all.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for missed := 0; ctx.Err() == nil; <-tick.C {
				resp, err := probe.Get("http://" + n.Admin + "/readyz")
				if err != nil {
					// As balancers do: one probe that is late on a busy machine says little.
					if missed++; missed >= 3 {
						p.ready[i].Store(false)
					}
					continue
				}
				missed = 0
				p.ready[i].Store(resp.StatusCode == http.StatusOK)
				_ = resp.Body.Close() // nothing was read
			}
		})
	}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.last.Store(time.Now().UnixNano())
			all.Go(func() { p.forward(conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close() // Accept tells
		all.Wait()
	})
}

// forward gives a connection to a ready node, or closes it.
func (p *pop) forward(conn net.Conn) {
	defer conn.Close()
	first := int(p.next.Add(1)) // once: others count on meanwhile
	for n := range p.nodes {
		i := (first + n) % len(p.nodes)
		if !p.ready[i].Load() {
			continue
		}
		to, err := net.DialTimeout("tcp", p.nodes[i].Public, time.Second)
		if err != nil { // as a balancer that has not noticed yet
			p.sentAway.Store(fmt.Sprintf("%s: %s at %s", p.nodes[i].Public, err, time.Now().Format(time.StampMilli)))
			return
		}
		defer to.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(to, conn)           // who hangs up, hangs up
			_ = to.(*net.TCPConn).CloseWrite() // likewise
		}()
		_, _ = io.Copy(conn, to) // likewise
		_ = conn.Close()         // ends the other direction
		<-done
		return
	}
	p.sentAway.Store(p.name + ": no edge is ready at " + time.Now().Format(time.StampMilli))
}

// visitor is clients of a network that resolve, keep the answer for its TTL, and request
// on a new connection each time. They retry nothing.
type visitor struct {
	mu          sync.Mutex
	asked       int
	failed      int
	first, last time.Time // failures
	why         string
	stop        func()
}

func (w *world) visit(network string) *visitor {
	v := &visitor{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 4 {
		all.Go(func() {
			var addrs []string
			var until time.Time
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				if now := time.Now(); now.After(until) {
					if fresh, err := w.resolve(network); err == nil {
						addrs, until = fresh, now.Add(dnsTTL)
					} else if addrs == nil {
						v.note(err)
						continue
					}
				}
				resp, err := c.Get(fmt.Sprintf("http://%s:%d/", addrs[rand.IntN(len(addrs))], w.port))
				if err == nil {
					if resp.StatusCode != http.StatusOK {
						err = fmt.Errorf("status %d", resp.StatusCode)
					}
					_ = resp.Body.Close() // nothing was read
				}
				v.note(err)
				<-tick.C
			}
		})
	}
	v.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	w.t.Cleanup(v.stop)
	return v
}

func (v *visitor) note(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	if err == nil {
		return
	}
	v.failed++
	v.last, v.why = time.Now(), err.Error()
	if v.first.IsZero() {
		v.first = v.last
	}
}

// none requires that no request failed.
func (v *visitor) none(t *testing.T, what string) {
	t.Helper()
	v.stop()
	require.Greater(t, v.asked, 50, what)
	require.Zero(t, v.failed, "%s: of %d requests, the last: %s", what, v.asked, v.why)
	t.Logf("%s: %d requests, none failed", what, v.asked)
}

// brief requires that failures ended within TTL + 5 s of the loss.
func (v *visitor) brief(t *testing.T, what string, lost time.Time) {
	t.Helper()
	v.stop()
	require.NotZero(t, v.failed, "%s: nobody noticed, so nothing was tested", what)
	took := v.last.Sub(lost)
	t.Logf("%s: %d of %d requests failed, the last %s after the loss", what, v.failed, v.asked, took.Round(10*time.Millisecond))
	require.Less(t, took, dnsTTL+5*time.Second, v.why)
	require.NotContains(t, v.why, "status 4")
}
