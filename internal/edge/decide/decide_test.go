package decide

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/shedder"
)

// fields are those of a request of no particular protocol.
type fields map[string][][]byte

func (f fields) Header(name string) [][]byte { return f[name] }

func (f fields) Cookie(name string) ([]byte, int) {
	if values := f["Cookie "+name]; len(values) > 0 {
		return values[0], len(values)
	}
	return nil, 0
}

// counted are rules that count how often they decide.
type counted struct {
	set     *rules.Set
	decided int
}

func (c *counted) Set() *rules.Set  { return c.set }
func (c *counted) Decided(*Request) { c.decided++ }

// decider has the given rules and shedder settings, a memory store and the memory of
// refusals.
func decider(t testing.TB, document, settings string) (*Decider, *counted) {
	t.Helper()
	set, err := rules.Load([]byte(document))
	require.NoError(t, err)
	doc, err := shedding.Parse([]byte(settings))
	require.NoError(t, err)
	s := &Shedding{Document: doc}
	s.Classes, err = doc.Matcher()
	require.NoError(t, err)
	s.User, err = rules.ParseKey(doc.User)
	require.NoError(t, err)
	sh, err := shedder.New("default", shedder.Defaults())
	require.NoError(t, err)
	limits, err := doc.Settings("default")
	require.NoError(t, err)
	require.NoError(t, sh.Configure(limits))
	active := &counted{set: set}
	denied := limiter.NewDenied(limiter.NewFallback(memory.New(memory.Config{}), memory.New(memory.Config{}), func() int { return 1 }, nil), 1000, 0)
	d := &Decider{
		Log: slog.New(slog.DiscardHandler), Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, TierHeader: "X-Tier",
		Rules: func() Rules { return active }, Shedding: func() *Shedding { return s }, Shedders: []*shedder.Shedder{sh},
		Precheck: denied, Take: denied,
		Secret: func() *Secret { return nil }, Shed: func(*Request, shedder.Reason) {},
	}
	d.Routes.Conditions, err = rules.NewMatcher(nil)
	require.NoError(t, err)
	return d, active
}

var get, host = []byte("GET"), []byte("api.example.com")

// ask fills r with a GET for this target.
func (d *Decider) ask(t testing.TB, r *Request, peer string, target []byte, f fields) {
	t.Helper()
	path, query, _ := bytes.Cut(target, []byte("?"))
	r.Rules, r.Peer, r.Method, r.Host, r.Query, r.Fields = d.Rules(), netip.MustParseAddr(peer), get, host, query, f
	require.NoError(t, d.ReadPath(r, path))
}

const document = `
rules:
  - {id: clients, match: {paths: ["/api/*"]}, key: [client_ip], limit: 2, window: 1h, tiers: {pro: 100}}
  - {id: keys, key: ["query:key", "cookie:session"], limit: 2, window: 1h}
`

// Every verdict is reached without a protocol and has its answer.
func TestVerdicts(t *testing.T) {
	d, active := decider(t, document, calm)
	permits := 0
	f := func(want Verdict, peer, target string, f fields) (r *Request, a Refusal) {
		t.Helper()
		r = &Request{}
		d.ask(t, r, peer, []byte(target), f)
		require.Equal(t, want, d.Decide(r), "%v", r.Err)
		if want != Pass {
			return r, d.Refuse(r, want)
		}
		permits++
		r.Permit.Done()
		return r, a
	}
	f(Pass, "192.0.2.1", "/", nil)
	require.Zero(t, active.decided)
	f(Pass, "192.0.2.1", "/api/x", nil)
	r, _ := f(Pass, "192.0.2.1", "/api/y", nil)
	described := map[string]string{}
	r.SetLimitHeaders(true, func(name, value []byte) { described[string(name)] = string(value) })
	require.Equal(t, map[string]string{
		"RateLimit-Policy": `"clients";q=2;w=3600`, "RateLimit": `"clients";r=0;t=3600`,
		"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3600",
	}, described)
	for range 2 { // by the store, and from memory
		_, a := f(Limited, "192.0.2.1", "/api/z", nil)
		require.Equal(t, 429, a.Status)
		require.InDelta(t, 3600, a.RetryAfter, 60)
		require.JSONEq(t, `{"type":"`+typeQuotaExceeded+`","title":"Too many requests","status":429,"violated-policies":["clients"]}`, string(a.Body))
	}
	require.Equal(t, 4, active.decided)

	f(Pass, "10.0.0.1", "/api/x", fields{"X-Forwarded-For": {[]byte("203.0.113.1, 10.0.0.2")}})
	r, _ = f(Pass, "10.0.0.1", "/api/x", fields{"X-Forwarded-For": {[]byte("192.0.2.1")}, "X-Tier": {[]byte("pro")}})
	require.Equal(t, "192.0.2.1 pro", r.Client.String()+" "+string(r.Tier))
	for range 2 {
		f(Pass, "192.0.2.9", "/?a=b&k%65y=a+b", fields{"Cookie session": {[]byte("s")}})
	}
	f(Limited, "192.0.2.8", "/?key=a%20b", fields{"Cookie session": {[]byte("s")}})

	r, a := f(Malformed, "192.0.2.1", "/?key=a&key=b", fields{"Cookie session": {[]byte("s")}})
	require.ErrorContains(t, r.Err, "key")
	require.Equal(t, 400, a.Status)
	require.Contains(t, string(a.Body), `occurs more than once`)
	r, _ = f(Malformed, "192.0.2.1", "/api/..%2fx", nil)
	require.Equal(t, errDisagree, r.Err)

	d.Rules = func() Rules { return nil }
	_, a = f(NoRules, "192.0.2.1", "/", nil)
	require.Equal(t, 503, a.Status)
	require.Contains(t, string(a.Body), "No rules yet")
}

func TestStrictRefusesAPathWithTwoReadings(t *testing.T) {
	d := &Decider{}
	require.NoError(t, d.ReadPath(&Request{}, []byte("/a//b")))
	d.Strict = true
	require.Equal(t, errAmbiguous, d.ReadPath(&Request{}, []byte("/a//b")))
}

// Class test admits nothing while one request is in flight.
const capped = calm + "reason_header: true\nclasses: [{name: read, max_in_flight: 2}, {name: test, max_in_flight: 1, match: [{headers: {X-Class: test}}]}]\n"

func TestShed(t *testing.T) {
	d, active := decider(t, "rules: [{id: all, key: [], limit: 1, window: 1h}]", capped)
	permit, ok := d.Shedders[0].Admit(0, 0)
	require.True(t, ok)
	defer permit.Done()
	var reasons []string
	d.Shed = func(_ *Request, reason shedder.Reason) { reasons = append(reasons, reason.Class) }
	r := &Request{}
	d.ask(t, r, "192.0.2.1", []byte("/"), fields{"X-Class": {[]byte("test")}})
	require.Equal(t, Shed, d.Decide(r))
	a := d.Refuse(r, Shed)
	require.Equal(t, 503, a.Status)
	require.Contains(t, string(a.Reason), ";class=test;upstream=default;kind=cap")
	require.JSONEq(t, `{"type":"`+typeReducedCapacity+`","title":"Shedding load","status":503,"class":"test"}`, string(a.Body))
	require.Equal(t, []string{"test"}, reasons)
	require.Zero(t, active.decided, "nothing is charged")
}

// Deciding, describing and refusing allocate nothing, whatever the protocol.
func TestDecidingAllocatesNothing(t *testing.T) {
	for name, limit := range map[string]string{"pass": "10000", "refuse": "1"} {
		d, _ := decider(t, "rules: [{id: all, key: [client_ip, \"query:full\"], limit: "+limit+", window: 1h}]", calm)
		r, f := &Request{}, fields{"X-Forwarded-For": {[]byte("203.0.113.1, 10.0.0.2")}}
		target := []byte("/api/users/42?full=1")
		var last Verdict
		decide := func() {
			d.ask(t, r, "10.0.0.1", target, f)
			if last = d.Decide(r); last != Pass {
				d.Refuse(r, last)
			}
			r.SetLimitHeaders(true, func(_, _ []byte) {})
			r.Permit.Done()
			r.Reset()
		}
		for range 3 {
			decide()
		}
		require.Equal(t, name == "refuse", last == Limited)
		require.LessOrEqual(t, testing.AllocsPerRun(2000, decide), 0.0, name)
	}
}

const calm = "signals: {cpu: off, sched_latency: off, upstream_wait: off}\n"

func TestUsers(t *testing.T) {
	hash := func(settings, peer string, keys ...string) uint64 {
		d, _ := decider(t, "rules: []", settings)
		f := fields{}
		for _, key := range keys {
			f["X-Api-Key"] = append(f["X-Api-Key"], []byte(key))
		}
		r := &Request{}
		d.ask(t, r, peer, []byte("/"), f)
		d.identify(r)
		return r.user(d.Shedding().User, nil)
	}
	byKey := calm + "user: [\"header:X-Api-Key\", client_ip]\n"
	require.Equal(t, hash(calm, "192.0.2.1"), hash(calm, "192.0.2.1", "mine"), "a client does not choose its identity")
	require.Equal(t, hash(byKey, "192.0.2.1", "k"), hash(byKey, "192.0.2.2", "k"), "unless the settings say so")
	require.NotEqual(t, hash(byKey, "192.0.2.1", "k"), hash(byKey, "192.0.2.1", "other"))
	require.Equal(t, hash(byKey, "192.0.2.1"), hash(byKey, "192.0.2.1", "a", "b"), "a key sent twice does not count")
	require.NotEqual(t, hash(byKey, "192.0.2.1"), hash(byKey, "192.0.2.2"))
	require.Equal(t, hash(byKey, "2001:db8::1"), hash(byKey, "2001:db8::2"), "one /64 is one user")
	byCookie := calm + "user: [\"cookie:session\"]\n"
	require.NotEqual(t, hash(byCookie, "192.0.2.1"), hash(byCookie, "192.0.2.2"), "a user without a cookie is identified by address")
}

func TestParseHop(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		a, ok := parseHop([]byte(in))
		if want == "" {
			require.False(t, ok, in)
			return
		}
		require.True(t, ok, in)
		require.Equal(t, netip.MustParseAddr(want), a)
	}
	f("203.0.113.1", "203.0.113.1")
	f("203.0.113.1:80", "203.0.113.1")
	f("::ffff:203.0.113.1", "203.0.113.1")
	f("[::1]:80", "::1")
	f("fe80::1%lo", "fe80::1")
	f("", "")
	f("[::1]", "::1")
	f("[203.0.113.1]", "")
	f("[::1", "")
	f("_hidden", "")
	f("203.0.113.01", "")
	f("203.0.113.1:", "")
	f(strings.Repeat("0", 65), "")
}
