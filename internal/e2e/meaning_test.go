package e2e

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// Each origin has three limited handlers, each with the rule of the same name.
const meaningRules = `
rules:
  - {id: v, match: {paths: ["/api/v/*"]}, key: [], algorithm: fixed_window, limit: 1000000, window: 1h}
  - {id: login, match: {paths: [/login]}, key: [], algorithm: fixed_window, limit: 1000000, window: 1h}
  - {id: root, match: {paths: [/]}, key: [], algorithm: fixed_window, limit: 1000000, window: 1h}
`

func handlerOf(p string) string {
	switch {
	case strings.HasPrefix(p, "/api/v/"):
		return "v"
	case p == "/login":
		return "login"
	case p == "/":
		return "root"
	}
	return "other"
}

// goOrigins parse paths like Go programs.
func goOrigins(t *testing.T) map[string]string {
	mux := http.NewServeMux()
	for pattern, name := range map[string]string{"/api/v/": "v", "/login": "login", "/{$}": "root", "/": "other"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	}
	by := func(read func(*http.Request) string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, handlerOf(read(r))) })
	}
	origins := map[string]string{}
	for name, h := range map[string]http.Handler{
		"go-mux":  mux,
		"go-path": by(func(r *http.Request) string { return r.URL.Path }),
		"go-clean": by(func(r *http.Request) string {
			if p := path.Clean(r.URL.Path); p == "/" || !strings.HasSuffix(r.URL.Path, "/") {
				return p
			}
			return path.Clean(r.URL.Path) + "/" // a rule for /a does not apply to /a/
		}),
		"go-escaped": by(func(r *http.Request) string { return r.URL.EscapedPath() }),
		"go-twice": by(func(r *http.Request) string {
			p, err := url.PathUnescape(r.URL.Path)
			if err != nil {
				return r.URL.Path
			}
			return p
		}),
	} {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		origins[name] = s.URL
	}
	return origins
}

// otherOrigins starts the origins that are not written in Go.
func otherOrigins(t *testing.T, origins map[string]string) {
	file := func(name string) string {
		f, err := filepath.Abs("testdata/meaning/" + name)
		require.NoError(t, err)
		return f
	}
	serve := func(names []string, program string, args func(ports []string) []string) {
		ports := testenv.FreePorts(t, len(names))
		var list []string
		for i, name := range names {
			list = append(list, fmt.Sprint(ports[i]))
			origins[name] = fmt.Sprintf("http://127.0.0.1:%d", ports[i])
		}
		testenv.Serve(t, ports, program, args(list)...)
	}
	serve([]string{"node-url", "node-raw", "node-decoded", "node-normalize"}, "node", func(ports []string) []string {
		return append([]string{file("origin.js")}, ports...)
	})
	serve([]string{"python-wsgi", "python-urlsplit", "python-urlparse", "python-normpath"}, "python3", func(ports []string) []string {
		return append([]string{file("origin.py")}, ports...)
	})
	serve([]string{"nginx", "nginx-slashes"}, "nginx", func(ports []string) []string {
		text, err := os.ReadFile(file("nginx.conf"))
		require.NoError(t, err)
		dir := t.TempDir()
		conf := filepath.Join(dir, "nginx.conf")
		filled := strings.NewReplacer("PORT0", ports[0], "PORT1", ports[1]).Replace(string(text))
		require.NoError(t, os.WriteFile(conf, []byte(filled), 0o600))
		return []string{"-p", dir, "-c", conf}
	})
	if soak() {
		serve([]string{"tomcat", "tomcat-decode", "tomcat-passthrough"}, "java", func(ports []string) []string {
			jars, err := filepath.Glob("/usr/share/java/tomcat10-*.jar")
			require.NoError(t, err)
			require.NotEmpty(t, jars, "Tomcat is not installed; run make deps-soak")
			return append([]string{"-cp", strings.Join(jars, ":"), file("Origin.java")}, ports...)
		})
	}
}

// meant are targets that used to bypass a limit, and similar ones.
var meant = []string{
	"/", "/login", "/api/v/x", "/other", "/api/v/", "/api/v", "/api/v/x?y=/login", "/.", "/./", "/..", "/%2e", "/%2e%2e", "//", "///", "/;", "/;x", "/%2f", `/\`,
	"/api/v/..%2f..%2f..%2fq", "/api/v/..%2f..%2fq", "/api/v/..%2f..%2flogin", "/api/v//../x", "/api/v///../../login", `/api\v\x`, `/api/v\..\..\..\login`, "/api/v/%5c..%5cx",
	"/x/..;/api/v/y", "/;a/api/v/y", "/api;a/v/x", "/api/v;a/x", "/login;a=b", "/login;", "/login/..;/login", "/x/..;a=b/login", "/x/.;/../login", "/x;/../login",
	"/login/", "/login//", "/login/.", "/login/x/..", "/login%2f", "/login%2f.", "/%6cogin", "/%256cogin", "/%25%36cogin", "/logi%6e;a", "/LOGIN", "/login%20", "/login%00", "/login%0a",
	"//login", "//h/login", "///h/login", `/\h/login`, `/\/login`, "//h//login", "//api/v/x", "//x/api/v/y", "/x//../login", "/x/y/../../login", "/x%2f../login", "/x/%2e./login",
	"/x/..%2flogin", "/x%2f..%2flogin", "/x/%252e%252e/login", "/x/%252e%252e%252flogin", "/api%2fv%2fx", "/api%252fv/x", "/api/v%2fx", "/%2fapi/v/x", "/api/./v/x", "/api/x/../v/y",
	"/fetch/https://h/login", "/@a%2fb", "/cars;a=b/login", "/api/v/?/../../login", "/api/v/x#/../../login", "/%zz/../login", "/%/login", "/login%", "/login?", "/login?%2f..",
	"http://h/login", "http://h//login", "http://h", "http://h?x", "HTTP://h/api/v/x", "http://u:p@h/login", "http:/login", "http:login", "h/login", "*", "?", "login", `http://h\login`, "http://h/x/../login",
	"/..;/login", "/..%3b/login", "/x/..%3b/login", "/x/%3b/../../login", "/api/v/%c0%ae%c0%ae/x", "/%u002e/login", "/api/v/\xff", "/\xc0\xae/login", "/login\t", "/login\x01", "/lo gin",
}

var parts = []string{
	"/", "//", "/", "api", "v", "login", "x", ".", "..", "%2f", "%2F", "%5c", `\`, ";", ";a=b", "%3b", "%2e", "%2E", "%252f", "%252e", "%25", "%6c", "%zz", "?", "%3f", "%20", "%00",
	"/api/v/", "/login", "/../", "/./", "/..;/", "%2f..", "..%2f",
}

// corpus returns n targets: meant and its mutations.
func corpus(n int, seed uint64) []string {
	random := rand.New(rand.NewPCG(seed, 1))
	list := append([]string{}, meant...)
	for len(list) < n {
		target := list[random.IntN(min(len(list), 4*len(meant)))]
		for range 1 + random.IntN(3) {
			at := random.IntN(len(target) + 1)
			end := at + random.IntN(min(len(target)-at, 3)+1)
			part := parts[random.IntN(len(parts))]
			switch random.IntN(4) {
			case 0:
				target = target[:at] + target[end:]
			case 1:
				target = target[:at] + part + target[end:]
			default:
				target = target[:at] + part + target[at:]
			}
		}
		if target != "" && len(target) < 200 {
			list = append(list, target)
		}
	}
	return list
}

// TestAPathMeansTheSameToEveryOrigin sends a corpus through an edge to origins with many
// parsers. No request reaches a limited handler without its rule.
func TestAPathMeansTheSameToEveryOrigin(t *testing.T) {
	origins := goOrigins(t)
	otherOrigins(t, origins)
	targets := corpus(400, 1)
	if soak() {
		targets = corpus(5_000, uint64(time.Now().UnixNano()))
	}
	upstreams, routes := "", ""
	for name, url := range origins {
		upstreams += fmt.Sprintf("  - {url: %q, group: %s}\n", url, name)
		routes += fmt.Sprintf("  - {match: {hosts: [%s.test]}, group: %s}\n", name, name)
	}
	for _, mode := range []string{"match_all", "strict", "normalized"} {
		node := testenv.Edge(t, "server: {paths: "+mode+"}\nstore: {kind: memory}\nupstreams:\n  - url: \""+origins["go-mux"]+"\"\n"+upstreams+"routes:\n"+routes, meaningRules)
		for name := range origins {
			t.Run(mode+"/"+name, func(t *testing.T) {
				reached := map[string]int{}
				c := &rawClient{addr: node.Public}
				defer c.close()
				for _, target := range targets {
					status, rules, handler := c.get(t, target, name+".test")
					if status != http.StatusOK {
						reached[fmt.Sprint(status)]++
						continue
					}
					reached[handler]++
					if handler != "other" {
						require.Contains(t, rules, fmt.Sprintf("%q;", handler), "%q reached %s under the rules %q", target, handler, rules)
					}
				}
				for _, handler := range []string{"v", "login", "root", "other"} {
					require.NotZero(t, reached[handler], "nothing reached %s: %v", handler, reached)
				}
				t.Log(reached)
			})
		}
	}
}

// rawClient sends targets byte for byte, reusing a connection while it lasts.
type rawClient struct {
	addr string
	conn net.Conn
	br   *bufio.Reader
}

func (c *rawClient) close() {
	if c.conn != nil {
		c.conn.Close()
	}
}

// get returns the status, the rules that applied to the request, and the body.
func (c *rawClient) get(t *testing.T, target, host string) (status int, rules, body string) {
	t.Helper()
	for try := 0; ; try++ {
		if c.conn == nil {
			var err error
			c.conn, err = net.Dial("tcp", c.addr)
			require.NoError(t, err)
			c.br = bufio.NewReader(c.conn)
		}
		require.NoError(t, c.conn.SetDeadline(time.Now().Add(20*time.Second)))
		// An absolute target contains the host.
		_, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", strings.Replace(target, "://h", "://"+host, 1), host)
		var resp *http.Response
		if err == nil {
			resp, err = http.ReadResponse(c.br, nil)
		}
		var b []byte
		if err == nil {
			b, err = io.ReadAll(resp.Body)
		}
		if err != nil || resp.Close {
			c.conn.Close()
			c.conn = nil
		}
		if err == nil {
			return resp.StatusCode, resp.Header.Get("RateLimit-Policy"), string(b)
		}
		require.Less(t, try, 2, "%q: %v", target, err)
	}
}
