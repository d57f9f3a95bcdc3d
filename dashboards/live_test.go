package dashboards

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const liveRules = `
rules:
  - {id: per-client, key: [client_ip], algorithm: token_bucket, limit: 30, window: 1s, burst: 30}
  - {id: tried-out, key: [client_ip], limit: 1, window: 1m, mode: shadow}
  - {id: leased, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, consistency: leased}
  - {id: global, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, scope: global}
  - {id: escrow, match: {paths: [/escrow]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, on_store_failure: closed, scope: global, global: {mode: escrow}}
  - {id: reported, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 24h, consistency: reported}
  - {id: lenient, match: {paths: ["/open"]}, key: [client_ip], limit: 1000, window: 1s, on_store_failure: open, experiment: {share: 0.5, limit: 900}}
`

// A node with every feature in use: TLS, limits, shadow, fallback, shedding, candidates.
const liveEdge = `
node: {id: ams1-1, region: eu-west, pop: ams1}
upstreams: [{url: %q}]
trusted_proxies: [127.0.0.1]
store: {kind: redis, redis: {mode: single, addrs: [%q]}}
rules: {source: consul, cache: %q}
consul: {addr: %q}
policy: {file: %q}
shedder:
  signals: {inflight: {low: 0, high: 8}}
  classes:
    - {name: critical, max_in_flight: 30, match: [{headers: {X-Weir-Class: critical}}]}
    - {name: read, max_in_flight: 12}
    - {name: test, max_in_flight: 10, match: [{headers: {X-Weir-Class: test}}]}
  candidates: {stricter: {start: 0.5, target: 0.4}}
`

// Every panel shows something once a node has been under load, has briefly lost its
// Redis, and has had its settings changed.
func TestPanelsHaveData(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	consul := testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: "eu-west"})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
		<-time.After(50 * time.Millisecond)
	}))
	t.Cleanup(origin.Close)
	policy := filepath.Join(t.TempDir(), "policy.yaml") // in shadow: the load lacks a header
	require.NoError(t, os.WriteFile(policy, []byte("signals: {presence: {weight: 30, at_least: 1, share: 0.1}}"), 0o600))
	node := startNode(t, fmt.Sprintf(liveEdge, origin.URL, redis.Addr, filepath.Join(t.TempDir(), "rules.json"), consul.Addr(), policy))
	applyRules(t, consul, liveRules)
	waitReady(t, node.client, "https://"+node.admin+"/readyz")
	promURL := startPrometheus(t, consul, node.files.CAFile)

	began := time.Now()
	load := startLoad(t, node)
	until := func(what, query string) {
		t.Helper()
		Await(t, promURL, began, what, query)
	}
	until("requests are limited", `rate(weir_requests_limited_total{region="eu-west",pop="ams1",node="ams1-1"}[4s]) > 0`)
	until("requests are shed", `rate(weir_shed_total{class="read",reason="inflight"}[4s]) > 0`)
	until("a candidate would shed", `rate(weir_shadow_shed_total[4s]) > 0`)
	redis.Kill()
	until("rules fall back", `rate(weir_decisions_total{rule="per-client",source="fallback"}[4s]) > 0`)
	until("a rule gives up", `rate(weir_decisions_total{rule="lenient",outcome="error"}[4s]) > 0`)
	until("failures have kinds", `rate(weir_store_errors_total[4s]) > 0`)
	until("the alert sees it", `ALERTS{alertname="WeirStoreDown",region="eu-west",pop="ams1"}`)
	redis.Start()
	Await(t, promURL, time.Now(), "Redis decides again", `rate(weir_decisions_total{source="redis"}[2s]) > 0 and on () weir_store_up == 1`)
	setShedder(t, node, `{"enabled": false, "candidates": {"stricter": {"start": 0.5, "target": 0.4}}}`)
	until("the settings have changed", `weir_shedder_info{source="admin"}`)
	until("rules are evaluated", `pop:weir_limited:deviation`)
	const window = 4 * time.Second
	loaded := Scraped(t, promURL, window) // before the load ends: rates of a few seconds end with it
	load()

	// The lab has data for the collapsed rows: terraform/lab/panels_test.go.
	QueryAll(t, promURL, Span{From: began, To: loaded, Window: window}, Except{Folded: true})
	requireExported(t, node)
	requireLabels(t, prometheus{url: promURL})
}

var (
	matcher = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
	byWhat  = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// requireLabels requires that panels and rules select and group only by labels that real
// series have: a missing label goes unnoticed in != and in by.
func requireLabels(t *testing.T, p prometheus) {
	t.Helper()
	var series []map[string]string
	require.NoError(t, p.get(t.Context(), "series", url.Values{"match[]": {`{__name__=~".+"}`}}, &series))
	labels := map[string]map[string]bool{}
	for _, s := range series {
		metric := s["__name__"]
		if labels[metric] == nil {
			labels[metric] = map[string]bool{}
		}
		for label := range s {
			labels[metric][label] = true
		}
	}
	check := func(what, expr string) {
		t.Helper()
		all := map[string]bool{}
		for _, a := range selectorsOf(expr) {
			if labels[a.metric] == nil {
				return // it may be empty, or the answer above says so
			}
			maps.Copy(all, labels[a.metric])
			for _, m := range matcher.FindAllStringSubmatch(a.matchers, -1) {
				require.True(t, labels[a.metric][m[1]], "%s: %s has no label %s", what, a.metric, m[1])
			}
		}
		for _, m := range byWhat.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(m[1], ",") {
				require.True(t, label == "" || all[strings.TrimSpace(label)], "%s: nothing has a label %s", what, label)
			}
		}
	}
	for _, page := range pages(t) {
		needed, _ := page.graphs()
		for _, panel := range needed {
			for _, target := range panel.Targets {
				check(page.Title+": "+panel.Title, target.Expr)
			}
		}
		for _, a := range page.Annotations.List {
			check(page.Title+": annotation "+a.Name, a.Expr)
		}
	}
	for _, rule := range rules(t) {
		check(rule.Alert+rule.Record, rule.Expr)
	}
}

// requireExported requires that the reference lists what a node exports.
func requireExported(t *testing.T, node *liveNode) {
	t.Helper()
	resp, err := node.client.Get("https://" + node.admin + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	names := exportedBy(t, "Edge node")
	for line := range strings.Lines(string(text)) {
		name, kind, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# TYPE "), " ")
		if !strings.HasPrefix(line, "# TYPE weir_") {
			continue
		}
		histogram, known := names[name]
		require.True(t, known, "%s is exported and not in the reference", name)
		require.Equal(t, kind == "histogram", histogram, name)
		delete(names, name)
	}
	require.Empty(t, names, "in the reference and not exported under load")
}

// startLoad sends requests from 40 clients at once, until the returned function is
// called.
func startLoad(t *testing.T, node *liveNode) (stop func()) {
	paths, classes := []string{"/", "/open", "/", "/broken"}, []string{"critical", "read", "read", "test"}
	return Load(t, &http.Transport{TLSClientConfig: node.files.ClientConfig(t)}, 40, func(ctx context.Context, client, n int) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+node.public+paths[n%len(paths)], nil)
		if err == nil {
			// Ten send as one client, which exceeds its limit. The others exceed what
			// the origin should have at once, so the level rises and stays.
			req.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", max(client, 10)))
			req.Header.Set("X-Weir-Class", classes[client%len(classes)])
		}
		return req, err
	})
}

// setShedder applies settings on that node alone.
func setShedder(t *testing.T, node *liveNode, document string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, "https://"+node.admin+"/v1/shedder?for=10m", strings.NewReader(document))
	require.NoError(t, err)
	resp, err := node.client.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func applyRules(t *testing.T, consul *testenv.Consul, document string) {
	t.Helper()
	dir := t.TempDir()
	fleet := fmt.Sprintf("regions: [{name: eu-west, consul: {addr: %q, datacenter: eu-west}}]\n", consul.Addr())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fleet.yaml"), []byte(fleet), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(document), 0o600))
	cmd := exec.CommandContext(t.Context(), testenv.Program(t, "regionctl"), "--fleet", "fleet.yaml", "rules", "apply", "rules.yaml", "--yes")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// startPrometheus runs a Prometheus with the example's configuration and the targets that
// Consul knows, verified by ca, and returns its address.
func startPrometheus(t *testing.T, consul *testenv.Consul, ca string) string {
	t.Helper()
	binary := program(t, "prometheus")
	dir := t.TempDir()
	targets := filepath.Join(dir, "targets.json")
	require.NoError(t, os.WriteFile(targets, discovered(t, consul), 0o600))
	token := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	rulesDir, err := filepath.Abs("rules")
	require.NoError(t, err)
	config := strings.NewReplacer(
		"/etc/prometheus/weir-admin.token", token,
		"# tls_config: {ca_file: /etc/prometheus/weir-admin-ca.pem}", fmt.Sprintf("tls_config: {ca_file: %q}", ca),
		"rules/recording.yaml", rulesDir+"/recording.yaml",
		"rules/alerts.yaml", rulesDir+"/alerts.yaml",
		"scrape_interval: 15s", "scrape_interval: 1s",
		"evaluation_interval: 15s", "evaluation_interval: 1s",
	).Replace(exampleConfig(t, targets))
	file := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))

	addr := fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0])
	startProgram(t, binary, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	waitReady(t, http.DefaultClient, "http://"+addr+"/-/ready")
	return "http://" + addr
}

// liveNode is a node whose clients use TLS.
type liveNode struct {
	public, admin string // host:port
	files         testenv.TLSFiles
	client        *http.Client // of the admin side
}

// startNode runs a node; config is its configuration without listen.
func startNode(t *testing.T, config string) *liveNode {
	t.Helper()
	ports := testenv.FreePorts(t, 4)
	files := testenv.Certificates(t)
	transport := &http.Transport{TLSClientConfig: files.ClientConfig(t)}
	t.Cleanup(transport.CloseIdleConnections)
	n := &liveNode{fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1]), files, &http.Client{Transport: transport}}
	file := filepath.Join(t.TempDir(), "edge.yaml")
	text := fmt.Sprintf("listen: {public: %q, admin: %q, tls: &pair {cert_file: %q, key_file: %q}, admin_tls: *pair, decide: {address: \"127.0.0.1:0\", from: [127.0.0.1]}, rls: {address: \"127.0.0.1:%d\"}, peer: {address: \"127.0.0.1:%d\", insecure: true}}\npeer: {regions: [{name: eu-west}, {name: us-east, nodes: [{id: us-1, address: \"127.0.0.1:1\"}]}]}\n%s", n.public, n.admin, n.files.CertFile, n.files.KeyFile, ports[2], ports[3], config)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	startProgram(t, testenv.Program(t, "edge"), "-config", file)
	return n
}

// startProgram runs a program until the test ends.
func startProgram(t *testing.T, name string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		// The signal is sent when this thread ends, so it must last as long as the
		// child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(ended)
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the end of what %s said: %s", filepath.Base(name), log.Bytes()[max(0, log.Len()-5000):])
		}
	})
}

// waitReady waits until an address answers 200.
func waitReady(t *testing.T, c *http.Client, url string) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := c.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	}, testenv.Patience, 50*time.Millisecond, "%s is not ready", url)
}

// discovered returns what Consul discovery would find, as a file of targets.
func discovered(t *testing.T, consul *testenv.Consul) []byte {
	t.Helper()
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var groups []group
	require.Eventually(t, func() bool {
		services, _, err := consul.Client().Catalog().Service("weir-edge", "", nil)
		for _, s := range services {
			labels := map[string]string{}
			for key, value := range s.ServiceMeta {
				labels["__meta_consul_service_metadata_"+key] = value
			}
			groups = append(groups, group{[]string{fmt.Sprintf("%s:%d", s.ServiceAddress, s.ServicePort)}, labels})
		}
		return err == nil && len(groups) > 0
	}, testenv.Patience, 50*time.Millisecond, "the node is not registered")
	text, err := json.Marshal(groups)
	require.NoError(t, err)
	return text
}
