package browser

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	manyRegions = 50
	nodesEach   = 40
	manyRules   = 1000
)

// crowd simulates nodes: each repeats what one real node answered within the last second.
type crowd struct {
	real string // that node's admin address
	port int

	mu   sync.Mutex
	said map[string]*saying // by path and query
}

type saying struct {
	at   time.Time
	form string
	body []byte
}

// ServeHTTP answers for the addressed node: all of 127.0.0.0/8 leads here.
func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ip := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).IP.To4()
	said, err := c.ask(r.URL.RequestURI(), r.Header.Get("Accept"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set(adminapi.HeaderNode, nodeName(int(ip[1])-1, int(ip[2])-1))
	w.Header().Set("Content-Type", said.form)
	_, _ = w.Write(said.body)
}

func (c *crowd) ask(path, accept string) (*saying, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.said[path]; s != nil && time.Since(s.at) < time.Second {
		return s, nil
	}
	r, err := http.NewRequest(http.MethodGet, "http://"+c.real+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	c.said[path] = &saying{time.Now(), resp.Header.Get("Content-Type"), body}
	return c.said[path], err
}

func regionName(region int) string     { return fmt.Sprintf("region-%02d", region) }
func nodeName(region, node int) string { return fmt.Sprintf("edge-%02d-%02d", region, node) }

// catalog serves a region's Consul with the real one's keys and the crowd's nodes.
func (c *crowd) catalog(t *testing.T, region int, real *url.URL) string {
	var list []api.ServiceEntry
	for i := range nodesEach {
		host := fmt.Sprintf("127.%d.%d.1", region+1, i+1)
		list = append(list, api.ServiceEntry{
			Node: &api.Node{Node: "host", Address: host}, Checks: api.HealthChecks{{CheckID: "ready", Status: api.HealthPassing}},
			Service: &api.AgentService{ID: nodeName(region, i), Service: consul.Service, Address: host, Port: c.port, Meta: map[string]string{
				consul.MetaRegion: regionName(region), consul.MetaPoP: fmt.Sprintf("pop%02d", region), consul.MetaNode: nodeName(region, i),
				consul.MetaAdmin: fmt.Sprintf("%s:%d", host, c.port), consul.MetaPrefix: regionName(region), consul.MetaSchema: fmt.Sprint(rules.Schema),
			}},
		})
	}
	nodes, err := json.Marshal(list)
	require.NoError(t, err)
	keys := httputil.NewSingleHostReverseProxy(real)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/health/service/"+consul.Service {
			keys.ServeHTTP(w, r)
			return
		}
		w.Header().Set("X-Consul-Index", "1")
		w.Header().Set("X-Consul-KnownLeader", "true")
		_, _ = w.Write(nodes)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// Fifty regions of forty nodes with a thousand rules: the pages list them all and respond to
// input while the lists are live.
func TestALargeFleet(t *testing.T) {
	l := &lab{t: t, regionctl: testenv.Program(t, "regionctl")}
	real := testenv.StartConsul(t, testenv.ConsulOptions{})
	edge := testenv.StartEdge(t, fmt.Sprintf("node: {id: model, region: region-00, pop: pop00}\nrules: {source: consul, cache: %q}\nconsul: {addr: %q, prefix: region-00}\nstore: {kind: memory}\nupstreams: [{url: \"http://127.0.0.1:9\"}]\n",
		filepath.Join(t.TempDir(), "rules.json"), real.Addr()))
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	c := &crowd{real: edge.Admin, port: listener.Addr().(*net.TCPAddr).Port, said: map[string]*saying{}}
	server := &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	fleet, document := "regions:\n", "rules:\n"
	for i := range manyRegions {
		fleet += fmt.Sprintf("  - {name: %s, consul: {addr: %q, prefix: %s}}\n", regionName(i), c.catalog(t, i, &url.URL{Scheme: "http", Host: real.Addr()}), regionName(i))
	}
	for i := range manyRules {
		document += fmt.Sprintf("  - {id: rule-%04d, match: {paths: [/%d/*]}, key: [client_ip], limit: %d, window: 1m}\n", i, i, i+1)
	}
	l.fleet = l.write("fleet.yaml", fleet)
	took := func(what string, do func()) {
		began := time.Now()
		do()
		t.Logf("%s after %.1f s", what, time.Since(began).Seconds())
	}
	took("applied", func() { l.run("rules", "apply", l.write("rules.yaml", document), "--yes", "-m", "many") })
	edge.WaitReady()
	for i := range manyRules {
		resp, err := http.Get(fmt.Sprintf("http://%s/%d/x", edge.Public, i))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	l.open("--listen", "127.0.0.1:0")

	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)
	took("the fleet is there", func() {
		b.visit(l.url + "/fleet")
		b.has("2,000 / 2,000")
	})
	b.fill("input.filter", "edge-49-39")
	b.has("edge-49-39")
	b.fill("input.filter", "")
	b.look("fleet-large")

	took("the rules are there", func() {
		b.visit(l.url + "/rules")
		b.sees("document.querySelector('[aria-label=Rules] table')?.getAttribute('aria-rowcount') === '1001'")
	})
	took("their counts are there", func() { b.sees("document.querySelector('[aria-label=Rules] tbody td:last-child').textContent === '0'") })
	b.eval("void (() => { window.longest = 0; let last = performance.now(); const tick = () => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; setTimeout(tick); }; tick(); })()")
	took("two more looks", func() {
		b.sees("document.querySelector('[aria-label=Rules] tbody tr .spark polyline').getAttribute('points').split(' ').length >= 3")
	})
	t.Logf("meanwhile the page was busy for %.0f ms at a time", b.eval("window.longest"))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.console.Process.Pid))
	require.NoError(t, err)
	t.Logf("the console: %s", regexp.MustCompile(`VmHWM.*`).Find(status))
	b.fill("input.filter", "rule-0777")
	b.sees("document.querySelectorAll('[aria-label=Rules] tbody tr').length === 1")
	b.fill("input.filter", "")
	b.picture("rules-large")
	require.Contains(t, strings.ReplaceAll(l.run("rules", "status", "--region", regionName(49)), " ", ""), `"converged":true`)
}
