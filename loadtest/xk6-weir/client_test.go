package weir

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/js/modulestest"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/metrics"

	"github.com/weir-edge/weir/loadtest/xk6-weir/oracle"
)

// vu is a VU with the extension, past its init context.
type vu struct {
	*modulestest.Runtime
	samples chan metrics.SampleContainer
}

// newVU runs setup in the init context.
func newVU(t *testing.T, setup string) *vu {
	t.Helper()
	v := &vu{modulestest.NewRuntime(t), make(chan metrics.SampleContainer, 1000)}
	m := New().NewModuleInstance(v.VU)
	require.NoError(t, v.VU.Runtime().Set("weir", m.Exports().Default))
	_, err := v.VU.Runtime().RunString(setup)
	require.NoError(t, err)
	log := logrus.New()
	log.SetLevel(logrus.ErrorLevel)
	registry := v.VU.InitEnvField.Registry
	v.MoveToVUContext(&lib.State{
		Options:        lib.Options{SystemTags: &metrics.DefaultSystemTagSet},
		BuiltinMetrics: v.BuiltinMetrics, Logger: log, Dialer: &net.Dialer{}, Samples: v.samples,
		Tags: lib.NewVUStateTags(registry.RootTagSet()),
	})
	return v
}

func (v *vu) do(t *testing.T, script string) any {
	t.Helper()
	value, err := v.VU.Runtime().RunString(script)
	require.NoError(t, err)
	return value.Export()
}

// sum adds up a metric's values, and returns the tags of the last one that is not 0.
func (v *vu) sum(name string) (sum float64, tags map[string]string) {
	for n := len(v.samples); n > 0; n-- {
		c := <-v.samples
		for _, s := range c.GetSamples() {
			if s.Metric.Name == name {
				if sum += s.Value; s.Value != 0 || tags == nil {
					tags = s.Tags.Map()
				}
			}
		}
		v.samples <- c
	}
	return sum, tags
}

// pop is a web server with its own address that counts connections.
type pop struct {
	*httptest.Server
	opened, open atomic.Int32
}

func newPop(t *testing.T, h http.HandlerFunc) *pop {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return popAt(t, ln, h)
}

// twoPops returns pops at 127.0.0.1 and 127.0.0.2, and the port that both have.
func twoPops(t *testing.T, h http.HandlerFunc) (one, two *pop, port string) {
	t.Helper()
	for range 100 { // a port that is free at one may be taken at the other
		first, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, port, err = net.SplitHostPort(first.Addr().String())
		require.NoError(t, err)
		second, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", port))
		if err == nil {
			return popAt(t, first, h), popAt(t, second, h), port
		}
		require.NoError(t, first.Close())
	}
	t.Fatal("no port is free at both")
	return nil, nil, ""
}

func popAt(t *testing.T, ln net.Listener, h http.HandlerFunc) *pop {
	t.Helper()
	p := &pop{}
	p.Server = httptest.NewUnstartedServer(h)
	p.Listener.Close()
	p.Listener = ln
	p.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			p.opened.Add(1)
			p.open.Add(1)
		case http.StateClosed:
			p.open.Add(-1)
		}
	}
	p.Start()
	t.Cleanup(p.Close)
	return p
}

func greet(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }

func TestConnectionsFollowTheAnswer(t *testing.T) {
	one, two, port := twoPops(t, greet)
	var mu sync.Mutex
	answer := []string{"e.example. 0 A 127.0.0.1"}
	server := nameserver(t, func(*dns.Msg) []string { mu.Lock(); defer mu.Unlock(); return answer })
	set := func(list ...string) { mu.Lock(); answer = list; mu.Unlock() }

	v := newVU(t, fmt.Sprintf(`
		const c = new weir.Client({region: 'eu-west', dns: %q, subnet: '203.0.113.0/24', connectTimeout: '1m', dnsTimeout: '1m',
			pops: {'127.0.0.1': {region: 'eu-west', pop: 'ams1'}, '127.0.0.2:%s': {region: 'us-east', pop: 'iad1'}}});
		const get = () => c.get('http://e.example:%s/x');`, server, port, port))
	for range 3 {
		require.Equal(t, "ams1", v.do(t, "get().pop"))
	}
	require.Equal(t, int32(1), one.opened.Load(), "one connection is kept")
	require.Equal(t, "e.example:"+port, v.do(t, "get().body"), "the host is the name")

	set("e.example. 0 A 127.0.0.2")
	require.Equal(t, "us-east", v.do(t, "get().region"))
	require.Eventually(t, func() bool { return one.open.Load() == 0 }, timeLimit, tick, "the old connection is closed")

	// It keeps a known address while that is in the answer.
	set("e.example. 0 A 127.0.0.1", "e.example. 0 A 127.0.0.2")
	require.Equal(t, "iad1", v.do(t, "get().pop"))
	require.Equal(t, int32(1), two.opened.Load())

	// Nothing listens at .3: the next one is tried.
	set("e.example. 0 A 127.0.0.3", "e.example. 0 A 127.0.0.1")
	require.Equal(t, "ams1", v.do(t, "get().pop"))
	errors, tags := v.sum("weir_connect_errors")
	require.Equal(t, 1.0, errors)
	require.Equal(t, "eu-west", tags["region"])
	requests, tags := v.sum("http_reqs")
	require.Equal(t, 7.0, requests)
	require.Equal(t, "ams1", tags["pop"])
	require.Equal(t, "200", tags["status"])

	set()
	require.Contains(t, v.do(t, "get().error"), "no addresses")
	failed, _ := v.sum("http_req_failed")
	require.Equal(t, 1.0, failed)
}

func TestResponseIsRead(t *testing.T) {
	p := newPop(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit-Policy", `"per-client";q=10;w=10, "slow";q=2`)
		w.Header().Set("RateLimit", `"per-client";r=0;t=9`)
		w.Header().Set("Retry-After", "9")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"violated-policies":["per-client"]}`)
	})
	v := newVU(t, `const c = new weir.Client({region: 'eu-west'}); const o = weir.oracle({fresh: true});
		o.rule({id: 'per-client', key: ['client_ip'], limit: 10, window: '10s'});
		o.rule({id: 'slow', key: ['client_ip'], algorithm: 'concurrency', limit: 2, window: '30s', match: {paths: ['/*']}});`)
	v.do(t, fmt.Sprintf(`const r = c.get(%q, {limits: {'per-client': 'a', slow: {key: 'a'}}})`, p.URL+"/x?secret=1"))
	require.Equal(t, []any{int64(429), true, int64(9), int64(0), int64(10), int64(-1)},
		v.do(t, "[r.status, r.limited, r.retryAfter, r.rateLimit[0].remaining, r.rateLimit[1].rule === 'slow' ? 10 : 0, r.rateLimit[1].reset]"))
	wrong, tags := v.sum("weir_wrongly_refused")
	require.Equal(t, 1.0, wrong, "nothing was admitted before")
	require.Equal(t, "per-client", tags["rule"])
	require.Equal(t, "eu-west", tags["region"])
	_, tags = v.sum("http_reqs")
	require.Equal(t, "per-client", tags["rule"])
	require.Equal(t, p.URL+"/x", tags["name"])
	require.Equal(t, int64(1), v.do(t, "o.report().find(l => l.rule === 'per-client').wronglyRefused"))
}

// What an answer may omit or repeat.
func TestOddAnswers(t *testing.T) {
	p := newPop(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/state": // no policy
			w.Header().Add("RateLimit", `"a";r=3`)
			w.Header().Add("RateLimit", `"b";r=4;t=5`)
		case "/now": // when to retry is not said
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"violated-policies":["r"]}`)
		case "/nobody": // not the edge's
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"violated-policies":[]}`)
		}
	})
	v := newVU(t, `const c = new weir.Client(); const o = weir.oracle({fresh: true, clockError: '1us'});
		o.rule({id: 'r', key: ['client_ip'], limit: 1, window: '1h'});`)
	v.do(t, fmt.Sprintf(`const get = (path) => c.get(%q + path, {limits: {r: 'k'}})`, p.URL))
	require.Equal(t, []any{"a", int64(3), int64(-1), int64(-1), "b", int64(5)},
		v.do(t, "const s = get('/state').rateLimit; [s[0].rule, s[0].remaining, s[0].limit, s[0].reset, s[1].rule, s[1].reset]"))
	require.Equal(t, int64(-1), v.do(t, "get('/now').retryAfter"))
	wrong, _ := v.sum("weir_retry_after_error")
	require.Greater(t, wrong, 3_000_000.0)
	require.Equal(t, false, v.do(t, "get('/nobody').limited"))
	require.Equal(t, []any{int64(1), int64(1), int64(1)}, v.do(t, "const l = o.report()[0]; [l.admitted, l.refused, l.unknown]"))

	// A tier's limit is refused in the name of its rule.
	v.do(t, fmt.Sprintf(`o.rule({id: 'r-pro', as: 'r', key: ['client_ip'], limit: 9, window: '60s'}); c.get(%q, {limits: {'r-pro': 'k'}})`, p.URL+"/now"))
	require.Equal(t, int64(1), v.do(t, "o.report().find(l => l.rule === 'r-pro').wronglyRefused"))
}

// A request is not sent if the region that counts it is unknown.
func TestUnknownPop(t *testing.T) {
	p := newPop(t, greet)
	v := newVU(t, `const o = weir.oracle(); o.rule({id: 'r', limit: 1, window: '1s'});
		const c = new weir.Client({region: 'eu-west', pops: {'192.0.2.1': {region: 'us-east'}}});`)
	require.Contains(t, v.do(t, fmt.Sprintf("c.get(%q, {limits: {r: 'k'}}).error", p.URL)), "pops does not say")
	require.EqualValues(t, 200, v.do(t, fmt.Sprintf("c.get(%q).status", p.URL)), "the oracle does not hear of it")
}

// What is proven while a VU is interrupted is not lost.
func TestVerdictsOfAnInterruptedVU(t *testing.T) {
	v := newVU(t, `const o = weir.oracle({fresh: true}); o.rule({id: 'r', limit: 1, window: '1s'});`)
	m := New().NewModuleInstance(newInitVU(t)).(*Module)
	m.verdicts([]oracle.Verdict{{Kind: oracle.Overadmitted, Region: "eu-west", Rule: "r", Value: 2}})
	require.Len(t, m.root.unsent, 1)
	m.vu = v.VU
	(&Judge{m}).Finish()
	sum, tags := v.sum("weir_overadmitted")
	require.Equal(t, 2.0, sum)
	require.Equal(t, "eu-west", tags["region"])
	require.Empty(t, m.root.unsent)
}

func newInitVU(t *testing.T) *modulestest.VU { return modulestest.NewRuntime(t).VU }

func TestMistakesAreThrown(t *testing.T) {
	v := newVU(t, `const c = new weir.Client()`)
	for script, want := range map[string]string{
		`new weir.Client({regoin: 'x'})`:                         "regoin",
		`new weir.Client({subnet: '10.0.0.0/8'})`:                "give dns too",
		`new weir.Client({dns: '127.0.0.1'})`:                    "must be host:port",
		`new weir.Client({timeout: 5})`:                          "client: timeout: a duration is text",
		`new weir.Client({idleTimeout: '-1s'})`:                  "client: idleTimeout: ",
		`new weir.Client({dnsTimeout: '0s'})`:                    "client: dnsTimeout: must be over 0",
		`weir.oracle().replace({id: 'r'}, '-1s')`:                "settle: must be",
		`c.request('GE T', 'http://x')`:                          "request: method: ",
		`c.get('http://x', {headers: {X: 'a\nb'}})`:              "request: headers: ",
		`c.get('http://x', {limits: {r: undefined}})`:            "request: limits: must be the key",
		`c.get('http://x', {limits: {r: {key: 'k', cots: 1}}})`:  "cots",
		`c.get('http://x', {limits: {r: {key: 'k', cost: -1}}})`: "a cost that is not negative",
		`new weir.Keys({kind: 'random'})`:                        "kind: unknown",
		`weir.oracle().rule({id: 'r', limit: 0, window: '1s'})`:  "limit: must be between",
		`c.get('ftp://x')`:                                       "not an http or https URL",
		`c.get('http://x', {limits: {nobody: 'k'}})`:             "no such rule",
	} {
		_, err := v.VU.Runtime().RunString(script)
		require.ErrorContains(t, err, want, script)
	}
}

func TestRuleIsDeclaredOnce(t *testing.T) {
	v := newVU(t, `const o = weir.oracle(); const r = {id: 'r', limit: 1, window: '1s'}; o.rule(r); o.rule(r);`)
	_, err := v.VU.Runtime().RunString(`o.rule({id: 'r', limit: 2, window: '1s'})`)
	require.ErrorContains(t, err, "declared differently")
	v.do(t, `o.replace({id: 'r', limit: 2, window: '1s'}, '1s'); o.rule(r)`)
}

// A request costs what the rule says at that time.
func TestReplacedCost(t *testing.T) {
	p := newPop(t, greet)
	v := newVU(t, `const o = weir.oracle({fresh: true}); const r = {id: 'r', limit: 3, window: '60s'}; o.rule(r);
		const c = new weir.Client(); o.replace(Object.assign({cost: 2}, r), '1ns');`)
	v.do(t, fmt.Sprintf("for (let i = 0; i < 2; i++) { c.get(%q, {limits: {r: 'k'}}) }", p.URL))
	over, _ := v.sum("weir_overadmitted")
	require.Equal(t, 2.0, over)
}

// A generator used in the init context differs between VUs.
func TestKeysOfTheInitContext(t *testing.T) {
	const script = `const k = new weir.Keys({kind: 'uniform', seed: 1}); k.next(0)`
	v, w := newVU(t, script), newVU(t, script)
	v.VU.State().VUIDGlobal, w.VU.State().VUIDGlobal = 1, 2
	require.NotEqual(t, v.do(t, "k.next(0).key"), w.do(t, "k.next(0).key"))
}

func TestKeysInAScript(t *testing.T) {
	v := newVU(t, `const k = new weir.Keys({kind: 'uniform', n: 3, seed: 1, stream: 2});
		const b = new weir.Keys({kind: 'retrying_bot'});
		const stages = new weir.Keys({kind: 'flash_crowd', start: '1s', hold: '1s', surge: 3}).stages(100, '4s', 8);`)
	require.Contains(t, []any{"key-0", "key-1", "key-2"}, v.do(t, "k.next(0).key"))
	v.do(t, "b.next(); b.answered(429, 7)")
	require.EqualValues(t, 7, v.do(t, "b.next().wait"))
	require.EqualValues(t, 300, v.do(t, "stages[3].target"))
}

func TestCancelledContextEndsARequest(t *testing.T) {
	p := newPop(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	v := newVU(t, `const c = new weir.Client({timeout: '100ms'})`)
	require.Contains(t, v.do(t, fmt.Sprintf("c.get(%q).error", p.URL)), context.DeadlineExceeded.Error())
}

const (
	timeLimit = time.Minute
	tick      = 10 * time.Millisecond
)
