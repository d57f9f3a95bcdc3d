package edge

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

func TestAdmin(t *testing.T) {
	n := start(t, setup{rules: perClient})
	for path, want := range map[string]string{
		"/":                         "DELETE /v1/limits",
		"/healthz":                  `"status": "ok"`,
		"/readyz":                   `"status": "ready"`,
		"/metrics":                  "weir_rules_info{version=",
		"/v1/rules":                 `"id": "per-client"`,
		"/debug/pprof/":             "goroutine",
		"/debug/pprof/cmdline":      "edge",
		"/debug/pprof/heap?debug=1": "heap profile",
		"/debug/pprof/symbol":       "num_symbols",
	} {
		a := n.operate("GET", path)
		require.Equal(t, 200, a.status, path)
		require.Contains(t, a.body, want, path)
		require.Equal(t, []string{"test-node"}, a.header.Values("Weir-Node"), path)
	}
	require.Contains(t, n.operate("GET", "/v1/rules").body, `"node": "test-node"`)
	for _, a := range []answer{n.operate("GET", "/nothing"), n.operate("POST", "/v1/rules"), n.operate("GET", "/v1/explain")} {
		require.Contains(t, []int{404, 405, 400}, a.status)
		require.Equal(t, "test-node", a.header.Get("Weir-Node"), a.status)
	}
	require.NotContains(t, n.get("/").header, "Weir-Node")
	for _, path := range []string{"/metrics", "/v1/rules", "/healthz", "/debug/pprof/"} {
		require.Equal(t, "ok", n.get(path).body, "the public side has no admin: %s is the origin's", path)
	}
}

// Browsers get a page at /, which loads and runs nothing of others; all else gets the list there.
func TestAdminPage(t *testing.T) {
	n := start(t, setup{rules: perClient})
	for path, want := range map[string]string{"/": "/assets/node.js", "/?client=203.0.113.7&path=/": "/assets/node.js", "/assets/node.js": "/v1/explain", "/assets/style.css": "color"} {
		a := n.operate("GET", path, "Accept: text/html,*/*;q=0.8")
		require.Equal(t, 200, a.status, path)
		require.Contains(t, a.body, want)
		require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'", path)
		require.Equal(t, "DENY", a.header.Get("X-Frame-Options"))
	}
	require.Contains(t, n.operate("GET", "/v1", "Accept: text/html").body, "DELETE /v1/limits")
	require.Equal(t, 404, n.operate("GET", "/assets/nothing").status)
	require.Equal(t, 404, n.operate("GET", "/assets/").status)
	require.Equal(t, 405, n.operate("POST", "/assets/node.js").status)
	require.Equal(t, 403, n.operate("GET", "/", "Accept: text/html", "Host: weir.attacker.example").status)
}

func TestAdminToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("correct horse\n"), 0o600))
	n := start(t, setup{config: func(c *config.Config) { c.Listen.AdminTokenFile = file }})
	for _, open := range []string{"/healthz", "/readyz"} {
		require.Equal(t, 200, n.operate("GET", open).status, open)
	}
	closed := func(path string, headers ...string) {
		t.Helper()
		a := n.operate("GET", path, headers...)
		require.Equal(t, 401, a.status)
		require.Equal(t, `Bearer realm="weir"`, a.header.Get("WWW-Authenticate"))
		require.NotContains(t, a.body, "horse")
		require.Equal(t, "test-node", a.header.Get("Weir-Node"))
	}
	for _, path := range []string{"/", "/assets/node.js", "/metrics", "/v1/rules", "/v1/explain", "/debug/pprof/", "/healthz/x", "//healthz"} {
		closed(path)
	}
	for _, h := range []string{"Bearer wrong", "Bearer ", "Bearer", "correct horse", "Basic Y29ycmVjdCBob3JzZQ==", "bearer correct horse"} {
		closed("/v1/rules", "Authorization: "+h)
	}
	require.Equal(t, 401, n.operate("DELETE", "/v1/limits?rule=x").status)
	require.Equal(t, 200, n.operate("GET", "/v1/rules", "Authorization: Bearer correct horse").status)

	require.NoError(t, os.WriteFile(file, []byte("next"), 0o600)) // changed under the running node
	closed("/v1/rules", "Authorization: Bearer correct horse")
	require.Equal(t, 200, n.operate("GET", "/v1/rules", "Authorization: Bearer next").status)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	closed("/v1/rules", "Authorization: Bearer ") // no token never means open to all
	lost := n.logs.lines(t, "listen.admin_token_file has no token; the admin listener refuses everyone")
	require.Len(t, lost, 1)
	require.Equal(t, file+" is empty", lost[0]["error"])
	require.NoError(t, os.Remove(file))
	closed("/v1/rules", "Authorization: Bearer next")
}

// Without the token the probe reports the status and nothing more.
func TestReadinessToStrangers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("horse"), 0o600))
	redis := testenv.Redis(t, testenv.Options{})
	blocked := filepath.Join(file, "rules.json") // nothing can be written below a file
	s := unreachable(t, blocked)
	consul := s.config
	s.redis, s.config = redis, func(c *config.Config) {
		consul(c)
		c.Listen.AdminTokenFile, c.Consul.Register = file, true
	}
	n := start(t, s)
	ask := func(n *node, headers ...string) (status int, state map[string]string) {
		a := n.operate("GET", "/readyz", headers...)
		require.NoError(t, json.Unmarshal([]byte(a.body), &state))
		return a.status, state
	}
	status, state := ask(n)
	require.Equal(t, 503, status)
	require.Equal(t, map[string]string{"status": "no rules", "rules_version": "none", "rules": "ok", "store": "ok", "consul": "away"}, state)
	redis.Kill()
	eventually(t, "the node notices", func() bool { return n.metric("weir_store_up") == 0 })
	_, state = ask(n, "Authorization: Bearer wrong")
	require.Equal(t, map[string]string{"status": "no rules", "rules_version": "none", "rules": "ok", "store": "away", "consul": "away"}, state)
	_, state = ask(n, "Authorization: Bearer horse")
	require.Contains(t, state["store"], redis.Addr)
	require.Contains(t, state["rules_cache"], file)
	require.Contains(t, state, "registration")

	n = start(t, setup{rules: ruleA, config: func(c *config.Config) { c.Listen.AdminTokenFile = file }})
	n.replaceRules(badRules)
	version := n.rules.State().Version()
	eventually(t, "a refusal", func() bool { _, state := ask(n); return state["rules"] == "refused" })
	status, state = ask(n)
	require.Equal(t, 200, status)
	require.Equal(t, map[string]string{"status": "ready", "rules_version": version, "rules": "refused"}, state)
	_, state = ask(n, "Authorization: Bearer horse")
	require.Contains(t, state["rules_refused"], "rules[0].limit")
}

func TestExplain(t *testing.T) {
	n := start(t, setup{clock: newClock(), rules: `
rules:
  - {id: per-client, key: [client_ip], limit: 2, window: 60s}
  - {id: keyed, match: {paths: ["/api/*"], methods: [POST]}, key: ["header:X-Api-Key", path], limit: 10, window: 60s}
  - {id: session, match: {hosts: [shop.example.com]}, key: ["cookie:sid"], limit: 5, window: 60s, mode: shadow}
  - {id: search, key: ["query:q"], limit: 7, window: 60s, tiers: {pro: 70}}
`, config: func(c *config.Config) { c.TierHeader = "X-Tier" }})
	a := n.operate("GET", "/v1/explain?client=203.0.113.7&method=POST&host=shop.example.com&path=/api/x%3Fq=1&header=x-api-key:+example&cookie=sid=1&tier=pro")
	require.Equal(t, 200, a.status, a.body)
	require.JSONEq(t, `{
		"client": "203.0.113.7", "rules_version": "`+n.rules.Running().Set().Version()+`", "verdict": "pass", "upstream": "default", "class": "write",
		"rules": [
			{"rule": "per-client", "mode": "enforce", "algorithm": "rolling_window", "key": "weir:{203.0.113.7}:per-client:rr", "cost": 1,
			 "limit": 2, "window": "1m0s", "allowed": true, "remaining": 2, "reset_after": "0s", "source": "memory"},
			{"rule": "keyed", "mode": "enforce", "algorithm": "rolling_window", "key": "weir:{~50d858e0985ecc7f60418aaf0cc5ab58}:keyed:rr:/api/x", "cost": 1,
			 "limit": 10, "window": "1m0s", "allowed": true, "remaining": 10, "reset_after": "0s", "source": "memory"},
			{"rule": "session", "mode": "shadow", "algorithm": "rolling_window", "key": "weir:{~6b86b273ff34fce19d6b804eff5a3f57}:session:rr", "cost": 1,
			 "limit": 5, "window": "1m0s", "allowed": true, "remaining": 5, "reset_after": "0s", "source": "memory"},
			{"rule": "search", "mode": "enforce", "algorithm": "rolling_window", "key": "weir:{~6b86b273ff34fce19d6b804eff5a3f57}:search:rr", "cost": 1,
			 "limit": 70, "window": "1m0s", "allowed": true, "remaining": 70, "reset_after": "0s", "source": "memory"}
		]}`, a.body)

	stated := n.operate("GET", "/v1/explain?client=203.0.113.7&method=POST&host=shop.example.com&path=/api/x%3Fq=1&header=x-api-key:+example&cookie=sid=1&header=X-Tier:pro")
	require.JSONEq(t, a.body, stated.body)

	// Hashes say the same of values that are secret.
	hashed := n.operate("GET", "/v1/explain?client=203.0.113.7&method=POST&host=shop.example.com&path=/api/x&tier=pro&hash=header:x-api-key:50d858e0985ecc7f60418aaf0cc5ab58&hash=cookie:sid:6b86b273ff34fce19d6b804eff5a3f57&hash=query:q:6b86b273ff34fce19d6b804eff5a3f57")
	require.JSONEq(t, a.body, hashed.body)

	for range 20 {
		require.EqualValues(t, 2, n.remaining("per-client", "127.0.0.1"), "explaining charges nothing")
	}
	a = n.operate("GET", "/v1/explain?client=203.0.113.7&path=/api/x&header=x-api-key:+example")
	require.Contains(t, strings.Join(strings.Fields(a.body), ""), `"other_methods":[{"rule":"keyed","methods":["POST"]}]`, "a GET is not counted by it")
	n.get("/")
	n.get("/")
	a = n.operate("GET", "/v1/explain?client=127.0.0.1")
	var e adminapi.Explanation
	require.NoError(t, json.Unmarshal([]byte(a.body), &e))
	require.Equal(t, "refuse, 429", e.Verdict)
	require.NotEmpty(t, e.RetryAfter)
	require.False(t, e.Rules[0].Allowed)
	require.Zero(t, n.metric(`weir_decisions_total{rule="per-client",outcome="limited",source="memory"}`), "nor is it counted")

	for query, want := range map[string]string{
		"":                              "client: must be given, as in client=203.0.113.7",
		"client=::1&hash=header:x:5":    `hash: must be header:NAME:HASH, cookie:NAME:HASH or query:NAME:HASH, with the first 32 hex digits of the value's SHA-256 (got "header:x:5")`,
		"client=nobody":                 `client: must be an IP address (got "nobody")`,
		"client=::1&pth=/x":             "pth: unknown; use client, method, host, path, tier, header, cookie or hash, or domain and entry for a call of Envoy",
		"client=::1&path=x":             `path: must begin with / (got "x")`,
		"client=::1&header=X":           `header: must be Name:value (got "X")`,
		"client=::1&cookie=X":           `cookie: must be name=value (got "X")`,
		"client=::1&path=/%3Fq=1%26q=2": `query parameter "q" occurs more than once; send it once`,
		"client=::1&method=POST&path=/api/x&header=X-Api-Key:a&header=x-api-key:b": `header "X-Api-Key" occurs more than once; send it once`,
	} {
		a := n.operate("GET", "/v1/explain?"+query)
		require.Equal(t, 400, a.status, query)
		var p struct{ Detail string }
		require.NoError(t, json.Unmarshal([]byte(a.body), &p))
		require.Equal(t, want, p.Detail, query)
	}
}

func TestResetLimits(t *testing.T) {
	for _, kind := range []string{"memory", "redis"} {
		t.Run(kind, func(t *testing.T) {
			s := setup{rules: ruleA}
			if kind == "redis" {
				s.redis = testenv.Redis(t, testenv.Options{})
			}
			n := start(t, s)
			require.Equal(t, 200, n.get("/").status)
			require.Equal(t, 429, n.get("/").status)
			a := n.operate("DELETE", "/v1/limits?rule=nothing&client=127.0.0.1")
			require.Equal(t, 400, a.status)
			require.Contains(t, a.body, `rule: must name one of the running rules (got \"nothing\")`)
			require.Equal(t, 400, n.operate("DELETE", "/v1/limits?rule=a").status)
			require.Equal(t, 405, n.operate("GET", "/v1/limits?rule=a&client=127.0.0.1").status)
			require.Equal(t, 200, n.operate("DELETE", "/v1/limits?rule=a&client=127.0.0.2").status)
			require.Equal(t, 429, n.get("/").status, "the reset count was another client's")

			a = n.operate("DELETE", "/v1/limits?rule=a&client=127.0.0.1")
			require.Equal(t, 200, a.status)
			require.JSONEq(t, `{"reset": ["weir:{127.0.0.1}:a:rr"]}`, a.body)
			require.Equal(t, 200, n.get("/").status)
			require.Equal(t, 429, n.get("/").status)
			require.Len(t, n.logs.lines(t, "limits reset"), 2)
		})
	}
	n := start(t, setup{rules: "rules: [{id: a, match: {paths: [/a]}, key: ['header:X-Tenant'], limit: 1, window: 1h}, {id: b, key: [], limit: 1, window: 1h, mode: off}]"})
	a := n.operate("DELETE", "/v1/limits?rule=a&client=127.0.0.1&path=/b")
	require.Equal(t, 404, a.status)
	require.Contains(t, a.body, "rule a does not count the described request; it counts those with path=/a, header=X-Tenant:…; /v1/explain shows which rules count a request")
	require.Contains(t, n.operate("DELETE", "/v1/limits?rule=b&client=127.0.0.1").body, "rule b does not count the described request; its mode is off; ")
}

func TestResetWhileRedisIsAway(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	n := start(t, setup{rules: ruleA, redis: redis})
	redis.Kill()
	a := n.operate("DELETE", "/v1/limits?rule=a&client=127.0.0.1")
	require.Equal(t, http.StatusBadGateway, a.status)
	require.Contains(t, a.body, "the shared counter is unchanged")
	eventually(t, "the node notices", func() bool {
		ready := n.operate("GET", "/readyz")
		require.Equal(t, 200, ready.status, "an unreachable store does not make the node unready")
		return !strings.Contains(ready.body, `"store": "ok"`)
	})
}

// A page in an operator's browser cannot reach the admin side through a host name of
// its own.
func TestAdminAnswersNoOtherSite(t *testing.T) {
	n := start(t, setup{config: func(c *config.Config) { c.Consul.AdvertiseAdmin = "edge-1.example.com" }})
	_, port, err := net.SplitHostPort(n.admin)
	require.NoError(t, err)
	for host, want := range map[string]int{
		n.admin: 200, "localhost:" + port: 200, "LOCALHOST": 200, "edge-1.example.com:" + port: 200, "[::1]:" + port: 200, "192.0.2.1": 200,
		"rebound.example:" + port: 403, "localhost.example": 403, "127.0.0.1.example": 403,
	} {
		require.Equal(t, want, n.operate("GET", "/v1/rules", "Host: "+host).status, host)
	}
	for site, want := range map[string]int{"same-origin": 200, "none": 200, "cross-site": 403, "same-site": 403} {
		for _, path := range []string{"/v1/rules", "/debug/pprof/cmdline"} {
			require.Equal(t, want, n.operate("GET", path, "Sec-Fetch-Site: "+site).status, "%s %s", site, path)
		}
	}
	for origin, want := range map[string]int{"http://" + n.admin: 204, "http://evil.example": 403, "null": 403, "https://localhost": 403} {
		status := n.operate("DELETE", "/v1/shedder", "Origin: "+origin).status
		require.Equal(t, want == 403, status == 403, origin)
	}
}

// Asking for readiness changes nothing and waits for nothing: nothing follows Consul here.
func TestReadinessOnlyReads(t *testing.T) {
	c := config.Dev("127.0.0.1:1")
	unreachable(t, filepath.Join(t.TempDir(), "rules.json")).config(c)
	c.Rules.Required, c.Shedder.Source = false, config.FromConsul
	require.NoError(t, c.Validate())
	e, err := New(c, "", discard())
	require.NoError(t, err)
	t.Cleanup(e.close)
	before := e.shedding.State()
	w := httptest.NewRecorder()
	e.admin.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Same(t, before, e.shedding.State())
}
