package edge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// A client must not make weir count by a header that the origin never sees.
func TestConnectionTakesNothingAwayThatDecides(t *testing.T) {
	seen := make(chan http.Header, 1)
	n := start(t, setup{
		rules: `
rules:
  - {id: keyed, match: {paths: [/]}, key: ["header:X-Tenant"], missing: limit, limit: 1000, window: 1h}
  - {id: session, match: {paths: [/cookie]}, key: ["cookie:session"], limit: 1000, window: 1h}
  - {id: planned, match: {paths: [/], headers: {X-Plan: free}}, key: [], limit: 1000, window: 1h}
  - {id: costly, match: {paths: [/]}, key: [], cost: "header:X-Cost", limit: 1000, window: 1h}
`,
		origin: func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header },
		config: func(c *config.Config) {
			c.TierHeader = "X-Tier"
			c.Upstreams = append(c.Upstreams, config.Upstream{URL: c.Upstreams[0].URL, Group: "other"})
			c.Routes = []config.Route{{Group: "other", Match: rules.Conditions{Headers: map[string]string{"X-Route": "a"}}}}
			c.Shedder.Document = settings(t, calm+`
user: ["header:X-User"]
classes:
  - {name: critical, max_in_flight: 99, match: [{headers: {X-Class: critical}}]}
  - {name: write, max_in_flight: 99}
  - {name: read, max_in_flight: 99}
  - {name: test, max_in_flight: 99}
`)
		},
	})
	get := func(headers ...string) []answer {
		return n.raw(lines(append([]string{"GET / HTTP/1.1", "Host: x", "X-Tenant: t", "X-Gone: 1", "X-Stays: 1"}, headers...)...))
	}
	refused := func(names string, headers ...string) {
		t.Helper()
		before := n.remaining("costly", "127.0.0.1")
		answers := get(append(headers, "Connection: close")...)
		require.Equal(t, []int{400}, statuses(answers), names)
		require.Contains(t, answers[0].body, names)
		require.Empty(t, seen)
		require.Equal(t, before, n.remaining("costly", "127.0.0.1"), "counted nothing")
	}
	for _, name := range []string{
		"X-Tenant", "X-Plan", "X-Cost", "X-Tier", "X-Route", "X-User", "X-Class", "Cookie", "Authorization", "X-Api-Key",
		"Host", "Content-Length", "Transfer-Encoding", "Forwarded", "X-Real-Ip", "X-Original-Url", "X-Rewrite-Url", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Other",
	} {
		for _, form := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			refused(form, "Connection: "+form)
			refused(form, "connection:X-Gone,keep-alive ,\t"+form+" ,")
			refused(form, "Connection: close", "CONNECTION: "+form) // fasthttp shows only the first of these
			refused(form, "Connection: close, "+form)
		}
	}

	for _, connection := range []string{"close", "Close, keep-alive", "X-Gone, close", "x-gone,close,upgrade,TE,HTTP2-Settings"} {
		require.Equal(t, []int{200}, statuses(get("Connection: "+connection, "Connection: close")), connection)
		got := <-seen
		require.Equal(t, strings.Contains(strings.ToLower(connection), "x-gone"), got.Get("X-Gone") == "", connection)
		require.Equal(t, "1", got.Get("X-Stays"))
		require.Equal(t, "t", got.Get("X-Tenant"))
	}

	// The active rules and settings decide which headers matter.
	refused("X-Tenant", "Connection: X-Tenant")
	n.replaceRules(`
rules:
  - {id: costly, match: {paths: [/]}, key: [], limit: 1000, window: 1h}
  - {id: stays, key: ["header:X-Stays"], limit: 1000, window: 1h}`)
	eventually(t, "the new rules are active", func() bool { _, ok := n.rules.Running().Set().Rule("keyed"); return !ok })
	refused("X-Stays", "Connection: X-Stays")
	require.Equal(t, []int{200}, statuses(get("Connection: X-Tenant", "Connection: close")))
	require.Empty(t, (<-seen).Get("X-Tenant"))
}
