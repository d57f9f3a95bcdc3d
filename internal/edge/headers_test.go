package edge

import (
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/testenv"
)

const oneRule = `
rules:
  - id: per-client
    key: [client_ip]
    limit: 3
    window: 60s
`

func TestHeadersOfOneRule(t *testing.T) {
	now := newClock()
	n := start(t, setup{rules: oneRule, clock: now})
	for _, remaining := range []string{"2", "1", "0"} {
		a := n.get("/")
		require.Equal(t, 200, a.status)
		require.Equal(t, []string{`"per-client";q=3;w=60`}, a.header["Ratelimit-Policy"])
		require.Equal(t, []string{`"per-client";r=` + remaining + `;t=60`}, a.header["Ratelimit"])
		require.Empty(t, a.header["Retry-After"])
		require.Empty(t, a.header["X-Ratelimit-Limit"])
	}
	now.advance(18 * time.Second)
	a := n.get("/")
	require.Equal(t, 429, a.status)
	require.Equal(t, []string{`"per-client";q=3;w=60`}, a.header["Ratelimit-Policy"])
	require.Equal(t, []string{`"per-client";r=0;t=42`}, a.header["Ratelimit"])
	// The ring frees a place one millisecond after the window, and seconds round up.
	require.Contains(t, []string{"42", "43"}, a.header.Get("Retry-After"))
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.Equal(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
		`"title":"Too many requests","status":429,"violated-policies":["per-client"]}`, a.body)
	require.EqualValues(t, 3, n.asked.Load(), "a refused request must not reach the origin")

	now.advance(43 * time.Second)
	require.Equal(t, 200, n.get("/").status, "Retry-After was right")
}

func TestHeadersOfSeveralRules(t *testing.T) {
	now := newClock()
	n := start(t, setup{clock: now, rules: `
rules:
  - {id: per-client, key: [client_ip], limit: 2, window: 60s}
  - {id: watched, key: [client_ip], limit: 1, window: 60s, mode: shadow}
  - {id: at-once, key: [client_ip], algorithm: concurrency, limit: 5, window: 30s}
  - {id: everything, key: [], algorithm: token_bucket, limit: 10, window: 10s, burst: 2}
  - {id: elsewhere, match: {paths: [/elsewhere]}, key: [], limit: 1, window: 1s}
  - {id: sleeping, key: [], limit: 1, window: 1s, mode: "off"}
`})
	const policy = `"per-client";q=2;w=60, "at-once";q=5;qu="concurrent-requests", "everything";q=10;w=10`
	a := n.get("/")
	require.Equal(t, 200, a.status)
	require.Equal(t, []string{policy}, a.header["Ratelimit-Policy"], "rules in shadow are not shown")
	require.Equal(t, []string{`"per-client";r=1;t=60, "at-once";r=4, "everything";r=1;t=1`}, a.header["Ratelimit"])

	require.Equal(t, 200, n.get("/").status, "shadow refuses nothing")
	a = n.get("/")
	require.Equal(t, 429, a.status)
	require.Equal(t, []string{`"per-client";q=2;w=60, "everything";q=10;w=10, "at-once";q=5;qu="concurrent-requests"`}, a.header["Ratelimit-Policy"], "those that refuse come first")
	require.Contains(t, a.header.Get("Ratelimit"), `"everything";r=0;t=1`)
	require.Contains(t, a.body, `"violated-policies":["per-client","everything"]`)
	require.Contains(t, []string{"60", "61"}, a.header.Get("Retry-After"), "the longer of the two waits")
}

func TestUngovernedRequestsAreLeftAlone(t *testing.T) {
	n := start(t, setup{rules: "rules: [{id: api, match: {paths: [/api]}, key: [], limit: 1, window: 1s}]",
		config: func(c *config.Config) { c.LegacyHeaders = true }, origin: limitingOrigin})
	a := n.get("/other")
	require.Equal(t, []string{`"origin";r=7;t=7`}, a.header["Ratelimit"], "the origin's own header stays")
	require.Equal(t, []string{"777"}, a.header["X-Ratelimit-Limit"])
}

func limitingOrigin(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h["ratelimit"] = []string{`"origin";r=7;t=7`}
	h["RATELIMIT-POLICY"] = []string{`"origin";q=777;w=7`}
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		h[name] = []string{"777"}
	}
	_, _ = io.WriteString(w, "ok")
}

func TestOriginsLimitHeadersAreReplaced(t *testing.T) {
	n := start(t, setup{rules: oneRule, clock: newClock(), origin: limitingOrigin,
		config: func(c *config.Config) { c.LegacyHeaders = true }})
	a := n.get("/")
	require.Equal(t, []string{`"per-client";q=3;w=60`}, a.header["Ratelimit-Policy"])
	require.Equal(t, []string{`"per-client";r=2;t=60`}, a.header["Ratelimit"])
	require.Equal(t, []string{"3"}, a.header["X-Ratelimit-Limit"])
	require.Equal(t, []string{"2"}, a.header["X-Ratelimit-Remaining"])
	require.Equal(t, []string{"60"}, a.header["X-Ratelimit-Reset"])
}

func TestLegacyHeadersSpeakOfTheScarcestRule(t *testing.T) {
	n := start(t, setup{clock: newClock(), config: func(c *config.Config) { c.LegacyHeaders = true }, rules: `
rules:
  - {id: roomy, key: [client_ip], limit: 100, window: 60s}
  - {id: scarce, key: [client_ip], limit: 4, window: 30s}
  - {id: watched, key: [client_ip], limit: 2, window: 10s, mode: shadow}
`})
	a := n.get("/")
	require.Equal(t, "4", a.header.Get("X-RateLimit-Limit"))
	require.Equal(t, "3", a.header.Get("X-RateLimit-Remaining"))
	require.Equal(t, "30", a.header.Get("X-RateLimit-Reset"))
}

func TestConcurrencyRefusalHasARetryAfter(t *testing.T) {
	hold := make(chan struct{})
	n := start(t, setup{rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 1, window: 60s}]",
		origin: func(http.ResponseWriter, *http.Request) { <-hold }})
	first := make(chan int)
	go func() {
		resp, err := n.client.Get("http://" + n.public + "/")
		if err != nil {
			first <- 0
			return
		}
		resp.Body.Close()
		first <- resp.StatusCode
	}()
	eventually(t, "the first request holds the slot", func() bool { return n.asked.Load() == 1 })
	a := n.get("/")
	close(hold)
	require.Equal(t, 429, a.status)
	require.Equal(t, "1", a.header.Get("Retry-After"), "a slot may come free any moment")
	require.Equal(t, `"slots";r=0`, a.header.Get("RateLimit"))
	require.Equal(t, 200, <-first)
}

func TestStoreFailurePolicies(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	n := start(t, setup{redis: redis, config: func(c *config.Config) { c.Store.Nodes = new(2) }, rules: `
rules:
  - {id: strict, match: {paths: [/strict]}, key: [client_ip], limit: 100, window: 1h, on_store_failure: closed}
  - {id: lax, match: {paths: [/lax]}, key: [client_ip], limit: 1, window: 1h, on_store_failure: open}
  - {id: own, match: {paths: [/own]}, key: [client_ip], limit: 3, window: 1h}
`})
	require.Equal(t, 200, n.get("/strict").status)
	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="strict",outcome="allowed",source="redis"}`))
	redis.Kill()

	a := n.get("/strict")
	require.Equal(t, 503, a.status)
	require.Equal(t, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
		`"title":"The rate limiter is unavailable","status":503}`, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	require.True(t, wait >= 1 && wait <= 5, "jittered, got %d", wait)

	for range 20 {
		require.Equal(t, 200, n.get("/lax").status, "open never refuses")
	}
	// This node's share of 3 between two nodes is 2.
	require.Equal(t, 200, n.get("/own").status)
	require.Equal(t, 200, n.get("/own").status)
	require.Equal(t, 429, n.get("/own").status)

	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="strict",outcome="error",source="fallback"}`))
	require.EqualValues(t, 20, n.metric(`weir_decisions_total{rule="lax",outcome="error",source="fallback"}`))
	require.EqualValues(t, 2, n.metric(`weir_decisions_total{rule="own",outcome="allowed",source="fallback"}`))
	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="own",outcome="limited",source="fallback"}`))
	eventually(t, "the loss shows", func() bool {
		require.Equal(t, 200, n.get("/lax").status)
		return n.metric("weir_store_up") == 0
	})

	redis.Start()
	eventually(t, "the store is back", func() bool { return n.metric("weir_store_up") == 1 })
	require.Equal(t, 200, n.get("/strict").status)
	require.EqualValues(t, 2, n.metric(`weir_decisions_total{rule="strict",outcome="allowed",source="redis"}`))
	require.Equal(t, 200, n.get("/own").status, "a fallback's refusal ends with the outage")
}

func TestHeadersOfABucketAgree(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "leaky_bucket"} {
		n := start(t, setup{clock: newClock(), config: func(c *config.Config) { c.LegacyHeaders = true }, rules: `
rules: [{id: bucket, key: [client_ip], algorithm: ` + algorithm + `, limit: 2, window: 10s, burst: 4}]`})
		a := n.get("/")
		require.Equal(t, `"bucket";q=2;w=10`, a.header.Get("RateLimit-Policy"))
		require.Regexp(t, `^"bucket";r=2;t=\d+$`, a.header.Get("RateLimit"), "r is at most q")
		require.Equal(t, "2", a.header.Get("X-RateLimit-Remaining"))
		for a.status == 200 {
			a = n.get("/")
		}
		require.Equal(t, "5", a.header.Get("Retry-After"))
		require.Equal(t, `"bucket";r=0;t=5`, a.header.Get("RateLimit"), "t is no later than Retry-After")
		require.Equal(t, "5", a.header.Get("X-RateLimit-Reset"))
	}
}
