package edge

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/testenv"
)

const gatewayRules = `
rules:
  - {id: api, match: {paths: ["/api/*"]}, key: [client_ip], limit: 3, window: 1h}
  - {id: keyed, match: {paths: [/keyed]}, key: ["header:X-Api-Key"], limit: 3, window: 1h}
  - {id: tiers, match: {paths: [/tiers]}, key: [client_ip], limit: 1, window: 1h, tiers: {pro: 100}}
  - {id: hosted, match: {hosts: [api.example.com], methods: [POST]}, key: [], limit: 3, window: 1h}
  - {id: slots, match: {paths: [/slots]}, key: [client_ip], algorithm: concurrency, limit: 3, window: 1h}
  - {id: shadow-slots, match: {paths: [/shadow]}, key: [client_ip], algorithm: concurrency, limit: 3, window: 1h, mode: shadow}
  - {id: after-slots, match: {paths: [/shadow]}, key: [client_ip], limit: 3, window: 1h}
`

// gatewayNode answers gateways on this machine at n.decide.
func gatewayNode(t *testing.T, s setup) (n *node, ask func(path string, headers ...string) answer) {
	t.Helper()
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(testenv.FreePorts(t, 1)[0]))
	change := s.config
	s.config = func(c *config.Config) {
		c.Listen.Decide = &config.Decide{Address: address, From: []string{"127.0.0.1"}}
		if change != nil {
			change(c)
		}
	}
	n = start(t, s)
	return n, func(path string, headers ...string) answer { return n.ask("GET", "http://"+address+path, headers...) }
}

// caddy is what Caddy and Traefik send; nginx is what our configuration makes nginx send.
func caddy(client, method, uri string, more ...string) []string {
	return append([]string{"X-Forwarded-For: " + client, "X-Forwarded-Method: " + method, "X-Forwarded-Uri: " + uri,
		"X-Forwarded-Host: shop.example.com", "X-Forwarded-Proto: https"}, more...)
}

func nginx(client, method, uri string, more ...string) []string {
	return append([]string{"X-Forwarded-For: " + client, "X-Original-Method: " + method, "X-Original-URI: " + uri, "X-Original-Host: shop.example.com"}, more...)
}

func TestGatewaysAsk(t *testing.T) {
	n, ask := gatewayNode(t, setup{rules: gatewayRules})
	for i, form := range []func(string, string, string, ...string) []string{caddy, nginx} {
		client := fmt.Sprintf("203.0.113.%d", i)
		a := ask(gateway.Path, form("198.51.100.1, "+client, "GET", "/api/x?y=z")...)
		require.Equal(t, 204, a.status, a.body)
		require.Equal(t, `"api";r=2;t=3600`, a.header.Get("RateLimit"))
		require.Equal(t, `"api";q=3;w=3600`, a.header.Get("RateLimit-Policy"))
		require.Empty(t, a.body)
		require.EqualValues(t, 2, n.explained("api", client, "&path=/api/x").Remaining, "only the last address is the gateway's word")
		for range 2 {
			require.Equal(t, 204, ask(gateway.Path, form(client, "GET", "/api/x")...).status)
		}
		a = ask(gateway.Path, form(client, "POST", "/api/x")...)
		require.Equal(t, 429, a.status)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.Contains(t, a.body, `"violated-policies":["api"]`)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Equal(t, `"api";q=3;w=3600`, a.header.Get("RateLimit-Policy"))

		refused := ask(gateway.PathNginx, form(client, "POST", "/api/x")...)
		require.Equal(t, 403, refused.status, "nginx makes 500 of others")
		require.Equal(t, "429", refused.header.Get("Weir-Status"))
		require.Equal(t, a.body, refused.header.Get("Weir-Problem"))
		require.NotEmpty(t, refused.header.Get("Retry-After"))
		require.Equal(t, 204, ask(gateway.PathNginx, form(client, "GET", "/free")...).status)
	}
	require.Equal(t, 204, ask(gateway.Path, caddy("203.0.113.9", "OPTIONS", "*")...).status)
	require.Zero(t, n.asked.Load(), "nothing is forwarded")

	// Rules see the client's request, not the gateway's.
	require.Equal(t, `"keyed";r=2;t=3600`, ask(gateway.Path, caddy("203.0.113.9", "GET", "/keyed", "X-Api-Key: one")...).header.Get("RateLimit"))
	hosted := []string{"X-Forwarded-For: 203.0.113.9", "X-Forwarded-Method: POST", "X-Forwarded-Uri: /", "X-Forwarded-Host: API.example.com:8443"}
	require.Equal(t, `"hosted";r=2;t=3600`, ask(gateway.Path, hosted...).header.Get("RateLimit"))

	require.EqualValues(t, 2, n.metric(`weir_gateway_answers_total{protocol="http",answer="limited"}`)/2)
	require.EqualValues(t, 11, n.metric(`weir_gateway_answers_total{protocol="http",answer="pass"}`))
	require.EqualValues(t, 15, n.metric(`weir_gateway_seconds{protocol="http"}`))
	require.Zero(t, n.metric("weir_requests_total{code_class=\"2xx\"}"), "they are not requests of clients")
}

// A gateway takes an answer that exceeds its buffer, 4 KiB in nginx, for a failed node, and lets the
// request pass. So answers list only as many rules as fit, first those that refuse.
func TestGatewaysAnswersFitBuffers(t *testing.T) {
	rules := "rules:\n"
	for i := range 100 {
		limit := map[bool]int{true: 1, false: 1_000_000_000}[i == 99]
		rules += fmt.Sprintf("  - {id: %s-%02d, match: {paths: [/last]}, key: [client_ip], limit: %d, window: 720h, algorithm: fixed_window}\n", strings.Repeat("x", 56), i, limit)
		rules += fmt.Sprintf("  - {id: %s-%02d, match: {paths: [/refused]}, key: [client_ip], limit: 1, window: 720h, algorithm: fixed_window}\n", strings.Repeat("y", 56), i)
	}
	n, ask := gatewayNode(t, setup{rules: rules, config: func(c *config.Config) { c.LegacyHeaders = true }})
	fits := func(a answer) answer {
		t.Helper()
		size := len("HTTP/1.1 503 Service Unavailable\r\n\r\n")
		for name, values := range a.header {
			for _, v := range values {
				size += len(name) + len(": ") + len(v) + len("\r\n")
			}
		}
		require.Less(t, size, 4<<10)
		item := `"[xy]{56}-\d\d"`
		require.Regexp(t, "^"+item+`;q=\d+;w=2592000(, `+item+`;q=\d+;w=2592000)*$`, a.header.Get("RateLimit-Policy"))
		require.Regexp(t, "^"+item+`;r=\d+;t=\d+(, `+item+`;r=\d+;t=\d+)*$`, a.header.Get("RateLimit"))
		require.Greater(t, strings.Count(a.header.Get("RateLimit-Policy"), "w="), 9)
		return a
	}
	for _, path := range []string{gateway.Path, gateway.PathNginx} {
		fits(ask(path, nginx("203.0.113.1", "GET", "/last")...))
		fits(ask(path, nginx("203.0.113.1", "GET", "/refused")...))
	}
	a := fits(ask(gateway.PathNginx, nginx("203.0.113.1", "GET", "/last")...))
	require.Equal(t, "429", a.header.Get("Weir-Status"))
	require.Regexp(t, `^"x{56}-99";q=1;w=2592000, "x{56}-00";`, a.header.Get("RateLimit-Policy"))
	require.Regexp(t, `^"x{56}-99";r=0;t=`, a.header.Get("RateLimit"))
	a = fits(ask(gateway.PathNginx, nginx("203.0.113.1", "GET", "/refused")...))
	require.Equal(t, "429", a.header.Get("Weir-Status"))
	require.Regexp(t, `"violated-policies":\["y{56}-00"(,"y{56}-\d\d"){9,}\]}$`, a.header.Get("Weir-Problem"))
	fits(n.get("/refused"))
	fits(n.get("/refused"))
}

// A tier counts only from a gateway that is a trusted proxy, too: others forward what clients send.
func TestGatewaysTiers(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		_, ask := gatewayNode(t, setup{rules: gatewayRules, config: func(c *config.Config) {
			c.TierHeader = "X-Tier"
			if trusted {
				c.TrustedProxies = []string{"127.0.0.1"}
			}
		}})
		policy := map[bool]string{false: `"tiers";q=1;w=3600`, true: `"tiers";q=100;w=3600`}[trusted]
		a := ask(gateway.Path, caddy("203.0.113.1", "GET", "/tiers", "X-Tier: pro")...)
		require.Equal(t, policy, a.header.Get("RateLimit-Policy"))
	}
}

// What a gateway leaves unclear is refused, and nothing is charged.
func TestGatewaysMustBeClear(t *testing.T) {
	n, ask := gatewayNode(t, setup{rules: gatewayRules, config: func(c *config.Config) { c.Server.Paths = config.PathsStrict }})
	const client = "203.0.113.1"
	without := func(name string) (headers []string) {
		for _, h := range caddy(client, "GET", "/api/x") {
			if !strings.HasPrefix(h, name) {
				headers = append(headers, h)
			}
		}
		return headers
	}
	with := func(more ...string) []string { return caddy(client, "GET", "/api/x", more...) }
	for _, c := range []struct {
		headers []string
		fault   string
	}{
		{without("X-Forwarded-Method"), "X-Original-Method or X-Forwarded-Method is required"},
		{without("X-Forwarded-Uri"), "X-Original-Uri or X-Forwarded-Uri is required"},
		{without("X-Forwarded-Host"), "X-Original-Host or X-Forwarded-Host is required"},
		{without("X-Forwarded-For"), "X-Forwarded-For is required"},
		{append(without("X-Forwarded-Uri"), "X-Forwarded-Uri: "), "X-Original-Uri or X-Forwarded-Uri is required"},
		{with("X-Forwarded-Method: GET"), "X-Forwarded-Method occurs twice"},
		{with("X-Forwarded-Uri: /free"), "X-Forwarded-Uri occurs twice"},
		{with("X-Forwarded-For: 203.0.113.2"), "X-Forwarded-For occurs twice"},
		{with("X-Original-URI: /free"), "X-Original-Uri and X-Forwarded-Uri differ"},
		{with("X-Original-Method: POST"), "X-Original-Method and X-Forwarded-Method differ"},
		{with("X-Original-Host: other"), "X-Original-Host and X-Forwarded-Host differ"},
		{caddy(client+", unknown", "GET", "/api/x"), "X-Forwarded-For must end in the address"},
		{caddy("unix:", "GET", "/api/x"), "X-Forwarded-For must end in the address"},
		{caddy(client, "G(ET", "/api/x"), "the method is not one of HTTP's"},
		{caddy(client, strings.Repeat("X", 33), "/api/x"), "the method is not one of HTTP's"},
		{caddy(client, "GET", "/api/x#y"), "the request target has a fragment"},
		{caddy(client, "GET", "/api/x y"), "the request target has a control character or a space"},
		{caddy(client, "GET", "*"), "the request target * is for OPTIONS only"},
		{caddy(client, "GET", "api/x"), "path"},
		{caddy(client, "GET", "http://shop.example.com/api/x"), "path"},
		{caddy(client, "GET", "/api/%2e%2e/x"), "the path can be read in several ways"},
		{append(without("X-Forwarded-Host"), "X-Forwarded-Host: a b"), "the host is neither a name nor an address"},
		{caddy(client, "GET", "/keyed", "X-Api-Key: one", "X-Api-Key: two"), "X-Api-Key"},
	} {
		a := ask(gateway.Path, c.headers...)
		require.Equal(t, 400, a.status, "%v: %s", c.headers, a.body)
		require.Contains(t, a.body, c.fault)
		a = ask(gateway.PathNginx, c.headers...)
		require.Equal(t, 403, a.status)
		require.Equal(t, "400", a.header.Get("Weir-Status"))
		require.Contains(t, a.header.Get("Weir-Problem"), c.fault)
	}
	require.EqualValues(t, 3, n.explained("api", client, "&path=/api/x").Remaining, "nothing was charged")
	require.Equal(t, 204, ask(gateway.Path, with("X-Original-URI: /api/x", "X-Original-Method: ")...).status, "the same twice is clear")
	require.Equal(t, 404, ask("/", with()...).status)
	address := n.config.Listen.Decide.Address
	require.Equal(t, 405, n.ask("POST", "http://"+address+gateway.Path, with()...).status)
	require.Equal(t, 204, n.ask("HEAD", "http://"+address+gateway.Path, with()...).status)
	answers, err := rawExchange(address, lines(append([]string{"GET /v1/decide HTTP/1.1", "Host: weir", "Content-Length: 4"}, with()...)...)+"body")
	require.NoError(t, err)
	require.Equal(t, []int{413}, statuses(answers))
	require.Contains(t, answers[0].body, "must forward neither a body nor a Content-Length")
	require.EqualValues(t, 1, n.explained("api", client, "&path=/api/x").Remaining)
}

// lookAlikes are headers that an origin may read as one that weir sets or consults.
var lookAlikes = []string{"x_api_key", "x-api_key", "x.api.key", "x_forwarded_for", "x-forwarded_proto", "x_real_ip", "content_length"}

const lookAlikeRules = gatewayRules + "  - {id: odd, match: {paths: [/api/x]}, key: [\"header:X_Odd\"], limit: 1000, window: 1h}\n"

// No client evades a rule by a header that the origin takes for the rule's, or by one that it
// sends twice. Nothing is charged.
func TestGatewaysSeeHeadersAsTheOrigin(t *testing.T) {
	n, _ := gatewayNode(t, setup{rules: lookAlikeRules + `
  - {id: agent, match: {paths: [/agent]}, key: ["header:User-Agent"], limit: 3, window: 1h}
  - {id: type, match: {paths: [/agent]}, key: ["header:Content-Type"], missing: limit, limit: 3, window: 1h}
`})
	const client = "203.0.113.1"
	ask := func(at, path string, headers ...string) answer {
		t.Helper()
		answers, err := rawExchange(n.config.Listen.Decide.Address, lines(append([]string{"GET " + at + " HTTP/1.1", "Host: weir", "Connection: close"}, caddy(client, "GET", path, headers...)...)...))
		require.NoError(t, err)
		require.Len(t, answers, 1)
		return answers[0]
	}
	refused := func(fault, path string, headers ...string) {
		t.Helper()
		a := ask(gateway.Path, path, headers...)
		require.Equal(t, 400, a.status, "%v", headers)
		require.Contains(t, a.body, fault)
		a = ask(gateway.PathNginx, path, headers...)
		require.Equal(t, "400", a.header.Get("Weir-Status"))
	}
	for _, name := range lookAlikes {
		refused(name, "/api/x", strings.ToUpper(name)+": 1")
	}
	refused("User-Agent", "/agent", "User-Agent: a", "user-agent: b")
	refused("Content-Type", "/agent", "User-Agent: a", "Content-Type: a", "Content-Type: b")
	require.Equal(t, `"agent";r=2;t=3600, "type";r=2;t=3600`, ask(gateway.Path, "/agent", "User-Agent: a").header.Get("RateLimit"), "once is counted")
	require.Equal(t, 204, ask(gateway.Path, "/api/x", "User-Agent: a", "User-Agent: b", "X_Odd: 1", "X_Other: 1", "My.Header: 1").status, "no rule reads these")
	require.EqualValues(t, 2, n.explained("api", client, "&path=/api/x").Remaining)
}

// A question that is too long gets an answer: a gateway whose question gets none may let the
// request pass.
func TestGatewaysLongHeaders(t *testing.T) {
	n, ask := gatewayNode(t, setup{rules: gatewayRules})
	const client = "203.0.113.1"
	f := func(size, want int) {
		t.Helper()
		long := "X-Long: " + strings.Repeat("x", size)
		a := ask(gateway.Path, caddy(client, "GET", "/api/x", long)...)
		require.Equal(t, want, a.status, size)
		if a = ask(gateway.PathNginx, nginx(client, "GET", "/api/x", long)...); want == 431 {
			require.Equal(t, 403, a.status, size)
			require.Equal(t, "431", a.header.Get("Weir-Status"))
			require.Contains(t, a.header.Get("Weir-Problem"), `"status":431`)
		} else {
			require.Equal(t, want, a.status, size)
		}
	}
	f(23<<10, 204)
	f(24<<10, 431)
	f(48<<10, 431)
	require.EqualValues(t, 1, n.explained("api", client, "&path=/api/x").Remaining, "only what was answered 204 is charged")
	answers, err := rawExchange(n.config.Listen.Decide.Address, lines(append([]string{"GET /v1/decide HTTP/1.1", "Host: weir", "X-Long: " + strings.Repeat("x", 80<<10)}, caddy(client, "GET", "/api/x")...)...))
	require.NoError(t, err)
	require.Equal(t, []int{431}, statuses(answers))
}

// A peer that is not a gateway cannot name a client, and nothing is charged.
func TestGatewaysOnly(t *testing.T) {
	n, ask := gatewayNode(t, setup{rules: gatewayRules, config: func(c *config.Config) { c.Listen.Decide.From = []string{"10.0.0.0/8"} }})
	for _, path := range []string{gateway.Path, gateway.PathNginx} {
		a := ask(path, caddy("203.0.113.1", "GET", "/api/x")...)
		require.Equal(t, 403, a.status)
		require.Contains(t, a.body, "listen.decide.from")
		require.Empty(t, a.header.Get("Weir-Status"))
	}
	require.EqualValues(t, 2, n.metric(`weir_gateway_answers_total{protocol="http",answer="unauthenticated"}`))
	require.EqualValues(t, 3, n.explained("api", "203.0.113.1", "&path=/api/x").Remaining)
}

func TestGatewaysWithCertificates(t *testing.T) {
	files, gateways := testenv.Certificates(t), testenv.NewAuthority(t)
	good := gateways.Issue(time.Hour, "gateway")
	n, _ := gatewayNode(t, setup{rules: gatewayRules, config: func(c *config.Config) {
		c.Listen.Decide.From = nil
		c.Listen.Decide.TLS = &config.MutualTLS{Pair: pairOf(files), ClientCAFile: good.CAFile}
	}})
	ask := func() int {
		return n.ask("GET", "https://"+n.config.Listen.Decide.Address+gateway.Path, caddy("203.0.113.1", "GET", "/api/x")...).status
	}
	n.speak(files.ClientConfig(t))
	require.Equal(t, 403, ask(), "no certificate")
	n.speak(showing(t, files.ClientConfig(t), good))
	require.Equal(t, 204, ask())
	require.NotZero(t, n.metric(`weir_certificate_expiry_seconds{listener="decide",file="`+files.CertFile+`"}`))
}

// A gateway does not report when a request ends, so rules that limit concurrency are refused:
// their slots would never be returned.
func TestGatewaysHoldNoSlots(t *testing.T) {
	_, ask := gatewayNode(t, setup{rules: gatewayRules})
	a := ask(gateway.Path, caddy("203.0.113.1", "GET", "/slots")...)
	require.Equal(t, 500, a.status)
	require.Contains(t, a.body, "rule slots limits concurrent requests, and the gateway does not say when a request ends")
	for i := range 4 {
		want := 204
		if i == 3 {
			want = 429
		}
		a := ask(gateway.Path, caddy("203.0.113.1", "GET", "/shadow")...)
		require.Equal(t, want, a.status, "shadow rules change no answer")
		require.Equal(t, `"after-slots";q=3;w=3600`, a.header.Get("RateLimit-Policy"))
	}
}

// The shedder of the group that a request would go to decides, but what passes here is no
// load of this node.
func TestGatewaysAreShed(t *testing.T) {
	hold := make(chan struct{})
	n, ask := gatewayNode(t, setup{rules: gatewayRules, origin: func(http.ResponseWriter, *http.Request) { <-hold },
		config: func(c *config.Config) { c.Shedder.Document = settings(t, capped) }})
	for range 3 {
		require.Equal(t, 204, ask(gateway.Path, caddy("203.0.113.1", "GET", "/api/x")...).status)
	}
	n.idle()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(hold)
	n.occupy(&wg, "/hold", 1)
	a := ask(gateway.Path, caddy("203.0.113.2", "GET", "/api/x", "X-Class: test")...)
	require.Equal(t, 503, a.status)
	require.Contains(t, a.body, `"title":"Shedding load","status":503,"class":"test"`)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.EqualValues(t, 3, n.explained("api", "203.0.113.2", "&path=/api/x").Remaining, "it was not charged")
	require.EqualValues(t, 1, n.metric(`weir_gateway_answers_total{protocol="http",answer="shed"}`))
}

func TestGatewaysPanic(t *testing.T) {
	n, ask := gatewayNode(t, setup{rules: gatewayRules, change: seePanics})
	require.Equal(t, 500, ask(gateway.Path, caddy("203.0.113.1", "GET", "/free")...).status)
	require.EqualValues(t, 1, n.metric("weir_panics_total"))
	require.EqualValues(t, 1, n.metric(`weir_gateway_answers_total{protocol="http",answer="failed"}`))
}

func TestGatewaysAllocateNothing(t *testing.T) {
	e := inMemory(t, fmt.Sprintf(allocRules, 10_000, 1_000_000, 1_000_000))
	s := gateway.New(gateway.Config{Decider: &e.decider, MaxHeaders: 16 << 10, Answered: e.listeners.Gateways("http")})
	for _, path := range []string{gateway.Path, gateway.PathNginx} {
		ctx := received(t, "10.0.0.1", append([]string{"GET " + path + " HTTP/1.1", "Host: weir", "X-Api-Key: example"}, nginx("203.0.113.1", "GET", "/api/users/42")...)...)
		serve := func() {
			ctx.Response.Reset()
			s.Serve(ctx)
		}
		serve()
		require.Equal(t, 204, ctx.Response.StatusCode(), string(ctx.Response.Body()))
		require.LessOrEqual(t, testing.AllocsPerRun(2000, serve), bound(2), "the addresses in X-Forwarded-For are parsed from copies")
	}
}
