package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/internal/testenv"
)

var triedRules = `
rules:
  - {id: clients, match: {paths: ["/tried*"]}, key: [client_ip], algorithm: fixed_window, limit: 4, window: ` + testenv.LongWindow() + `, experiment: {share: 0.5%s}}
`

// experimentOf is what a node says of an experiment.
func (n *node) experimentOf(rule string) (e adminapi.Experiment) {
	n.t.Helper()
	a := n.operate("GET", adminapi.PathExperiment+"?rule="+rule)
	require.Equal(n.t, http.StatusOK, a.status, a.body)
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &e))
	return e
}

func (n *node) triedCounts(rule string) (base, tried experiment.Counts) {
	e := n.experimentOf(rule)
	return experiment.Sum(e.Slices, e.Cut, false), experiment.Sum(e.Slices, e.Cut, true)
}

// counts makes the running experiments count at once, as if they had begun in 1970.
func (n *node) counts() {
	running := n.rules.Running()
	for _, rule := range running.Set().Rules() {
		if t := running.Tally(rule.ID); t != nil {
			t.Since = time.Unix(0, 0)
		}
	}
}

// startTried starts a node with an experiment whose origin fails every request to /tried/fails.
func startTried(t *testing.T, more string, redis *testenv.Server) *node {
	n := start(t, setup{
		rules: fmt.Sprintf(triedRules, more), redis: redis,
		config: func(c *config.Config) { c.TrustedProxies = []string{"127.0.0.1"} },
		origin: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/tried/fails" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		},
	})
	n.counts()
	return n
}

// Half the clients pass 2 requests and the others 4, each counted by its own key; both are
// counted apart, and a change of another rule or of the node's document leaves the counts.
func TestExperiment(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	n := startTried(t, ", limit: 2", redis)
	const clients = 40
	limits := map[int64]int64{}
	for i := range clients {
		ip := fmt.Sprintf("192.0.2.%d", i)
		d := n.explained("clients", ip, "&path=/tried")
		require.Equal(t, map[string]int64{adminapi.VariantBase: 4, adminapi.VariantExperiment: 2}[d.Variant], d.Limit)
		require.Equal(t, d.Variant == adminapi.VariantExperiment, strings.HasSuffix(d.Key, ".x"))
		limits[d.Limit]++
		for k := range int64(5) {
			want := http.StatusOK
			if k >= d.Limit {
				want = http.StatusTooManyRequests
			}
			path := "/tried"
			if k == 0 {
				path, want = "/tried/fails", http.StatusServiceUnavailable
			}
			a := n.get(path, "X-Forwarded-For: "+ip)
			require.Equal(t, want, a.status)
			require.Contains(t, a.header.Get("RateLimit-Policy"), fmt.Sprintf(`"clients";q=%d;w=`, d.Limit))
		}
	}
	require.Len(t, limits, 2, "both variants have clients")
	check := func() {
		t.Helper()
		var base, tried experiment.Counts
		eventually(t, "all answers are counted", func() bool {
			base, tried = n.triedCounts("clients")
			return base.Answers+tried.Answers == 4*limits[4]+2*limits[2]
		})
		for _, c := range []struct {
			counts           experiment.Counts
			clients, passing int64
			variant          string
		}{{base, limits[4], 4, adminapi.VariantBase}, {tried, limits[2], 2, adminapi.VariantExperiment}} {
			require.Equal(t, 5*c.clients, c.counts.Checks)
			require.Equal(t, (5-c.passing)*c.clients, c.counts.Refused)
			require.Equal(t, c.clients, c.counts.Errors)
			require.Equal(t, c.passing, c.counts.Worst)
			require.Positive(t, c.counts.WaitMicros)
			require.Positive(t, c.counts.TookMicros)
			require.LessOrEqual(t, c.counts.Asked, c.counts.Checks)
			require.Positive(t, c.counts.Bytes)
			of := fmt.Sprintf(`{rule="clients",variant=%q}`, c.variant)
			require.EqualValues(t, c.passing, n.metric("weir_experiment_worst_window"+of))
			require.EqualValues(t, c.counts.Refused, n.metric(fmt.Sprintf(`weir_experiment_checks_total{rule="clients",variant=%q,outcome="limited"}`, c.variant)))
			require.EqualValues(t, c.clients, n.metric(fmt.Sprintf(`weir_experiment_answers_total{rule="clients",variant=%q,outcome="error"}`, c.variant)))
		}
	}
	check()
	// The rule's own metric counts all of it.
	require.EqualValues(t, 4*limits[4]+2*limits[2], n.metric(`weir_decisions_total{rule="clients",outcome="allowed",source="redis"}`))

	version := n.experimentOf("clients").RulesVersion
	change := func(text string) {
		n.replaceRules(text)
		n.reload <- syscall.SIGHUP
		eventually(t, "the document is active", func() bool { return n.rules.State().Version() != version })
		version = n.rules.State().Version()
	}
	change("rules:\n  - {id: first, key: [path], limit: 9, window: 1s}\n" + strings.TrimPrefix(fmt.Sprintf(triedRules, ", limit: 2"), "\nrules:\n"))
	check()
	change(fmt.Sprintf(triedRules, ", limit: 2, name: again"))
	base, tried := n.triedCounts("clients")
	require.Zero(t, base.Checks+tried.Checks, "another experiment begins")
	change("rules: [{id: clients, key: [client_ip], limit: 4, window: 24h}]")
	a := n.operate("GET", adminapi.PathExperiment+"?rule=clients")
	require.Equal(t, http.StatusNotFound, a.status)
	require.Contains(t, a.body, "must name a running rule with an experiment")
}

// A variant in shadow mode refuses nobody: its clients stay limited by the rule, and what it
// would have refused is counted.
func TestShadowExperiment(t *testing.T) {
	n := startTried(t, ", limit: 2, mode: shadow", nil)
	triedClients := int64(0)
	for i := range 40 {
		ip := fmt.Sprintf("192.0.2.%d", i)
		var variants []string
		var e adminapi.Explanation
		require.NoError(t, json.Unmarshal([]byte(n.operate("GET", "/v1/explain?client="+ip+"&path=/tried").body), &e))
		for _, r := range e.Rules {
			variants = append(variants, r.Variant+" "+r.Mode)
		}
		if len(variants) == 2 {
			require.Equal(t, []string{"base enforce", "experiment shadow"}, variants)
			triedClients++
		}
		for k := range 6 {
			want := http.StatusOK
			if k >= 4 {
				want = http.StatusTooManyRequests
			}
			a := n.get("/tried", "X-Forwarded-For: "+ip)
			require.Equal(t, want, a.status)
			require.Contains(t, a.header.Get("RateLimit-Policy"), `"clients";q=4;w=`)
		}
	}
	require.Positive(t, triedClients)
	_, tried := n.triedCounts("clients")
	require.Positive(t, tried.Refused)
	require.EqualValues(t, 2, tried.Worst)
	allowed := n.metric(`weir_decisions_total{rule="clients",outcome="allowed",source="memory"}`)
	require.EqualValues(t, 40*4, allowed, "each request once")
	require.Zero(t, n.metric(`weir_decisions_total{rule="clients",outcome="shadow_limited",source="memory"}`))
	require.Contains(t, n.experimentOf("clients").MemoryError, "store.kind: memory")
}

// A variant in shadow mode that changes nothing shows no difference: the node's memory of refusals
// knows those of the rule alone, so they count for neither.
func TestShadowExperimentThatChangesNothing(t *testing.T) {
	n := startTried(t, ", limit: 4, mode: shadow", testenv.Redis(t, testenv.Options{}))
	clients := map[string]int64{}
	for i := range 40 {
		ip := fmt.Sprintf("192.0.2.%d", i)
		var e adminapi.Explanation
		require.NoError(t, json.Unmarshal([]byte(n.operate("GET", "/v1/explain?client="+ip+"&path=/tried").body), &e))
		clients[e.Rules[len(e.Rules)-1].Variant]++
		for range 10 {
			n.get("/tried", "X-Forwarded-For: "+ip)
		}
	}
	base, tried := n.triedCounts("clients")
	for variant, c := range map[string]experiment.Counts{adminapi.VariantBase: base, adminapi.VariantExperiment: tried} {
		require.Positive(t, clients[variant])
		require.Equal(t, []int64{5 * clients[variant], clients[variant], 4}, []int64{c.Checks, c.Refused, c.Worst}, variant)
	}
}

// An experiment allocates nothing on the request path.
func TestExperimentAllocatesNothing(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		e := inMemory(t, `rules: [{id: a, key: [client_ip], limit: 10000, window: 1h, experiment: {share: 0.98, limit: 9000, mode: `+mode+`}}]`)
		ctx := received(t, "192.0.2.1", usual...)
		run := func() { tryOnce(t, e, ctx) }
		run()
		require.LessOrEqual(t, testing.AllocsPerRun(2000, run), bound(0), mode)
	}
}

// tryOnce decides a request, without forwarding it.
func tryOnce(t testing.TB, e *Edge, ctx *fasthttp.RequestCtx) {
	ctx.Response.Reset()
	r := e.begin(ctx)
	if err := r.checkHeader(); err != nil {
		t.Fatal(err)
	}
	if v := e.decider.Decide(&r.Request); v != decide.Pass {
		t.Fatal(v, r.Err)
	}
	r.end()
}

// BenchmarkExperiment measures what an experiment adds to a request.
func BenchmarkExperiment(b *testing.B) {
	for _, c := range []struct{ name, rule string }{
		{"none", ""}, {"base", ", experiment: {share: 0.02, limit: 5}"}, {"experiment", ", experiment: {share: 0.98, algorithm: token_bucket}"},
	} {
		e := inMemory(b, "rules: [{id: a, key: [client_ip], algorithm: token_bucket, limit: 1000000000, window: 1s"+c.rule+"}]")
		ctx := received(b, "192.0.2.1", usual...)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tryOnce(b, e, ctx)
			}
		})
	}
}
