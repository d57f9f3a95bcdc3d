package rules

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatcher(t *testing.T) {
	m, err := NewMatcher([]Conditions{
		{Paths: []string{"/search/*"}},
		{Methods: []string{"POST", "PUT"}, Hosts: []string{"*.example.com"}},
		{Headers: map[string]string{"x-plan": "free", "X-Other": "1"}},
		{Clients: []string{"203.0.113.0/24"}},
		{},
	})
	require.NoError(t, err)
	var scratch Match
	f := func(want []int32, change func(*fake)) {
		t.Helper()
		r := plainRequest()
		change(r)
		require.Equal(t, want, m.Find(r, &scratch))
	}
	f([]int32{4}, func(*fake) {})
	f([]int32{0, 4}, func(r *fake) { r.path = "/search/x" })
	f([]int32{0, 1, 3, 4}, func(r *fake) {
		r.path, r.method, r.host, r.client = "/search/x", "post", "API.Example.com:80", netip.MustParseAddr("::ffff:203.0.113.9")
	})
	f([]int32{2, 4}, func(r *fake) { r.headers = map[string][]string{"X-Plan": {"free"}, "X-Other": {"1"}} })
	f([]int32{4}, func(r *fake) { r.headers = map[string][]string{"X-Plan": {"free"}} })
	// A repeated header meets no condition, whichever value counts elsewhere.
	f([]int32{4}, func(r *fake) { r.headers = map[string][]string{"X-Plan": {"free", "free"}, "X-Other": {"1"}} })
	f([]int32{4}, func(r *fake) { r.headers = map[string][]string{"X-Plan": {"free"}, "X-Other": {"1", "2"}} })

	s := load(t, "rules: [{id: a, match: {hosts: [example.com]}, key: [method], limit: 5, window: 1s}]")
	r := plainRequest()
	r.path, r.method, r.host = "/search/x", "post", "Example.com:80"
	require.NoError(t, s.Match(r, 1, &scratch))
	require.Equal(t, []int32{0, 4}, m.FindAgain(&scratch))
	require.Equal(t, "weir:{POST}:a:rr", string(scratch.Checks[0].Key), "the checks stay")
	r.path = "/other"
	require.NoError(t, s.Match(r, 1, &scratch))
	require.Equal(t, []int32{4}, m.FindAgain(&scratch))

	none, err := NewMatcher(nil)
	require.NoError(t, err)
	require.Empty(t, none.Find(plainRequest(), &scratch))
}

func TestMatcherNamesTheFault(t *testing.T) {
	_, err := NewMatcher([]Conditions{
		{Paths: []string{"/ok"}},
		{Methods: []string{"get"}},
		{Paths: []string{"x", "*"}, Headers: map[string]string{"X-A": ""}, Clients: []string{"10.0.0.1/8"}, Hosts: []string{}},
	})
	require.EqualError(t, err, `[1].methods[0]: must be in upper case; write GET
[2].hosts: is empty and would match nothing; name at least one value, or remove it
[2].paths[0]: must begin with / (got "x")
[2].paths[1]: would match every path; remove paths, or write /* for all paths that begin with /
[2].clients[0]: has bits set beyond the network; write 10.0.0.0/8 for the network, or 10.0.0.1 for the one address (got "10.0.0.1/8")
[2].headers.X-A: must not be empty; give the value that the header must have`)
	many := make([]Conditions, maxHeaderNames+1)
	for i := range many {
		many[i].Headers = map[string]string{"X-" + string(rune('A'+i%26)) + string(rune('a'+i/26)): "1"}
	}
	_, err = NewMatcher(many)
	require.EqualError(t, err, "document: uses more than 32 different headers; each is looked up for every request (got 33)")
	_, err = NewMatcher(make([]Conditions, MaxRules+1))
	require.ErrorContains(t, err, "has more than 10000 conditions (got 10001)")
}

func TestMatcherAllocatesNothing(t *testing.T) {
	m, err := NewMatcher([]Conditions{
		{Paths: []string{"/search/*"}}, {Methods: []string{"GET"}}, {Headers: map[string]string{"X-Plan": "free"}},
	})
	require.NoError(t, err)
	parts, err := ParseKey([]string{"header:X-Api-Key", "client_ip", "path"})
	require.NoError(t, err)
	r := plainRequest()
	r.path = "/search/x"
	var request Request = r
	var scratch Match
	var b []byte
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if len(m.Find(request, &scratch)) != 2 {
			panic("not found")
		}
		b = b[:0]
		for _, p := range parts {
			b = p.Append(b, request)
		}
	}))
}

func TestKeyPartsOfARequest(t *testing.T) {
	r := plainRequest()
	r.client = netip.MustParseAddr("2001:db8:1:2:3:4:5:6")
	r.headers = map[string][]string{"X-Api-Key": {"k"}, "X-Twice": {"a", "b"}}
	f := func(want string, key ...string) {
		t.Helper()
		parts, err := ParseKey(key)
		require.NoError(t, err)
		var b []byte
		for _, p := range parts {
			b = p.Append(b, r)
		}
		require.Equal(t, want, string(b))
	}
	f("")
	f("2001:db8:1:2::/64", "client_ip")
	f("k", "header:x-api-key", "header:X-Twice", "header:X-None", "cookie:c", "query:q")
	_, err := ParseKey([]string{"client_ip", "heder:X"})
	require.EqualError(t, err, `[1]: unknown key part "heder:X"; did you mean header?`)
}

func plainRequest() *fake {
	return &fake{client: netip.MustParseAddr("192.0.2.1"), host: "localhost", path: "/", method: "GET"}
}
