package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/internal/testenv"
)

// calm are settings under which a loaded machine sheds nothing on its own.
const calm = "signals: {cpu: off, sched_latency: off, upstream_wait: off}\n"

func settings(t testing.TB, text string) *shedding.Document {
	t.Helper()
	d, err := shedding.Parse([]byte(text))
	require.NoError(t, err)
	return d
}

// capped refuses every request of class test and none of the others: an otherwise empty
// node has at least one request in flight while it decides about it.
const capped = calm + `
classes:
  - {name: critical, max_in_flight: 2, match: [{headers: {X-Class: critical}}]}
  - {name: read, max_in_flight: 1}
  - {name: test, max_in_flight: 1, match: [{headers: {X-Class: test}}]}
`

// inflight returns what the node reports to hold for its upstreams.
func (n *node) inflight() (sum int64) {
	for _, g := range n.upstreams.Groups {
		for _, c := range g.Shedder.Status().Classes {
			sum += c.InFlight
		}
	}
	return sum
}

func (n *node) idle() {
	n.t.Helper()
	eventually(n.t, "every permit comes back", func() bool { return n.inflight() == 0 })
}

// holding starts a node whose origin holds requests to /hold until release is called.
func holding(t *testing.T, s setup) (n *node, release func()) {
	t.Helper()
	hold := make(chan struct{})
	release = sync.OnceFunc(func() { close(hold) })
	s.origin = func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/hold") {
			<-hold
		}
		_, _ = io.WriteString(w, "ok")
	}
	n = start(t, s)
	t.Cleanup(release)
	return n, release
}

// occupy sends requests that stay in flight.
func (n *node) occupy(wg *sync.WaitGroup, path string, count int, headers ...string) {
	n.t.Helper()
	before := n.inflight()
	for range count {
		wg.Go(func() {
			req, _ := http.NewRequest("GET", "http://"+n.public+path, nil)
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				req.Header.Set(name, value)
			}
			if resp, err := n.client.Do(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	eventually(n.t, "they are in flight", func() bool { return n.inflight() == before+int64(count) })
}

func TestShedAnswer(t *testing.T) {
	n, release := holding(t, setup{config: func(c *config.Config) {
		c.TrustedProxies = []string{"127.0.0.0/8"}
		c.Shedder.Document = settings(t, capped+"reason_header: true\nretry_after: {min: 3s, max: 6s}\n")
	}})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer release()
	n.occupy(&wg, "/hold", 1)
	waits := map[int]bool{}
	for range 40 {
		a := n.get("/x")
		require.Equal(t, 503, a.status)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Shedding load","status":503,"class":"read"}`, a.body)
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		require.NoError(t, err)
		waits[seconds] = true
		require.Regexp(t, `^inflight;value=\d+;threshold=1;utilization=[\d.]+;level=0;version=[0-9a-f]{12};class=read;upstream=default;kind=cap$`, a.header.Get("Weir-Shed-Reason"))
	}
	require.Greater(t, len(waits), 1, "jittered")
	for w := range waits {
		require.True(t, w >= 3 && w <= 6, w)
	}
	require.Equal(t, 503, n.get("/x", "X-Class: test").status)
	require.Equal(t, 200, n.get("/x", "X-Class: critical").status, "has its own room")
	require.EqualValues(t, 40, n.metric(`weir_shed_total{class="read",reason="cap",upstream="default"}`))
	require.EqualValues(t, 1, n.metric(`weir_shed_total{class="test",reason="cap",upstream="default"}`))
	require.Zero(t, n.metric(`weir_shed_total{class="critical",reason="cap",upstream="default"}`))
	require.EqualValues(t, 1, n.metric(`weir_inflight{class="read",upstream="default"}`))
	lines := n.logs.lines(t, "request shed")
	require.NotEmpty(t, lines)
	require.Less(t, len(lines), 41, "sampled")
	require.Equal(t, "read", lines[0]["class"])
	require.Equal(t, "cap", lines[0]["kind"])
	require.NotContains(t, n.logs.String(), "/x", "nothing from the request")
	release()
	wg.Wait()
	n.idle()
	require.Equal(t, 200, n.get("/x").status)
}

// A client that is not a trusted proxy cannot raise its class.
func TestClassIsNotRaisedByAClient(t *testing.T) {
	n, release := holding(t, setup{config: func(c *config.Config) { c.Shedder.Document = settings(t, capped) }})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer release()
	n.occupy(&wg, "/hold", 1)
	require.Equal(t, 503, n.get("/x", "X-Class: critical").status)
	require.Empty(t, n.get("/x").header.Get("Weir-Shed-Reason"), "is opt-in")
}

// A request that a rule is known to refuse takes no capacity, and a shed one costs no
// count: memory, shedder, store, in this order, whatever layers a node has.
func TestStagesInOrder(t *testing.T) {
	stages := func(more string, peers bool) func(*testing.T) {
		return func(t *testing.T) {
			n, release := holding(t, setup{
				redis: testenv.Redis(t, testenv.Options{}),
				rules: "rules: [{id: one, match: {paths: [/limited]}, key: [client_ip], algorithm: fixed_window, limit: 1, window: " + testenv.LongWindow() + more + "}]",
				config: func(c *config.Config) {
					c.TrustedProxies = []string{"127.0.0.0/8"} // whose clients may raise their class
					c.Shedder.Document = settings(t, capped)
					if peers {
						listenPeer(t, c)
					}
				},
			})
			var wg sync.WaitGroup
			defer wg.Wait()
			defer release()
			n.occupy(&wg, "/hold", 1)
			require.Equal(t, 503, n.get("/limited").status, "shed")
			require.EqualValues(t, 1, n.remaining2("one", "&path=/limited"), "and not counted")
			require.Equal(t, 200, n.get("/limited", "X-Class: critical").status)
			require.Equal(t, 429, n.get("/limited", "X-Class: critical").status, "the store refuses")
			eventually(t, "only one is in flight", func() bool { return n.inflight() == 1 })
			before := n.upstreams.Groups[0].Shedder.Status().Classes
			for range 20 {
				require.Equal(t, 429, n.get("/limited").status, "from memory, though everything is shed")
			}
			for i, c := range n.upstreams.Groups[0].Shedder.Status().Classes {
				require.Equal(t, before[i].Admitted, c.Admitted, "the shedder was not asked")
				require.Equal(t, before[i].ShedByCap, c.ShedByCap)
			}
			require.EqualValues(t, 20, n.metric(`weir_decisions_total{rule="one",outcome="limited",source="denied_memory"}`))
			require.EqualValues(t, 21, n.metric("weir_requests_limited_total"))
		}
	}
	t.Run("alone", stages("", false))
	t.Run("with other nodes", stages("", true))
	t.Run("with other regions", stages(", scope: global", true))
}

// listenPeer makes a node the only one of the only region.
func listenPeer(t *testing.T, c *config.Config) {
	address := fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0])
	c.Node.Region = "here"
	c.Listen.Peer = &config.PeerListen{Address: address, Insecure: true}
	c.Peer.Regions = []config.PeerRegion{{Name: "here", Nodes: []config.PeerNode{{ID: c.Node.ID, Address: address}}}}
}

func (n *node) remaining2(rule, more string) int64 {
	n.t.Helper()
	return n.explained(rule, "127.0.0.1", more).Remaining
}

// However a request ends, its permit comes back.
func TestPermitsComeBack(t *testing.T) {
	with := setup{
		rules: "rules:\n  - {id: one, match: {paths: [/limited]}, key: [client_ip], limit: 1, window: 1h}\n  - {id: k, match: {paths: [/twice]}, key: [\"header:X-K\"], limit: 100, window: 1h}\n",
		origin: func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/abort":
				panic(http.ErrAbortHandler)
			case "/slow":
				select {
				case <-r.Context().Done():
				case <-time.After(patience):
				}
			case "/big", "/broken":
				for i := range 64 {
					if _, err := w.Write(make([]byte, 32<<10)); err != nil || r.URL.Path == "/broken" && i == 32 {
						panic(http.ErrAbortHandler)
					}
				}
			}
		},
	}
	n := start(t, with)
	f := func(what string, do func()) {
		t.Helper()
		do()
		n.idle()
	}
	f("answered", func() { require.Equal(t, 200, n.get("/").status) })
	f("limited", func() { n.get("/limited"); require.Equal(t, 429, n.get("/limited").status) })
	f("bad request", func() { require.Equal(t, 400, n.get("/twice", "X-K: a", "X-K: b").status) })
	f("unsupported", func() { n.raw("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nConnection: close\r\n\r\n") })
	f("upstream hangs up", func() { require.Equal(t, 502, n.get("/abort").status) })
	f("streamed", func() { require.Len(t, n.get("/big").body, 2<<20) })
	f("stream breaks", func() {
		resp, err := n.client.Get("http://" + n.public + "/broken")
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err)
		resp.Body.Close()
	})
	f("client hangs up", func() {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+n.public+"/big", nil)
		require.NoError(t, err)
		resp, err := n.client.Do(req)
		require.NoError(t, err)
		cancel()
		resp.Body.Close()
	})
	f("client hangs up while it sends", func() {
		c, err := net.Dial("tcp", n.public)
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n%s", make([]byte, 20000))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
	s := n.upstreams.Groups[0].Shedder.Status()
	for _, c := range s.Classes {
		require.Zero(t, c.ShedByCap+c.ShedByLevel)
	}
	require.Equal(t, 200, n.get("/").status)

	with.config = func(c *config.Config) { c.Upstream.Timeout = time.Second }
	impatient := start(t, with)
	require.Equal(t, 504, impatient.get("/slow").status)
	impatient.idle()
}

// Streams hold their permits until they end, and are not a reason to shed.
func TestStreamsAreNoLoad(t *testing.T) {
	end := make(chan struct{})
	n := start(t, setup{
		rules: "rules: []",
		config: func(c *config.Config) {
			c.Shedder.Document = settings(t, "signals: {cpu: off, sched_latency: off, inflight: {low: 0, high: 4}, upstream_wait: {low: 10ms, high: 50ms}}\n")
		},
		origin: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			select {
			case <-end:
			case <-r.Context().Done():
			}
		},
	})
	for range 20 {
		resp, err := n.client.Get("http://" + n.public + "/events")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
	}
	status := n.upstreams.Groups[0].Shedder.Status
	opened := time.Now()
	eventually(t, "samples of a second and more", func() bool { return status().At.Sub(opened) > 1500*time.Millisecond })
	st := status()
	require.Zero(t, st.Utilization, "%+v", st.Signals)
	require.EqualValues(t, 20, st.Classes[2].InFlight)
	close(end)
	n.idle()
}

// So does the permit of a request on which weir itself fails, before or at its
// upstream.
func TestPermitsComeBackFromAPanic(t *testing.T) {
	for _, at := range []string{"the store", "the upstream"} {
		t.Run(at, func(t *testing.T) {
			l, broken := &logBuffer{}, atomic.Bool{}
			e := notListening(t, "rules: [{id: one, key: [client_ip], limit: 9, window: 1h}]", l, func(c *config.Config) {
				c.Store.Clock = func() int64 {
					if broken.Load() {
						panic("as the test wants")
					}
					return time.Now().UnixMicro()
				}
			})
			broken.Store(at == "the store")
			l.panics.Store(at == "the upstream")
			ctx := received(t, "192.0.2.1", usual...)
			e.serve(ctx)
			require.Equal(t, 500, ctx.Response.StatusCode())
			require.Len(t, l.lines(t, "handler panicked"), 1)
			for _, c := range e.upstreams.Groups[0].Shedder.Status().Classes {
				require.Zero(t, c.InFlight)
			}
		})
	}
}

// One slow upstream group does not affect the others.
func TestGroupsShedByThemselves(t *testing.T) {
	other := newOrigin(t, "other")
	n, release := holding(t, setup{config: func(c *config.Config) {
		c.Upstreams = append(c.Upstreams, config.Upstream{URL: other, Group: "search"})
		c.Routes = []config.Route{{Group: "search"}}
		c.Routes[0].Match.Paths = []string{"/search/*"}
		c.Shedder.Document = settings(t, capped)
	}})
	require.Equal(t, "other", n.get("/search/x").body)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer release()
	n.occupy(&wg, "/hold", 1)
	require.Equal(t, 503, n.get("/x").status)
	require.Equal(t, "other", n.get("/search/x").body)
	require.EqualValues(t, 1, n.metric(`weir_inflight{class="read",upstream="default"}`))
	for _, none := range []string{`weir_inflight{class="read",upstream="search"}`, `weir_shed_total{class="read",reason="cap",upstream="search"}`} {
		v, known := n.series(none)
		require.True(t, known, none)
		require.Zero(t, v)
	}
	require.EqualValues(t, 1, n.metric(`weir_shed_total{class="read",reason="cap",upstream="default"}`))
	require.EqualValues(t, 2, n.metric(`weir_upstream_seconds{upstream="search"}`))
	require.Zero(t, n.metric(`weir_upstream_seconds{upstream="default"}`), "its only request waits")
	a := n.operate("GET", "/v1/explain?client=127.0.0.1&path=/search/y&header=X-Class:critical")
	require.Contains(t, a.body, `"upstream": "search"`)
	require.Contains(t, a.body, `"class": "critical"`)
}

// newOrigin answers everything with one word.
func newOrigin(t *testing.T, word string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, word) })}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return "http://" + ln.Addr().String()
}

// The most frequent answer of an overloaded node allocates nothing.
func TestSheddingAllocatesNothing(t *testing.T) {
	e := inMemory(t, "rules: []")
	require.NoError(t, e.shedding.Override(overriding(t, capped+"reason_header: true\n"), time.Hour))
	permit, ok := e.upstreams.Groups[0].Shedder.Admit(1, 0)
	require.True(t, ok)
	defer permit.Done()
	for _, peer := range []string{"192.0.2.1", "10.0.0.1"} { // directly, and through a trusted proxy
		ctx := received(t, peer, append(slices.Clone(usual), "X-Forwarded-For: 203.0.113.7, 10.0.0.2")...)
		serve := func() {
			ctx.Response.Reset()
			e.serve(ctx)
		}
		serve()
		require.Equal(t, 503, ctx.Response.StatusCode())
		require.Contains(t, string(ctx.Response.Header.String()), "Weir-Shed-Reason: ")
		serve()
		require.LessOrEqual(t, testing.AllocsPerRun(2000, serve), bound(0))
	}
}

// BenchmarkShed measures what a refusal by the shedder costs beyond fasthttp's own
// work.
func BenchmarkShed(b *testing.B) {
	e := inMemory(b, "rules: []")
	require.NoError(b, e.shedding.Override(overriding(b, capped), time.Hour))
	permit, _ := e.upstreams.Groups[0].Shedder.Admit(1, 0)
	defer permit.Done()
	ctx := received(b, "192.0.2.1", usual...)
	b.ReportAllocs()
	for b.Loop() {
		ctx.Response.Reset()
		e.serve(ctx)
	}
	require.Equal(b, 503, ctx.Response.StatusCode())
}

// overriding is settings for one node only.
func overriding(t testing.TB, text string) *documents.Document[shedding.Document] {
	d := settings(t, text)
	return documents.Local(d.Version, d, adminapi.SourceAdmin)
}
