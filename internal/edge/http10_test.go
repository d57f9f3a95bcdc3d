package edge

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// A client of HTTP/1.0 does not understand chunks: it would take them for the answer, and not
// find its end.
func TestHTTP10GetsNoChunks(t *testing.T) {
	origin := originOfBoth(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a body of ")
		w.(http.Flusher).Flush()
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/large" {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
		_, _ = io.WriteString(w, "unknown length")
	})
	for _, scheme := range []string{"http", "h2c"} {
		n := start(t, setup{rules: `rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 9, window: 1h}]`, config: func(c *config.Config) {
			c.Upstreams = []config.Upstream{{URL: scheme + "://" + origin}}
		}})
		answers := n.raw(lines("GET / HTTP/1.0", "Host: x", "Connection: keep-alive") + lines("GET / HTTP/1.0", "Host: x"))
		require.Equal(t, []int{200, 200}, statuses(answers), scheme)
		for _, a := range answers {
			require.Equal(t, "a body of unknown length", a.body, scheme)
			require.Equal(t, "24", a.header.Get("Content-Length"), scheme)
		}
		for _, path := range []string{"/broken", "/large"} {
			require.Equal(t, []int{502}, statuses(n.raw(lines("GET "+path+" HTTP/1.0", "Host: x"))), "%s %s", scheme, path)
		}
		require.Equal(t, []int{200}, statuses(n.raw(lines("HEAD / HTTP/1.0", "Host: x"))), scheme)
		eventually(t, "no slot is held", func() bool { return n.explained("slots", "127.0.0.1", "").Remaining == 9 })
	}
}

// A request without a host is decided for the host that origins get with it, in every group.
func TestTheHostOfRequestsWithoutOneIsCounted(t *testing.T) {
	type sent struct{ host, forwarded string }
	seen := make(chan sent, 1)
	origin := originOfBoth(t, func(_ http.ResponseWriter, r *http.Request) { seen <- sent{r.Host, r.Header.Get("X-Forwarded-Host")} })
	_, port, err := net.SplitHostPort(origin)
	require.NoError(t, err)
	for _, scheme := range []string{"http", "h2c"} {
		n := start(t, setup{rules: `
rules:
  - {id: named, match: {hosts: [localhost]}, key: [], limit: 3, window: 1h}
  - {id: by-host, key: [host], limit: 1000, window: 1h}`, config: func(c *config.Config) {
			c.Upstreams = []config.Upstream{{URL: scheme + "://127.0.0.1:" + port, Group: "other"}, {URL: scheme + "://localhost:" + port}}
			c.Routes = []config.Route{{Group: "other", Match: rules.Conditions{Paths: []string{"/other"}}}}
		}})
		for _, request := range []string{
			lines("GET / HTTP/1.0"), lines("GET / HTTP/1.0", "Host:"), lines("GET /other HTTP/1.0"),
		} {
			require.Equal(t, []int{200}, statuses(n.raw(request)), request)
			require.Equal(t, sent{"localhost:" + port, "localhost:" + port}, <-seen, "%s %q", scheme, request)
		}
		require.Equal(t, []int{429}, statuses(n.raw(lines("GET / HTTP/1.0"))))
		require.EqualValues(t, 997, n.explained("by-host", "127.0.0.1", "&host=localhost").Remaining)
	}
}

// originOfBoth starts an origin that speaks HTTP/1.1 and HTTP/2 without TLS, and returns its address.
func originOfBoth(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	return originWithWindow(t, 0, handler)
}

// originWithWindow is originOfBoth, which accepts that much of a body ahead of what it reads.
func originWithWindow(t *testing.T, window int, handler http.HandlerFunc) string {
	t.Helper()
	origin := &http.Server{Protocols: new(http.Protocols), Handler: handler, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: window}}
	origin.Protocols.SetHTTP1(true)
	origin.Protocols.SetUnencryptedHTTP2(true)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = origin.Serve(ln) }()
	t.Cleanup(func() { _ = origin.Close() })
	return ln.Addr().String()
}
