package rules

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNot(t *testing.T) {
	s := load(t, `
rules:
  - id: a
    match: {paths: ["/api/*"], not: {clients: [203.0.113.0/24, "2001:db8::/32"], methods: [GET], headers: {x-monitor: "1"}}}
    key: []
    limit: 1
    window: 1s
`)
	f := func(counted int, change func(*fake)) {
		t.Helper()
		r := &fake{client: netip.MustParseAddr("203.0.113.9"), path: "/api/x", method: "GET", headers: map[string][]string{"X-Monitor": {"1"}}}
		change(r)
		require.Len(t, keys(t, s, r), counted)
		var m Match
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Match(r, 1, &m) }))
	}
	f(0, func(*fake) {})
	f(0, func(r *fake) { r.client = netip.MustParseAddr("::ffff:203.0.113.9") })
	f(0, func(r *fake) { r.client = netip.MustParseAddr("2001:db8::5") })
	f(0, func(r *fake) { r.method = "get" })
	f(0, func(r *fake) { r.path = "/other" })
	// All parts must match.
	f(1, func(r *fake) { r.client = netip.MustParseAddr("203.0.114.9") })
	f(1, func(r *fake) { r.method = "POST" })
	f(1, func(r *fake) { r.headers["X-Monitor"] = []string{"2"} })
	f(1, func(r *fake) { r.headers = nil })
	f(1, func(r *fake) { r.headers["X-Monitor"] = []string{"1", "1"} }) // no 400: it exempts nothing

	require.True(t, s.ReadsHeader("x-monitor"), "or Connection could hide it from the origin")
}
