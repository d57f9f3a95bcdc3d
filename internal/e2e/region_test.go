package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// dnsTTL is short to keep the tests short: their bounds are TTL + 5 s.
	dnsTTL = 2 * time.Second
	// lookupTimeout is how long a resolver waits for a router before it asks the next.
	lookupTimeout = time.Second
	// outWithin and backWithin bound how long DNS takes to withdraw a PoP whose edges are
	// killed, and to return it.
	outWithin, backWithin = 5 * time.Second, 10 * time.Second
	// probeTimeout is how long a balancer waits for an edge.
	probeTimeout    = 2 * time.Second
	zone            = "edge.example.com"
	europe, america = "198.51.100.0/24", "203.0.113.0/24" // clients of ams1, and of iad1
)

// pop is a site: edges behind one public address, where a balancer sends each connection to an
// edge that reports ready, as cloud balancers do.
type pop struct {
	name, addr string
	region     *site
	nodes      []*testenv.EdgeNode
	ready      []atomic.Bool
	next       atomic.Int64
	last       atomic.Int64 // time of the last connection, in ns
	sentAway   atomic.Value // why the balancer last closed a connection without an answer
}

// world is regions with PoPs, and DNS routers for them.
type world struct {
	*fleet
	pops    []*pop
	port    int
	routers []*router
}

// router is a process of regionctl dns.
type router struct {
	addr, metrics, log string
	cmd                *exec.Cmd
	killed             bool
}

// kill ends it like kill -9 and returns when it is gone.
func (r *router) kill() {
	r.killed = true
	_ = r.cmd.Process.Kill() // Wait reports
	_ = r.cmd.Wait()         // killed is the expected end
}

// land describes a region of a world: its PoPs, of two edges each, in order.
type land struct {
	name string
	pops []string
}

// clientsOf maps PoPs to their clients' networks.
var clientsOf = map[string]string{"ams1": "198.51.0.0/16", "iad1": america}

// startWorld starts eu with ams1 and fra1, us with iad1, and ap with sin1, each with two edges.
// Requests under /slow are held.
func startWorld(t *testing.T) *world {
	t.Helper()
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(100 * time.Millisecond) }))
	t.Cleanup(slow.Close)
	backend := origin(t, nil)
	w := openWorld(t, []land{{"eu", []string{"ams1", "fra1"}}, {"us", []string{"iad1"}}, {"ap", []string{"sin1"}}}, func(*site) string {
		return fmt.Sprintf(`
upstreams: [{url: %q}, {url: %q, group: slow}]
trusted_proxies: [127.0.0.1]
routes: [{match: {paths: ["/slow/*"]}, group: slow}]
shutdown: {delay: 3s}
store: {kind: memory}
shedder:
  signals: {cpu: off, sched_latency: off, upstream_wait: off}
  upstreams: {slow: {patience: 1s, signals: {inflight: {low: 0, high: 10}}}}
`, backend, slow.URL)
	})
	w.apply("rules: []\n")
	w.startRouter()
	w.settles()
	return w
}

// openWorld starts everything except routers; config returns additions to the configuration of
// a region's edges.
func openWorld(t *testing.T, lands []land, config func(*site) string) *world {
	t.Helper()
	w := &world{fleet: &fleet{t: t}, port: testenv.FreePorts(t, 1)[0]}
	var topology strings.Builder
	fmt.Fprintf(&topology, "zone: %s\nregions:\n", zone)
	var names []string
	for _, l := range lands {
		names = append(names, l.name)
	}
	for i, consul := range testenv.StartConsuls(t, testenv.ConsulOptions{}, names...) {
		s := &site{name: consul.Datacenter, consul: consul}
		w.regions = append(w.regions, s)
		more := config(s)
		fmt.Fprintf(&topology, "  - name: %s\n    pops:\n", s.name)
		for j, name := range lands[i].pops {
			p := &pop{name: name, region: s, addr: fmt.Sprintf("127.2.%d.%d", i+1, j+1), ready: make([]atomic.Bool, 2)}
			for n := range p.ready {
				node := testenv.StartEdge(t, fmt.Sprintf("node: {id: %s-%d, region: %s, pop: %[1]s}\nrules: {source: consul, cache: %[4]q}\nconsul: {addr: %[5]q}\n",
					name, n+1, s.name, filepath.Join(t.TempDir(), "rules.json"), consul.Addr())+more)
				p.nodes, s.nodes = append(p.nodes, node), append(s.nodes, node)
			}
			fmt.Fprintf(&topology, "      - {name: %s, addresses: [%q], clients: [%s]}\n", name, p.addr, clientsOf[name])
			p.balance(t, w.port)
			w.pops = append(w.pops, p)
		}
	}
	w.write("")
	w.good("topology", "apply", w.file2("topology.yaml", topology.String()), "--yes")
	return w
}

// settles waits until every router reports every PoP as healthy and sends every client to its
// own.
func (w *world) settles() {
	w.t.Helper()
	for _, r := range w.routers {
		eventually(w.t, testenv.Patience, "every PoP is up", func() bool {
			up := 0.0
			for _, v := range metricsAt(w.t, r.metrics, "weir_dns_pop_up{") {
				up += v
			}
			return int(up) == len(w.pops)
		})
	}
	eventually(w.t, testenv.Patience, "eu's clients are sent to ams1", func() bool { return w.answer(europe) == w.pop("ams1").addr })
	eventually(w.t, testenv.Patience, "america's to iad1", func() bool { return w.answer(america) == w.pop("iad1").addr })
}

func (w *world) file2(name, text string) string {
	file := filepath.Join(w.t.TempDir(), name)
	require.NoError(w.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// good runs regionctl, which must succeed.
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

// startRouter runs regionctl dns until the test ends, and requires a clean stop.
func (w *world) startRouter() {
	w.t.Helper()
	ports := testenv.FreePorts(w.t, 2)
	r := &router{addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), metrics: fmt.Sprintf("127.0.0.1:%d", ports[1]), log: filepath.Join(w.t.TempDir(), "dns.log")}
	w.routers = append(w.routers, r)
	log, err := os.Create(r.log)
	require.NoError(w.t, err)
	r.cmd = exec.Command(testenv.Program(w.t, "regionctl"), "dns", "--listen", r.addr, "--metrics", r.metrics,
		"--ttl", dnsTTL.String(), "--ns", "ns1="+"127.0.0.1", "--rate-limit", "0", "--fleet", w.file)
	r.cmd.Stderr = log
	require.NoError(w.t, r.cmd.Start())
	w.t.Cleanup(func() {
		defer log.Close() // written by another process
		if r.killed {
			return
		}
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // Wait reports whether it was gone
		if err := r.cmd.Wait(); err != nil || w.t.Failed() {
			text, _ := os.ReadFile(r.log)
			w.t.Errorf("the router ended with %v; its log:\n%s", err, text)
		}
	})
	eventually(w.t, testenv.Patience, "the router is ready", func() bool {
		resp, err := http.Get("http://" + r.metrics + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close() // nothing was read
		return resp.StatusCode == http.StatusOK
	})
}

// resolve asks the routers in turn, as a client of a network, until one answers. Like resolvers, it asks again
// if none did in time.
func (w *world) resolve(network string) (addrs []string, err error) {
	for end := time.Now().Add(testenv.Patience); ; {
		for _, r := range w.routers {
			if addrs, err = r.resolve(network); err == nil {
				return addrs, nil
			}
		}
		if late := net.Error(nil); !errors.As(err, &late) || !late.Timeout() || time.Now().After(end) {
			return nil, err
		}
	}
}

func (r *router) resolve(network string) ([]string, error) {
	m := new(wire.Msg)
	m.SetQuestion(zone+".", wire.TypeA)
	prefix := netip.MustParsePrefix(network)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []wire.EDNS0{&wire.EDNS0_SUBNET{Code: wire.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(prefix.Bits()), Address: prefix.Addr().AsSlice()}}
	c := wire.Client{Timeout: lookupTimeout}
	answer, _, err := c.Exchange(m, r.addr)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, rr := range answer.Answer {
		if a, ok := rr.(*wire.A); ok {
			addrs = append(addrs, a.A.String())
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("no address: %s", wire.RcodeToString[answer.Rcode])
	}
	return addrs, nil
}

// answer returns the PoP of a network in one word.
func (w *world) answer(network string) string {
	addrs, err := w.resolve(network)
	if err != nil {
		return err.Error()
	}
	return strings.Join(addrs, " ")
}

// within waits for a condition and requires it within that time.
func (w *world) within(what string, most time.Duration, done func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	eventually(w.t, testenv.Patience, what, done)
	took := time.Since(began)
	promised(w.t, what, took, most)
	return took
}

// balance serves the PoP's public address until the test ends.
func (p *pop) balance(t *testing.T, port int) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", p.addr, port))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	probe := http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	for i, n := range p.nodes {
		all.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for missed := 0; ctx.Err() == nil; <-tick.C {
				resp, err := probe.Get("http://" + n.Admin + "/readyz")
				if err != nil {
					// As balancers do: on a busy machine, one late probe means little.
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
		_ = l.Close() // Accept reports it
		all.Wait()
	})
}

// forward passes a connection to a ready node, or closes it.
func (p *pop) forward(conn net.Conn) {
	defer conn.Close()
	first := int(p.next.Add(1)) // once: concurrent connections count on
	for n := range p.nodes {
		i := (first + n) % len(p.nodes)
		if !p.ready[i].Load() {
			continue
		}
		to, err := net.DialTimeout("tcp", p.nodes[i].Public, probeTimeout)
		if err != nil { // like a balancer that has not noticed yet
			p.sentAway.Store(fmt.Sprintf("%s: %s at %s", p.nodes[i].Public, err, time.Now().Format(time.StampMilli)))
			return
		}
		defer to.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(to, conn)           // either side may hang up
			_ = to.(*net.TCPConn).CloseWrite() // likewise
		}()
		_, _ = io.Copy(conn, to) // likewise
		_ = conn.Close()         // ends the other direction
		<-done
		return
	}
	p.sentAway.Store(p.name + ": no edge is ready at " + time.Now().Format(time.StampMilli))
}
