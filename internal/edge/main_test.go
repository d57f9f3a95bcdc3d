package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(originProcess) != "" {
		webSocketProcess()
		return
	}
	// fasthttp's clock for the Date header runs as long as the process; the cleaner of
	// a stopped server finishes its ten-second sleep; a closed go-redis pool whose
	// server is unreachable checks once per second whether it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

const patience = testenv.Patience

// promised holds a duration to what users are promised. Only the long form does: elsewhere
// other work may slow the machine.
func promised(t testing.TB, took, most time.Duration) {
	t.Helper()
	t.Logf("took %s of %s", took.Round(time.Millisecond), most)
	if os.Getenv("WEIR_SOAK") != "" {
		require.Less(t, took, most)
	}
}

// eventually polls for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 5*time.Millisecond, what)
}

// setup describes the node that a test needs. The zero value has a memory store, no
// rules and an origin that answers "ok".
type setup struct {
	rules  string
	origin http.HandlerFunc
	config func(*config.Config)
	redis  *testenv.Server
	clock  *clock      // counts by this clock, in memory
	change func(*Edge) // before Run
}

// seePanics lets what watches decisions fail.
func seePanics(e *Edge) {
	e.decider.Decided = func(*decide.Request, decide.Verdict) { panic("as the test wants") }
}

// node is a serving edge node.
type node struct {
	*Edge
	t             *testing.T
	public, admin string // host:port
	client        *http.Client
	logs          *logBuffer
	rulesFile     string
	reload        chan os.Signal
	asked         *atomic.Int64 // requests that reached the origin
	smuggled      *atomic.Int64 // those that no client may get to the origin
	cancel        func()
	ended         chan error // what Run returned
}

func start(t *testing.T, s setup) *node {
	t.Helper()
	n := &node{t: t, logs: &logBuffer{}, reload: make(chan os.Signal, 1), asked: &atomic.Int64{}, smuggled: &atomic.Int64{}, ended: make(chan error, 1)}
	if s.origin == nil {
		s.origin = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }
	}
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.asked.Add(1)
		if r.URL.Path == "/smuggled" {
			n.smuggled.Add(1)
		}
		s.origin(w, r)
	}))
	origin.Config.Protocols = &http.Protocols{}
	origin.Config.Protocols.SetHTTP1(true)
	origin.Config.Protocols.SetUnencryptedHTTP2(true)
	origin.Start()
	t.Cleanup(origin.Close)
	if s.rules == "" {
		s.rules = "rules: []"
	}
	n.rulesFile = filepath.Join(t.TempDir(), "rules.yaml")
	n.writeRules(s.rules)

	c := config.Defaults()
	c.Node.ID = "test-node"
	c.Listen.Public, c.Listen.Admin = "127.0.0.1:0", "127.0.0.1:0"
	c.Upstreams = []config.Upstream{{URL: origin.URL}}
	c.Rules.File = n.rulesFile
	c.Shutdown = config.Shutdown{Delay: 0, Timeout: 2 * time.Second}
	c.Store.Kind = "memory"
	c.Shedder.Document = settings(t, calm) // so that a loaded machine does not look like an overload
	if s.redis != nil {
		c.Store.Kind, c.Store.Redis.Mode, c.Store.Redis.Addrs = "redis", "single", []string{s.redis.Addr}
		c.Store.Timeout = 10 * time.Second // so that a loaded machine does not look like a broken store
	}
	if s.clock != nil {
		c.Store.Clock = s.clock.now
	}
	if s.config != nil {
		s.config(&c)
	}
	require.NoError(t, c.Validate())
	var err error
	n.Edge, err = New(&c, "", slog.New(slog.NewJSONHandler(n.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	if s.change != nil {
		s.change(n.Edge)
	}
	n.run()
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	n.client = &http.Client{Transport: transport, Timeout: patience}
	t.Cleanup(transport.CloseIdleConnections)
	return n
}

// upstreamsOfBoth runs a test with an origin of HTTP/1.1 and one of HTTP/2, which read whole bodies.
func upstreamsOfBoth(t *testing.T, f func(t *testing.T, s setup)) {
	reads := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = io.WriteString(w, "ok")
		}
	}
	t.Run("HTTP/1.1", func(t *testing.T) { f(t, setup{origin: reads, config: func(*config.Config) {}}) })
	t.Run("HTTP/2", func(t *testing.T) {
		f(t, setup{origin: reads, config: func(c *config.Config) { c.Upstreams[0].URL = strings.Replace(c.Upstreams[0].URL, "http", "h2c", 1) }})
	})
}

func (n *node) run() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	serving := make(chan struct{})
	go func() {
		n.ended <- n.Run(ctx, n.reload, func(public, admin net.Addr) {
			n.public, n.admin = public.String(), admin.String()
			close(serving)
		})
	}()
	n.t.Cleanup(func() {
		cancel()
		if err, ok := <-n.ended; ok {
			require.NoError(n.t, err)
			close(n.ended)
		}
	})
	select {
	case <-serving:
	case err := <-n.ended:
		require.NoError(n.t, err)
	}
}

// stop ends the node and returns how long that took.
func (n *node) stop() time.Duration {
	n.t.Helper()
	began := time.Now()
	n.cancel()
	require.NoError(n.t, <-n.ended)
	close(n.ended)
	return time.Since(began)
}

func (n *node) writeRules(text string) {
	n.t.Helper()
	require.NoError(n.t, os.WriteFile(n.rulesFile, []byte(text), 0o600))
}

// replaceRules replaces the file by a rename.
func (n *node) replaceRules(text string) {
	n.t.Helper()
	next := n.rulesFile + ".next"
	require.NoError(n.t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(n.t, os.Rename(next, n.rulesFile))
}

// answer is a response read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// get requests the public side. Headers are written "Name: value".
func (n *node) get(path string, headers ...string) answer {
	n.t.Helper()
	return n.ask("GET", "http://"+n.public+path, headers...)
}

// operate requests the admin side.
func (n *node) operate(method, path string, headers ...string) answer {
	n.t.Helper()
	return n.ask(method, "http://"+n.admin+path, headers...)
}

func (n *node) ask(method, target string, headers ...string) answer {
	n.t.Helper()
	req, err := http.NewRequest(method, target, nil)
	require.NoError(n.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	resp, err := n.client.Do(req)
	require.NoError(n.t, err)
	return read(n.t, resp)
}

func read(t *testing.T, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// explained is what /v1/explain reports for one rule.
func (n *node) explained(rule, client, more string) adminapi.RuleDecision {
	n.t.Helper()
	a := n.operate("GET", "/v1/explain?client="+url.QueryEscape(client)+more)
	require.Equal(n.t, http.StatusOK, a.status, a.body)
	var e adminapi.Explanation
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &e))
	for _, r := range e.Rules {
		if r.Rule == rule {
			return r
		}
	}
	require.Failf(n.t, "not explained", "rule %s in %s", rule, a.body)
	return adminapi.RuleDecision{}
}

func (n *node) remaining(rule, client string) int64 {
	n.t.Helper()
	return n.explained(rule, client, "").Remaining
}

// metric returns the value of one series, named as in the exposition:
// weir_decisions_total{rule="a",outcome="allowed",source="memory"}. For a histogram it
// returns the count; 0 if the series does not exist.
func (n *node) metric(series string) float64 {
	n.t.Helper()
	value, _ := n.series(series)
	return value
}

func (n *node) series(series string) (float64, bool) {
	n.t.Helper()
	families, err := n.metrics.registry.Gather()
	require.NoError(n.t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if seriesName(f, m) == canonical(series) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
			}
		}
	}
	return 0, false
}

// seriesName sorts the labels alphabetically, as Gather does.
func seriesName(f *dto.MetricFamily, m *dto.Metric) string {
	var labels []string
	for _, l := range m.Label {
		labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
	}
	return canonical(f.GetName() + "{" + strings.Join(labels, ",") + "}")
}

func canonical(series string) string {
	name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	list := strings.Split(labels, ",")
	for i := range list { // a handful
		for j := range list[:i] {
			if list[i] < list[j] {
				list[i], list[j] = list[j], list[i]
			}
		}
	}
	return name + "{" + strings.Join(list, ",") + "}"
}

// clock is a settable time.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.micros.Store(1_800_000_000_000_000)
	return c
}

func (c *clock) now() int64              { return c.micros.Load() }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// logBuffer collects what a node logs.
type logBuffer struct {
	mu     sync.Mutex
	text   bytes.Buffer
	panics atomic.Bool // where a failure of the upstream is logged: a fault of the handler, once it has charged
}

// Write implements io.Writer.
func (l *logBuffer) Write(b []byte) (int, error) {
	if l.panics.Load() && bytes.Contains(b, []byte("upstream failed")) {
		panic("as the test wants")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// lines returns the lines with this message.
func (l *logBuffer) lines(t *testing.T, msg string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m), line)
		if m["msg"] == msg {
			found = append(found, m)
		}
	}
	return found
}
