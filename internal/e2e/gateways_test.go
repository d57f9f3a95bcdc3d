package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

var gatewayRules = `
rules:
  - {id: ten, match: {paths: ["/ten/*"]}, key: [client_ip, "header:X-User"], limit: 10, window: 10s}
  - {id: open, match: {paths: ["/open/*"]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 1h, on_store_failure: open}
  - {id: closed, match: {paths: ["/closed/*"]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 1h, on_store_failure: closed}
  - {id: once, match: {paths: [/once]}, key: [client_ip], algorithm: fixed_window, limit: 1, window: ` + testenv.LongWindow() + `}
  - {id: slots, match: {paths: ["/slots/*"]}, key: [client_ip], algorithm: concurrency, limit: 10, window: 1h}
  - {id: hosted, match: {hosts: [limited.example]}, key: [], limit: 10, window: 1h}
`

// gatewayKind is a program that can ask weir, with its configuration in deploy.
type gatewayKind struct {
	name string
	with string // the name of a second file, or ""
	spoe bool   // asks on listen.spoe, not listen.decide
	// run starts it with this configuration, on this port.
	run func(t *testing.T, conf string, port int)
	// closed makes the configuration refuse requests while no node answers.
	closed func(conf string) string
	// unreachable is what clients then get.
	unreachable []int
}

var gatewayKinds = []gatewayKind{
	{
		name: "nginx.conf",
		run: func(t *testing.T, conf string, port int) {
			// As a daemon of the machine, it would keep these in folders of its own.
			conf = strings.Replace(conf, "http {\n", "http {\n  access_log off;\n  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;\n", 1)
			file := write(t, "nginx.conf", conf)
			testenv.Serve(t, []int{port}, "nginx", "-p", filepath.Dir(file), "-c", file, "-g", "daemon off; master_process off; pid nginx.pid; error_log stderr;")
		},
		closed:      func(conf string) string { return regexp.MustCompile(`.*= @pass;\n`).ReplaceAllString(conf, "") },
		unreachable: []int{503},
	},
	{
		name: "Caddyfile",
		run: func(t *testing.T, conf string, port int) {
			file := write(t, "Caddyfile", conf)
			t.Setenv("XDG_CONFIG_HOME", filepath.Dir(file))
			t.Setenv("XDG_DATA_HOME", filepath.Dir(file))
			testenv.Serve(t, []int{port}, "caddy", "run", "--adapter", "caddyfile", "--config", file)
		},
		closed: func(conf string) string {
			return regexp.MustCompile(`(?s)  handle_errors \{.*?\n  \}\n`).ReplaceAllString(conf, "")
		},
		unreachable: []int{502, 503},
	},
	{
		name: "haproxy.cfg",
		with: "weir.lua",
		run: func(t *testing.T, conf string, port int) {
			// Both files have the address of HAProxy's own proxy in front of the nodes.
			conf = strings.ReplaceAll(conf, "127.0.0.1:8085", fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0]))
			cfg, script, _ := strings.Cut(conf, besides)
			lua := write(t, "weir.lua", script)
			file := write(t, "haproxy.cfg", strings.Replace(cfg, "lua-load weir.lua", "lua-load "+lua, 1))
			testenv.Serve(t, []int{port}, "haproxy", "-db", "-f", file)
		},
		closed: func(conf string) string {
			return strings.Replace(conf, "pass_when_unreachable = true", "pass_when_unreachable = false", 1)
		},
		unreachable: []int{503},
	},
	{
		name: "haproxy-spoe.cfg",
		with: "weir.spoe",
		spoe: true,
		run: func(t *testing.T, conf string, port int) {
			cfg, engine, _ := strings.Cut(conf, besides)
			file := write(t, "weir.spoe", engine)
			cfg = strings.Replace(cfg, "config weir.spoe", "config "+file, 1)
			testenv.Serve(t, []int{port}, "haproxy", "-db", "-f", write(t, "haproxy.cfg", cfg))
		},
		closed: func(conf string) string {
			return strings.Replace(conf, "#http-request return status 503", "http-request return status 503", 1)
		},
		unreachable: []int{503},
	},
}

// besides separates the two files of a configuration.
const besides = "\n-- besides --\n"

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// block returns the file of this name in deploy, or in docs/GATEWAYS.md.
func block(t *testing.T, name string) string {
	t.Helper()
	for _, folder := range []string{"caddy", "haproxy", "nginx"} {
		if file, err := os.ReadFile("../../deploy/" + folder + "/" + name); err == nil {
			return string(file)
		}
	}
	page, err := os.ReadFile("../../docs/GATEWAYS.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```[a-z]*\n(?:#|--) " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, found, "docs/GATEWAYS.md has no %s", name)
	return string(found[1])
}

// patient lets gateways wait longer for answers than the page says. On a busy machine a node may
// take a second; a gateway then asks the other node, and the request counts twice. A check of HAProxy that takes half a second
// makes it leave a node alone.
var patient = strings.NewReplacer("proxy_connect_timeout 1s", "proxy_connect_timeout 10s", "proxy_read_timeout 1s", "proxy_read_timeout 10s",
	"dial_timeout 1s", "dial_timeout 10s", "response_header_timeout 1s", "response_header_timeout 10s",
	"timeout connect 1s", "timeout connect 10s\n  timeout check 10s", "timeout server 1s", "timeout server 10s",
	"timeout hello 1s", "timeout hello 10s", "timeout processing 1s", "timeout processing 10s", "timeout = 3000", "timeout = 30000")

// documented returns the configuration of a gateway, for these addresses.
func documented(t *testing.T, kind gatewayKind, port int, nodes [2]string, originURL string) string {
	t.Helper()
	conf := block(t, kind.name)
	if kind.with != "" {
		conf += besides + block(t, kind.with)
	}
	for shown, real := range map[string]string{"127.0.0.1:8083": nodes[0], "127.0.0.1:8084": nodes[1], "127.0.0.1:9000": strings.TrimPrefix(originURL, "http://")} {
		require.Contains(t, conf, shown)
		conf = strings.ReplaceAll(conf, shown, real)
	}
	return patient.Replace(strings.NewReplacer("listen 8000;", fmt.Sprintf("listen 127.0.0.1:%d;", port), "http://:8000 {", fmt.Sprintf("http://:%d {\n  bind 127.0.0.1", port),
		"bind :8000", fmt.Sprintf("bind 127.0.0.1:%d", port)).Replace(conf))
}

// gatewayLab is two nodes with one Redis, and two processes of a gateway in front of one origin.
type gatewayLab struct {
	t       *testing.T
	kind    gatewayKind
	redis   *testenv.Server
	nodes   [2]*testenv.EdgeNode
	decide  [2]string // where the nodes are asked
	addrs   []string  // of the gateways
	strict  string    // of a gateway that refuses requests while no node answers
	client  *http.Client
	reached atomic.Int64 // requests at the origin
	limited atomic.Int64 // those of them that name the host limited.example
}

func newGatewayLab(t *testing.T, kind gatewayKind) *gatewayLab {
	l := &gatewayLab{t: t, kind: kind, redis: testenv.Redis(t, testenv.Options{}), client: &http.Client{Timeout: time.Minute}}
	t.Cleanup(l.client.CloseIdleConnections)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.reached.Add(1)
		if host, _, _ := strings.Cut(r.Host, ":"); strings.EqualFold(strings.TrimSuffix(host, "."), "limited.example") {
			l.limited.Add(1)
		}
		w.Header().Set("RateLimit", `"origin";r=1;t=1`)
		w.WriteHeader(http.StatusOK)
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(origin.Close)
	ports := testenv.FreePorts(t, 5)
	all := gatewayRules
	for i := range 200 {
		all += fmt.Sprintf("  - {id: %s-%03d, match: {paths: [/many]}, key: [client_ip], algorithm: fixed_window, limit: 2, window: %s}\n", strings.Repeat("x", 55), i, testenv.LongWindow())
	}
	rules := write(t, "rules.yaml", all)
	// The clients of this test are on this machine, and none of them may name another.
	config := strings.Replace(redisConfig(origin.URL, "single", []string{l.redis.Addr}, generous, 2, ""), "trusted_proxies: [127.0.0.1]\n", "", 1)
	for i := range l.nodes {
		l.decide[i] = fmt.Sprintf("127.0.0.1:%d", ports[i])
		l.nodes[i] = testenv.StartEdge(t, fmt.Sprintf("  "+l.listener()+": {address: %q, from: [127.0.0.1]}\nrules: {file: %q}\n", l.decide[i], rules)+config)
	}
	for _, n := range l.nodes {
		n.WaitReady()
	}
	for i, port := range ports[2:] {
		conf := documented(t, kind, port, l.decide, origin.URL)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if i == 2 {
			closed := kind.closed(conf)
			require.NotEqual(t, conf, closed)
			conf, l.strict = closed, addr
		} else {
			l.addrs = append(l.addrs, addr)
		}
		kind.run(t, conf, port)
	}
	return l
}

// listener is the name of the nodes' listener in their configuration.
func (l *gatewayLab) listener() string {
	if l.kind.spoe {
		return "spoe"
	}
	return "decide"
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request through a gateway.
func (l *gatewayLab) ask(gateway, method, path, body string, headers ...string) answer {
	l.t.Helper()
	a, err := l.send(gateway, method, path, body, headers...)
	require.NoError(l.t, err)
	return a
}

// send is ask for goroutines.
func (l *gatewayLab) send(gateway, method, path, body string, headers ...string) (a answer, err error) {
	req, err := http.NewRequest(method, "http://"+gateway+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// TestGateways starts real gateways with the configurations that docs/GATEWAYS.md names.
func TestGateways(t *testing.T) {
	for _, kind := range gatewayKinds {
		t.Run(kind.name, func(t *testing.T) {
			l := newGatewayLab(t, kind)
			l.oneCount()
			l.answers()
			l.identity()
			l.hosts()
			l.framing()
			l.longHeaders()
			l.longAnswers()
			l.bursts()
			l.rollingRestart()
			l.redisLost()
			l.weirLost(kind)
		})
	}
}

// oneCount: two processes of the gateway and two nodes admit ten requests in 10 s.
func (l *gatewayLab) oneCount() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for i := range 20 {
		wg.Go(func() {
			a, _ := l.send(l.addrs[i%2], "GET", "/ten/x?y=z", "", "X-User: count")
			mu.Lock()
			defer mu.Unlock()
			got[a.status]++
		})
	}
	wg.Wait()
	require.Equal(l.t, map[int]int{200: 10, 429: 10}, got)
	require.EqualValues(l.t, 10, l.reached.Load())
}

// answers: what clients get, whether they pass or not.
func (l *gatewayLab) answers() {
	t := l.t
	for range 10 {
		a := l.ask(l.addrs[0], "POST", "/ten/x", "a body", "X-User: answers")
		require.Equal(t, 200, a.status)
		require.Equal(t, "a body", a.body, "the body reaches the origin, and only the origin")
		require.Len(t, a.header.Values("RateLimit"), 1, "the origin's is replaced")
		require.Regexp(t, `^"ten";r=\d;t=10$`, a.header.Get("RateLimit"))
		require.Equal(t, `"ten";q=10;w=10`, a.header.Get("RateLimit-Policy"))
	}
	a := l.ask(l.addrs[1], "POST", "/ten/x", "a body", "X-User: answers")
	require.Equal(t, 429, a.status)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["ten"]}`, a.body)
	require.Regexp(t, `^([1-9]|10)$`, a.header.Get("Retry-After"))
	require.Regexp(t, `^"ten";r=0;t=\d+$`, a.header.Get("RateLimit"))
	require.Equal(t, `"ten";q=10;w=10`, a.header.Get("RateLimit-Policy"))

	a = l.ask(l.addrs[0], "GET", "/slots/x", "")
	require.Equal(t, 500, a.status)
	require.Contains(t, a.body, "rule slots limits concurrent requests")
	a = l.ask(l.addrs[0], "GET", "/ten/x", "", "X-User: one", "X-User: two")
	require.Equal(t, 400, a.status)
	require.Contains(t, a.body, "X-User")
	require.Equal(t, 200, l.ask(l.addrs[0], "GET", "/free", "").status)
}

// identity: no client can be another, or ask about another request than it sends.
func (l *gatewayLab) identity() {
	for i := range 11 {
		a := l.ask(l.addrs[i%2], "GET", "/ten/x", "", "X-User: identity", "X-Forwarded-For: 203.0.113."+fmt.Sprint(i), "X-Real-IP: 203.0.113.1",
			"X-Original-URI: /free", "X-Original-Method: POST", "X-Original-Host: other", "X-Forwarded-Uri: /free", "X-Forwarded-Method: POST", "X-Forwarded-Host: other")
		require.Equal(l.t, map[bool]int{true: 200, false: 429}[i < 10], a.status, "%d: %s", i, a.body)
	}
}

// longAnswers: however many rules apply, the answer fits the gateway's buffers.
func (l *gatewayLab) longAnswers() {
	for i := range 4 {
		a := l.ask(l.addrs[0], "GET", "/many", "")
		require.Equal(l.t, map[bool]int{true: 200, false: 429}[i < 2], a.status, "%d: %s", i, a.body)
	}
}

// bursts: each client gets the answer to its last request, too, when no other request follows.
func (l *gatewayLab) bursts() {
	var wg sync.WaitGroup
	var passed, refused, failed atomic.Int64
	for range 40 {
		wg.Go(func() {
			for range 100 {
				switch a, err := l.send(l.addrs[0], "GET", "/once", ""); {
				case err != nil:
					failed.Add(1)
				case a.status == 200:
					passed.Add(1)
				case a.status == 429:
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(l.t, [3]int64{1, 3999, 0}, [3]int64{passed.Load(), refused.Load(), failed.Load()})
}

// longHeaders: whatever a client sends, it gets a decision or is refused; nothing passes because
// the question about it was too long.
func (l *gatewayLab) longHeaders() {
	decided := map[bool]int{}
	for _, size := range []int{4_000, 7_500, 8_500, 11_500, 13_000, 14_000, 14_500, 15_000, 15_500, 16_000, 16_500, 18_000, 24_000, 32_000, 48_000, 80_000, 200_000} {
		long := strings.Repeat("x", size)
		var many []string // each below what nginx accepts in one header
		for i := range size/7000 + 1 {
			many = append(many, fmt.Sprintf("X-Long-%d: %s", i, long[:size/(size/7000+1)]))
		}
		var short []string // HAProxy accepts about a hundred
		for i := range 70 + size/1000 {
			short = append(short, fmt.Sprintf("X-Short-%d: x", i))
		}
		for form, send := range []func() (answer, error){
			func() (answer, error) { return l.send(l.addrs[0], "GET", "/open/x", "", "X-Long: "+long) },
			func() (answer, error) { return l.send(l.addrs[0], "GET", "/open/"+long, "") },
			func() (answer, error) {
				return l.send(l.addrs[0], "GET", "/open/"+long[:size/2], "", "X-Long: "+long[size/2:])
			},
			func() (answer, error) { return l.send(l.addrs[0], "GET", "/open/x", "", many...) },
			func() (answer, error) { return l.send(l.addrs[0], "GET", "/open/x", "", short...) },
		} {
			a, err := send()
			switch {
			case err != nil: // closed while the client was still sending
			case a.status == 200:
				require.Regexp(l.t, `^"open";r=`, a.header.Get("RateLimit"), "%d bytes, form %d", size, form)
				decided[true]++
			default:
				require.Contains(l.t, []int{400, 413, 414, 431, 500, 503}, a.status, "%d bytes, form %d: %s", size, form, a.body)
				decided[false]++
			}
		}
	}
	require.Greater(l.t, decided[true], 10)
	require.NotZero(l.t, decided[false])
	require.Equal(l.t, 200, l.ask(l.addrs[0], "GET", "/open/x", "").status, "the gateway outlives it")
}

// rollingRestart: one node after the other is replaced, and every request passes through a
// gateway that refuses requests while no node answers.
func (l *gatewayLab) rollingRestart() {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, _ := l.send(l.strict, "GET", "/open/x", "")
				mu.Lock()
				got[a.status]++
				mu.Unlock()
			}
		})
	}
	for _, n := range l.nodes {
		l.serves(n)
		n.Terminate()
		n.Start()
		n.WaitReady()
		l.serves(n)
	}
	close(stop)
	wg.Wait()
	require.Len(l.t, got, 1, "%v", got)
	require.Greater(l.t, got[200], 10)
}

// serves waits until gateways ask this node.
func (l *gatewayLab) serves(n *testenv.EdgeNode) {
	l.t.Helper()
	name := `weir_gateway_answers_total{answer="pass",protocol="` + map[bool]string{false: "http", true: "spoe"}[l.kind.spoe] + `"}`
	before := metrics(l.t, n, name)[name]
	eventually(l.t, testenv.Patience, "gateways ask the node", func() bool { return metrics(l.t, n, name)[name] > before })
}

// redisLost: each rule decides what happens, and the gateway hands it on.
func (l *gatewayLab) redisLost() {
	require.Equal(l.t, 200, l.ask(l.addrs[0], "GET", "/closed/x", "").status)
	l.redis.Kill()
	for i := range 4 {
		require.Equal(l.t, 200, l.ask(l.addrs[i%2], "GET", "/open/x", "").status)
		a := l.ask(l.addrs[i%2], "GET", "/closed/x", "")
		require.Equal(l.t, 503, a.status)
		require.Contains(l.t, a.body, `"title":"The rate limiter is unavailable"`)
		require.NotEmpty(l.t, a.header.Get("Retry-After"))
	}
	l.redis.Start()
	eventually(l.t, testenv.Patience, "Redis counts again", func() bool { return l.ask(l.addrs[0], "GET", "/closed/x", "").status == 200 })
}

// weirLost: the gateway's configuration decides what happens.
func (l *gatewayLab) weirLost(kind gatewayKind) {
	l.nodes[0].Kill()
	for range 4 {
		require.Equal(l.t, 200, l.ask(l.strict, "POST", "/ten/x", "a body", "X-User: half").status, "the other node decides")
	}
	l.nodes[1].Kill()
	for range 4 {
		require.Contains(l.t, kind.unreachable, l.ask(l.strict, "GET", "/ten/x", "", "X-User: closed").status)
		for _, gateway := range l.addrs {
			a := l.ask(gateway, "POST", "/ten/x", "a body", "X-User: open")
			require.Equal(l.t, 200, a.status)
			require.Equal(l.t, "a body", a.body)
		}
	}
	l.nodes[0].Start()
	l.nodes[0].WaitReady()
	eventually(l.t, testenv.Patience, "the node decides again", func() bool { return l.ask(l.strict, "GET", "/free", "").status == 200 })
}
