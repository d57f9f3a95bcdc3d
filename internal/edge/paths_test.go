package edge

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

// ask sends one request and returns its status and body.
func (n *node) askRaw(target string) answer {
	n.t.Helper()
	answers := n.raw(lines("GET "+target+" HTTP/1.1", "Host: x", "Connection: close"))
	require.Len(n.t, answers, 1, target)
	return answers[0]
}

// With a limit of 1 on /api/v/*, no form of a path reaches that handler of Go's ServeMux a
// second time, whatever else it reaches.
func TestNoPathReachesALimitedHandlerUncounted(t *testing.T) {
	var reached atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v/", func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") })
	n := start(t, setup{origin: mux.ServeHTTP, rules: `rules: [{id: v, match: {paths: ["/api/v/*"]}, key: [], limit: 1, window: 1h}]`})
	require.Equal(t, 200, n.askRaw("/api/v/x").status)
	for _, target := range []string{
		"/api/v/..%2f..%2f..%2fq", "/api/v/..%2f..%2fq", "/api/v/..%2F..%2Fq", "/api/v/%2e%2e%2fq", "/api/v/%2e%2e/%2e%2e/q", "/api/v/.%2e/q",
		"/api%2fv/x", "/api/v%2fx", "/%61pi/v/x", "/api/v//../x", `/api\v\x`, "/api/v/x;a=b", "/api/v;a/x", "/x/..;/api/v/y", "/;a/api/v/y",
		"//api/v/x", "///api/v/x", "//h/api/v/x", "/./api/v/x", "/x/../api/v/x", "/%252e/api/v/x", "/api%252fv/x", "/api/v/%00", "/api/v/..%00/..",
		"/api/v/?/../../q", "http://h/api/v/x", "HTTP://h//api/v/x", "http://u@h/api/v/x",
	} {
		require.Contains(t, []int{400, 429}, n.askRaw(target).status, target)
	}
	require.EqualValues(t, 1, reached.Load())
	require.Equal(t, "other", n.askRaw("/x/..%2fy").body, "readings that are limited alike pass")
}

// An exemption must not depend on the reading either.
func TestExemptionsAgreeInAllReadings(t *testing.T) {
	n := start(t, setup{rules: `rules: [{id: api, match: {paths: ["/api/*"], not: {paths: [/api/health]}}, key: [], limit: 1, window: 1h}]`})
	require.Equal(t, 200, n.askRaw("/api/health").status)
	require.Equal(t, 200, n.askRaw("/api/health").status)
	require.Equal(t, 200, n.askRaw("/api/x").status)
	require.Equal(t, 429, n.askRaw("/api/x").status)
	for _, target := range []string{"/api/x/..%2fhealth", "/api/x/../health", "/api//health", "/api/health;a=b"} {
		require.Contains(t, []int{400, 429}, n.askRaw(target).status, target)
	}
	require.Equal(t, 200, n.askRaw("/api/health").status)
}

func TestPathsThatOriginsReadInSeveralWays(t *testing.T) {
	const document = `
rules:
  - {id: all, key: [client_ip, path], limit: 1000, window: 1h}
  - {id: exact, match: {paths: [/]}, key: [], limit: 1000, window: 1h}
  - {id: login, match: {paths: [/login, "/login;*"]}, key: [], limit: 1000, window: 1h}
  - {id: pay, match: {paths: [/pay]}, key: [], limit: 1000, window: 1h}
  - {id: api, match: {paths: ["/api/*"]}, key: [], limit: 1000, window: 1h}
`
	seen := make(chan string, 1)
	origin := func(_ http.ResponseWriter, r *http.Request) { seen <- r.RequestURI }
	nodes := map[string]*node{}
	for _, mode := range []string{config.PathsMatchAll, config.PathsStrict, config.PathsNormalized} {
		nodes[mode] = start(t, setup{rules: document, origin: origin, config: func(c *config.Config) { c.Server.Paths = mode }})
	}
	// f sends a target; for each mode it states what the origin gets, or the status.
	f := func(target, matchAll, strict, normalized string) {
		t.Helper()
		for mode, want := range map[string]string{config.PathsMatchAll: matchAll, config.PathsStrict: strict, config.PathsNormalized: normalized} {
			a := nodes[mode].askRaw(target)
			if a.status != 200 {
				require.Equal(t, want, fmt.Sprint(a.status), "%s of %q: %s", mode, target, a.body)
				continue
			}
			require.Equal(t, want, <-seen, "%s of %q", mode, target)
		}
	}
	same := func(target string) { t.Helper(); f(target, target, target, target) }
	honest := func(target string) { t.Helper(); f(target, target, "400", target) }

	same("/")
	same("/a/b?c=%2f..%2f;//&d=%00")
	same("/caf%C3%A9/a%20b")
	same("/api/x.y/..z/.w")
	f("/%7euser/%3d%c3", "/%7euser/%3d%c3", "/%7euser/%3d%c3", "/~user/%3D%C3")

	// npm, GitLab, RabbitMQ, matrix parameters, targets within paths, signed URLs.
	honest("/@scope%2Fpkg")
	honest("/api/v4/projects/group%2Fproject/repository/files/a%2Fb.go/raw?ref=main")
	honest("/api/queues/%2F/name")
	honest("/cars;color=red;year=2020/list")
	honest("/fetch/https://example.com/x")
	honest("/s3/key//with//slashes?X-Amz-Signature=ab%2Fcd")
	honest("/fetch/https%253A%252F%252Fexample.com")
	honest("/login;jsessionid=1")

	f("/.", "400", "400", "/")
	f("/x/../api/y", "400", "400", "/api/y")
	f("/x/%2e%2e/api/y", "400", "400", "/api/y")
	f("/x/./y?a=/./b", "/x/./y?a=/./b", "400", "/x/y?a=/./b")
	f("/x/..;/api/y", "400", "400", "400")
	f("/;a/api/y", "400", "400", "400")
	f("/x%2f..%2fapi/y", "400", "400", "400")
	f(`/api\x`, "400", "400", "400")
	f("//api/x", "400", "400", "400")
	f("/pay;a", "400", "400", "400")
	f("/a//../b", "400", "400", "/a/b")
	f("/..", "400", "400", "400")
	f("/a/..%2f..%2fb", "400", "400", "400")
	f("/a%00", "400", "400", "400")
	f("/a%0D%0Ab", "400", "400", "400")
	f("/a%2fb//c;d/./e", "400", "400", "/a%2Fb//c;d/e")
	f("http://h/%2e/api/x", "400", "400", "/api/x")
}

// Letter case and a trailing slash matter.
func TestWhatPathsAreTheSame(t *testing.T) {
	n := start(t, setup{rules: `rules: [{id: a, match: {paths: [/a]}, key: [], limit: 1, window: 1h}]`})
	require.Equal(t, 200, n.askRaw("/a").status)
	require.Equal(t, 429, n.askRaw("/%61").status)
	require.Equal(t, 200, n.askRaw("/A").status)
	require.Equal(t, 200, n.askRaw("/a/").status)
}

func TestReadingsMustLeadToOneGroupAndClass(t *testing.T) {
	n := start(t, setup{config: func(c *config.Config) {
		c.Upstreams = append(c.Upstreams, config.Upstream{URL: "http://127.0.0.1:1", Group: "search"})
		c.Routes = []config.Route{{Group: "search"}}
		c.Routes[0].Match.Paths = []string{"/search/*"}
	}})
	for _, target := range []string{"/search%2fx", "/search/..%2fx", "/x/..;/search/y"} {
		require.Equal(t, 400, n.askRaw(target).status, target)
	}
	require.Equal(t, 200, n.askRaw("/other%2fx").status)

	classes := start(t, setup{config: func(c *config.Config) {
		c.Shedder.Document = settings(t, calm+"\nclasses: [{name: critical, max_in_flight: 10, match: [{paths: [\"/pay/*\"]}]}, {name: read, max_in_flight: 10}]\ndefault_class: read")
	}})
	require.Equal(t, 400, classes.askRaw("/pay/..%2fx").status)
	require.Equal(t, 200, classes.askRaw("/other/..%2fx").status)
}

func TestExplainReadsPathsAsTheyAreReceived(t *testing.T) {
	n := start(t, setup{rules: apiRules})
	a := n.operate("GET", "/v1/explain?client=192.0.2.1&path="+url.QueryEscape("/api/a%2fb"))
	require.Contains(t, a.body, `"rule": "api"`)
	require.Contains(t, strings.Join(strings.Fields(a.body), ""), `"readings":["/api/a%2Fb","/api/a/b"]`)
	a = n.operate("GET", "/v1/explain?client=192.0.2.1&path="+url.QueryEscape("/api%2fb"))
	require.Equal(t, 400, a.status)
	require.Contains(t, a.body, "can be read in several ways")
}

// A program that strips all trailing dots from a host would find one that no rule saw.
func TestHostWithAnEmptyLabelIsRefused(t *testing.T) {
	n := start(t, setup{rules: apiRules})
	for host, want := range map[string]int{"api.example.com": 200, "api.example.com.": 200, "api.example.com..": 400, "api..example.com": 400, "api.example.com..:80": 400} {
		answers := n.raw(lines("GET / HTTP/1.1", "Host: "+host, "Connection: close"))
		require.Equal(t, []int{want}, statuses(answers), host)
	}
}
