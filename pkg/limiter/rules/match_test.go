package rules

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// fake is a request in plain values.
type fake struct {
	client                   netip.Addr
	host, path, method, tier string
	headers, cookies, query  map[string][]string
	trusted                  bool
	risk                     string

	// so that answering allocates nothing
	buf [5][]byte
}

func (f *fake) Client() netip.Addr { return f.client }
func (f *fake) Host() []byte       { return f.bytes(0, f.host) }
func (f *fake) Path() []byte       { return f.bytes(1, f.path) }
func (f *fake) Method() []byte     { return f.bytes(2, f.method) }
func (f *fake) Tier() []byte       { return f.bytes(4, f.tier) }
func (f *fake) Risk() string       { return f.risk }
func (f *fake) Trusted() bool      { return f.trusted }

func (f *fake) bytes(i int, s string) []byte {
	f.buf[i] = append(f.buf[i][:0], s...)
	return f.buf[i]
}

func (f *fake) first(values []string) ([]byte, int) {
	if len(values) == 0 {
		return nil, 0
	}
	return f.bytes(3, values[0]), len(values)
}

func (f *fake) Header(name string) ([]byte, int) { return f.first(f.headers[name]) }
func (f *fake) Cookie(name string) ([]byte, int) { return f.first(f.cookies[name]) }
func (f *fake) Query(name string) ([]byte, int)  { return f.first(f.query[name]) }

var _ Request = (*fake)(nil)

func load(t testing.TB, text string) *Set {
	t.Helper()
	set, err := Load([]byte(text))
	require.NoError(t, err)
	return set
}

// keys returns the keys of a request's checks.
func keys(t testing.TB, s *Set, r Request) []string {
	t.Helper()
	var m Match
	require.NoError(t, s.Match(r, 7, &m))
	out := []string{}
	for i := range m.Checks {
		out = append(out, string(m.Checks[i].Key))
		require.EqualValues(t, 7, m.Checks[i].Slot)
		require.Same(t, m.Rules[i].Limit, m.Checks[i].Limit)
	}
	return out
}

func hashed(value string) string { return fmt.Sprintf("~%x", sha256.Sum256([]byte(value)))[:33] }

func TestKeys(t *testing.T) {
	v4 := netip.MustParseAddr("203.0.113.7")
	// f checks the key of one rule for a request, or "" if it is not counted.
	f := func(key, more string, r *fake, want string) {
		t.Helper()
		s := load(t, "rules: [{id: a, key: ["+key+"], limit: 5, window: 1s"+more+"}]")
		got := keys(t, s, r)
		if want == "" {
			require.Empty(t, got)
			return
		}
		require.Equal(t, []string{want}, got)
	}
	f("", "", &fake{}, "weir:{*}:a:rr")
	f("", ", algorithm: fixed_window", &fake{}, "weir:{*}:a:fw")
	f("", ", storage: sorted_set", &fake{}, "weir:{*}:a:rs")

	f("client_ip", "", &fake{client: v4}, "weir:{203.0.113.7}:a:rr")
	f("client_ip", "", &fake{client: netip.MustParseAddr("::ffff:203.0.113.7")}, "weir:{203.0.113.7}:a:rr")
	f("client_ip", "", &fake{client: netip.MustParseAddr("2001:db8:1:2:3:4:5:6")}, "weir:{2001:db8:1:2::/64}:a:rr")
	f("client_ip", "", &fake{client: netip.MustParseAddr("fe80::1%eth0")}, "weir:{fe80::/64}:a:rr")
	f("client_ip", "", &fake{}, "weir:{~missing}:a:rr")
	f("host, client_ip", "", &fake{host: "a", client: netip.MustParseAddr("2001:db8::1")}, "weir:{a}:a:rr:2001%3Adb8%3A%3A/64")

	v6 := &fake{client: netip.MustParseAddr("2001:db8:1:2ff:3:4:5:6")}
	f("client_ip/64", "", v6, "weir:{2001:db8:1:2ff::/64}:a:rr")
	f("client_ip/56", "", v6, "weir:{2001:db8:1:200::/56}:a:rr")
	f("client_ip/128", "", v6, "weir:{2001:db8:1:2ff:3:4:5:6/128}:a:rr")
	f("client_ip/56", "", &fake{client: v4}, "weir:{203.0.113.7}:a:rr")
	f("client_net", "", v6, "weir:{2001:db8:1::/48}:a:rr")
	f("client_net", "", &fake{client: v4}, "weir:{203.0.113.0/24}:a:rr")
	f("client_net", "", &fake{client: netip.MustParseAddr("::ffff:203.0.113.7")}, "weir:{203.0.113.0/24}:a:rr")
	f("client_net/16/32", "", v6, "weir:{2001:db8::/32}:a:rr")
	f("client_net/16/32", "", &fake{client: v4}, "weir:{203.0.0.0/16}:a:rr")
	f("client_net, client_ip", "", v6, "weir:{2001:db8:1::/48}:a:rr:2001%3Adb8%3A1%3A2ff%3A%3A/64")
	f("client_net", "", &fake{}, "weir:{~missing}:a:rr")

	f("host", "", &fake{host: "API.Example.com:8443"}, "weir:{api.example.com}:a:rr")
	f("host", "", &fake{host: "api.example.com."}, "weir:{api.example.com}:a:rr")
	f("host", "", &fake{host: "api.example.com.:80"}, "weir:{api.example.com}:a:rr")
	f("host", "", &fake{host: "[2001:DB8::1]:80"}, "weir:{%5B2001:db8::1%5D}:a:rr")
	f("host", "", &fake{}, "weir:{~missing}:a:rr")
	f("method", "", &fake{method: "get"}, "weir:{GET}:a:rr")
	f("path", "", &fake{path: "/a/b-c_d.e"}, "weir:{/a/b-c_d.e}:a:rr")
	f("path", "", &fake{path: "/a}:b:{%*~ \x07\xff"}, "weir:{/a%7D:b:%7B%25%2A%7E%20%07%FF}:a:rr")
	f("method, path", "", &fake{method: "GET", path: "/a:b"}, "weir:{GET}:a:rr:/a%3Ab")
	f("path", "", &fake{path: "/" + strings.Repeat("a", 63)}, "weir:{/"+strings.Repeat("a", 63)+"}:a:rr")
	f("path", "", &fake{path: "/" + strings.Repeat("a", 64)}, "weir:{"+hashed("/"+strings.Repeat("a", 64))+"}:a:rr")
	f("path", "", &fake{path: "*"}, "weir:{%2A}:a:rr")

	secret := &fake{
		client: v4, tier: "pro",
		headers: map[string][]string{"X-Api-Key": {"s3cret"}, "Empty": {""}},
		cookies: map[string][]string{"session": {"c00kie"}},
		query:   map[string][]string{"token": {"t"}},
	}
	f("'header:x-api-key'", "", secret, "weir:{"+hashed("s3cret")+"}:a:rr")
	f("'cookie:session'", "", secret, "weir:{"+hashed("c00kie")+"}:a:rr")
	f("'query:token', tier, client_ip", "", secret, "weir:{"+hashed("t")+"}:a:rr:pro:203.0.113.7")

	for _, same := range []string{"Basic x", "basic x", "bAsIc  x", "BASIC \t x", " basic x "} {
		r := &fake{headers: map[string][]string{"Authorization": {same}}}
		f("'header:authorization'", "", r, "weir:{"+hashed("Basic x")+"}:a:rr")
	}
	f("'header:authorization'", "", &fake{headers: map[string][]string{"Authorization": {"Basic X"}}}, "weir:{"+hashed("Basic X")+"}:a:rr")
	f("'header:authorization'", "", &fake{headers: map[string][]string{"Authorization": {"token"}}}, "weir:{"+hashed("token")+"}:a:rr")
	f("'header:X-Api-Key'", "", &fake{headers: map[string][]string{"X-Api-Key": {"basic  x"}}}, "weir:{"+hashed("basic  x")+"}:a:rr")

	f("'header:Other'", "", secret, "")
	f("'header:Empty'", "", secret, "")
	f("client_ip, 'cookie:other'", "", secret, "")
	f("tier", "", &fake{}, "")
	f("'header:Other'", ", missing: limit", secret, "weir:{~missing}:a:rr")
	f("tier, 'header:Empty', client_ip", ", missing: limit", secret, "weir:{pro}:a:rr:~missing:203.0.113.7")
}

func TestSkippedKeyLeavesOthersWhole(t *testing.T) {
	s := load(t, `rules:
  - {id: a, key: [client_ip], limit: 5, window: 1s}
  - {id: b, key: [client_ip, "header:X"], limit: 5, window: 1s}
  - {id: c, key: [client_ip, path], limit: 5, window: 1s}
`)
	require.Equal(t, []string{"weir:{10.0.0.1}:a:rr", "weir:{10.0.0.1}:c:rr:/x"},
		keys(t, s, &fake{client: netip.MustParseAddr("10.0.0.1"), path: "/x"}))
}

func TestMatching(t *testing.T) {
	s := load(t, `rules:
  - {id: domain, match: {hosts: ["*.example.com"]}, key: [], limit: 5, window: 1s}
  - {id: host, match: {hosts: [API.example.com, "[2001:db8::1]"]}, key: [], limit: 5, window: 1s}
  - {id: below, match: {paths: [/api/*]}, key: [], limit: 5, window: 1s}
  - {id: prefix, match: {paths: [/api*, /ap*]}, key: [], limit: 5, window: 1s}
  - {id: exact, match: {paths: [/api]}, key: [], limit: 5, window: 1s}
  - {id: post, match: {methods: [POST, PUT]}, key: [], limit: 5, window: 1s}
  - {id: off, key: [], limit: 5, window: 1s, mode: off}
  - {id: net, match: {clients: [10.0.0.0/8, 10.1.0.0/16, "2001:db8::/32"]}, key: [], limit: 5, window: 1s}
  - {id: free, match: {headers: {x-plan: free, X-Zone: a}}, key: [], limit: 5, window: 1s}
`)
	f := func(r *fake, want ...string) {
		t.Helper()
		var m Match
		require.NoError(t, s.Match(r, 1, &m))
		var got []string
		for _, c := range m.Rules {
			got = append(got, c.ID)
		}
		require.Equal(t, want, got)
	}
	f(&fake{})
	f(&fake{host: "api.example.com"}, "domain", "host")
	f(&fake{host: "A.B.example.COM.:80"}, "domain")
	f(&fake{host: strings.Repeat("a.", 2000) + "example.com"}, "domain")
	f(&fake{host: "example.com"})
	f(&fake{host: ".example.com"})
	f(&fake{host: "badexample.com"})
	f(&fake{host: "[2001:db8::1]:80"}, "host")
	f(&fake{path: "/api"}, "prefix", "exact")
	f(&fake{path: "/api/"}, "below", "prefix")
	f(&fake{path: "/apix"}, "prefix")
	f(&fake{path: "/apricot"}, "prefix")
	f(&fake{path: "/a"})
	f(&fake{method: "put"}, "post")
	f(&fake{client: netip.MustParseAddr("::ffff:10.1.2.3")}, "net")
	f(&fake{client: netip.MustParseAddr("2001:db8::5")}, "net")
	f(&fake{client: netip.MustParseAddr("192.0.2.1")})
	f(&fake{headers: map[string][]string{"X-Plan": {"free"}}})
	f(&fake{headers: map[string][]string{"X-Plan": {"free"}, "X-Zone": {"a"}}}, "free")
}

func TestDuplicates(t *testing.T) {
	twice := map[string][]string{"X": {"a", "b"}}
	f := func(rule string, r *fake, want string) {
		t.Helper()
		s := load(t, "rules: [{id: first, key: [], limit: 5, window: 1s}, {id: a, limit: 5, window: 1s, "+rule+"}]")
		var m Match
		err := s.Match(r, 1, &m)
		if want == "" {
			require.NoError(t, err)
			return
		}
		var dup *DuplicateError
		require.ErrorAs(t, err, &dup)
		require.EqualError(t, err, want)
		require.Empty(t, m.Checks)
	}
	const header = `header "X" occurs more than once; send it once`
	f(`key: ["header:X"]`, &fake{headers: twice}, header)
	f(`key: ["cookie:X"]`, &fake{cookies: twice}, `cookie "X" occurs more than once; send it once`)
	f(`key: ["query:X"]`, &fake{query: twice}, `query parameter "X" occurs more than once; send it once`)
	f(`key: [], match: {headers: {X: c}}`, &fake{headers: twice}, header)
	f(`key: [], cost: "header:X"`, &fake{headers: twice, trusted: true}, header)

	f(`key: [], cost: "header:X"`, &fake{headers: twice}, "")
	f(`key: ["header:Y"]`, &fake{headers: twice}, "")
	f(`key: ["header:X"], match: {paths: [/other]}`, &fake{headers: twice}, "")
	f(`key: [], match: {headers: {X: c}, methods: [POST]}`, &fake{headers: twice}, "")
	f(`key: ["header:X"], mode: off`, &fake{headers: twice}, "")
	f(`key: ["header:X"], tiers: {pro: unlimited}`, &fake{headers: twice, tier: "pro"}, "")
	// A shadow rule never refuses a request, not even this one.
	f(`key: ["header:X"], mode: shadow`, &fake{headers: twice}, "")
	f(`key: [], match: {headers: {X: a}}, mode: shadow`, &fake{headers: twice}, "")
}

func TestCost(t *testing.T) {
	f := func(rule string, r *fake, want int64) {
		t.Helper()
		s := load(t, "rules: [{id: a, key: [], limit: 50, window: 1s, "+rule+"}]")
		var m Match
		require.NoError(t, s.Match(r, 1, &m))
		require.Equal(t, want, m.Checks[0].Cost)
	}
	says := func(v string) *fake {
		return &fake{trusted: true, headers: map[string][]string{"X-Cost": {v}}}
	}
	f("cost: 0", &fake{}, 0)
	f("cost: 50", &fake{}, 50)
	f("cost: 'header:x-cost'", says("7"), 7)
	f("cost: 'header:x-cost'", says("50"), 50)
	f("cost: 'header:x-cost'", says("51"), 50)
	f("cost: 'header:x-cost'", says("99999999999999999999999999"), 50)
	f("cost: 'header:x-cost'", says("0"), 1)
	f("cost: 'header:x-cost'", says("-3"), 1)
	f("cost: 'header:x-cost'", says("+3"), 1)
	f("cost: 'header:x-cost'", says("99x"), 1)
	f("cost: 'header:x-cost'", says(""), 1)
	f("cost: 'header:x-cost'", &fake{trusted: true}, 1)
	f("cost: 'header:x-cost'", &fake{headers: map[string][]string{"X-Cost": {"7"}}}, 1)
	f("cost: 'header:x-cost', tiers: {pro: 5}", &fake{trusted: true, tier: "pro", headers: map[string][]string{"X-Cost": {"7"}}}, 5)
	f("cost: 'header:x-cost', algorithm: token_bucket, burst: 3", says("7"), 3)
}

func TestTierChoosesLimit(t *testing.T) {
	s := load(t, "rules: [{id: a, key: [], limit: 50, window: 1s, tiers: {pro: 500, staff: unlimited}}]")
	var m Match
	require.NoError(t, s.Match(&fake{tier: "pro"}, 1, &m))
	require.Equal(t, int64(500), m.Checks[0].Limit.Limit)
	require.NoError(t, s.Match(&fake{tier: "none"}, 1, &m))
	require.Equal(t, int64(50), m.Checks[0].Limit.Limit)
	require.NoError(t, s.Match(&fake{tier: "staff"}, 1, &m))
	require.Empty(t, m.Checks)
}

// TestManyValues uses lists whose combinations fit no index.
func TestManyValues(t *testing.T) {
	var b bytes.Buffer
	list := func(format string, n int) string {
		b.Reset()
		for i := range n {
			fmt.Fprintf(&b, format+", ", i/200, i%200)
		}
		return strings.TrimSuffix(b.String(), ", ")
	}
	s := load(t, "rules: [{id: a, key: [], limit: 5, window: 1s, match: {"+
		"hosts: ["+list("h%d-%d.example.com", 3000)+"], paths: ["+list("/%d/%d/*", 4000)+"], "+
		"clients: ["+list("10.%d.%d.1", 5000)+"], methods: [GET, POST], headers: {X: a}}}]")
	r := &fake{
		client: netip.MustParseAddr("10.24.199.1"), host: "h14-199.example.com", path: "/19/199/x", method: "POST",
		headers: map[string][]string{"X": {"a"}},
	}
	require.Len(t, keys(t, s, r), 1)
	r.headers["X"] = []string{"a", "b"}
	require.Error(t, s.Match(r, 1, new(Match)))
	r.path = "/19/200"
	require.NoError(t, s.Match(r, 1, new(Match)))
	r.headers["X"] = []string{"a"}
	require.Empty(t, keys(t, s, r))
}

func TestResetLetsGo(t *testing.T) {
	s := load(t, "rules: [{id: a, key: [], limit: 5, window: 1s}]")
	var m Match
	require.NoError(t, s.Match(&fake{}, 1, &m))
	m.Reset()
	require.Nil(t, m.request.Request)
	require.Empty(t, m.Checks)
	require.Equal(t, limiter.Check{}, m.Checks[:1][0])
	require.Nil(t, m.Rules[:1][0])
}

func TestMatchAllocatesNothing(t *testing.T) {
	s := load(t, `rules:
  - {id: a, match: {hosts: ["*.example.com"], paths: [/api/*], methods: [GET], clients: [203.0.113.0/24]}, key: [client_ip, path, host, method, tier], limit: 5, window: 1s}
  - {id: b, match: {headers: {X-Plan: free, X-Zone: a}}, key: ["header:X-Plan", "cookie:s", "query:q"], missing: limit, limit: 5, window: 1s, cost: "header:X-Cost"}
  - {id: c, key: [], limit: 5, window: 1s, tiers: {pro: 7}}
  - {id: d, key: ["query:none"], limit: 5, window: 1s}
`)
	r := &fake{
		client: netip.MustParseAddr("203.0.113.7"), host: "API.example.com:443", path: "/api/" + strings.Repeat("é ", 20), method: "GET",
		tier: "pro", trusted: true,
		headers: map[string][]string{"X-Plan": {"free"}, "X-Zone": {"a"}, "X-Cost": {"3"}},
		cookies: map[string][]string{"s": {"secret"}},
	}
	var m Match
	allocs := testing.AllocsPerRun(100, func() {
		if err := s.Match(r, 1, &m); err != nil || len(m.Checks) != 3 {
			t.Fatal(err, len(m.Checks))
		}
	})
	require.LessOrEqual(t, allocs, dropped)
}

// hashedRequest is a request with hashes of secret values in place of the values.
type hashedRequest struct {
	*fake
	hashes map[string]string
}

func (r hashedRequest) Hash(part *KeyPart) []byte { return []byte(r.hashes[part.String()]) }

// A request with a value's hash finds the same counter as one with the value.
func TestHashesInPlaceOfSecrets(t *testing.T) {
	f := func(part, value string, has func(r *fake, value string)) {
		t.Helper()
		set := load(t, fmt.Sprintf("rules: [{id: r, key: [%q, host], limit: 1, window: 1m}]", part))
		plain := &fake{host: "a", headers: map[string][]string{}, cookies: map[string][]string{}, query: map[string][]string{}}
		require.Empty(t, keys(t, set, plain))
		hash := HashOf(part, value)
		require.True(t, IsHash(hash))
		want := keys(t, set, hashedRequest{plain, map[string]string{part: hash[1:]}})
		has(plain, value)
		require.Equal(t, want, keys(t, set, plain))
		require.Contains(t, want[0], hash)
		require.Equal(t, want, keys(t, set, hashedRequest{plain, map[string]string{part: HashOf(part, "another")[1:]}}), "a value counts")
	}
	f("header:X-Api-Key", "abc", func(r *fake, v string) { r.headers["X-Api-Key"] = []string{v} })
	f("header:Authorization", "bearer  abc", func(r *fake, v string) { r.headers["Authorization"] = []string{v} })
	f("cookie:sid", "abc", func(r *fake, v string) { r.cookies["sid"] = []string{v} })
	f("query:key", "abc", func(r *fake, v string) { r.query["key"] = []string{v} })
	for _, text := range []string{"", "~", "~ABCDEF", "~" + strings.Repeat("A", 32), "~" + strings.Repeat("a", 31), strings.Repeat("a", 33), "~" + strings.Repeat("g", 32)} {
		require.False(t, IsHash(text), text)
	}
}

// asking counts how often the host is read.
type asking struct {
	*fake
	hosts int
}

func (a *asking) Host() []byte { a.hosts++; return a.fake.Host() }

// The host is read once, and only if a rule needs it.
func TestHostIsReadWhenNeeded(t *testing.T) {
	f := func(rule string, want, checks int) {
		t.Helper()
		r := &asking{fake: &fake{client: netip.MustParseAddr("192.0.2.1"), host: "API.example.com:80", path: "/a", method: "GET"}}
		var m Match
		require.NoError(t, compiled(t, "rules: ["+rule+"]").Match(r, 1, &m))
		require.Len(t, m.Checks, checks)
		require.Equal(t, want, r.hosts)
	}
	f("{id: a, key: [client_ip], limit: 1, window: 1s}", 0, 1)
	f("{id: a, match: {paths: [/a]}, key: [method], limit: 1, window: 1s}", 0, 1)
	f("{id: a, key: [host], limit: 1, window: 1s}", 1, 1)
	f("{id: a, match: {hosts: [api.example.com]}, key: [host, path], limit: 1, window: 1s}", 1, 1)
	f("{id: a, match: {hosts: ['*.example.com']}, key: [client_ip], limit: 1, window: 1s}, {id: b, match: {hosts: [other.com]}, key: [host], limit: 1, window: 1s}", 1, 1)
	f("{id: a, match: {not: {hosts: [api.example.com]}}, key: [client_ip], limit: 1, window: 1s}", 1, 0)
}
