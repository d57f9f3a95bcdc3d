package edge

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

// What never reaches a handler is counted too.
func TestEarlyRefusalsAreCounted(t *testing.T) {
	for _, c := range []struct {
		name, payload string
		status        int
		class         string
	}{
		{"no HTTP", "hello\r\n\r\n", 400, "4xx"},
		{"a bare line feed", "GET / HTTP/1.1\nHost: x\r\n\r\n", 400, "4xx"},
		{"a large header", lines("GET / HTTP/1.1", "Host: x", "X: "+strings.Repeat("x", 17<<10)), 431, "4xx"},
		{"half a header", "GET / HTTP/1.1\r\nHost", 408, "4xx"},
		{"two lengths", lines("POST / HTTP/1.1", "Host: x", "Content-Length: 1", "Transfer-Encoding: chunked"), 400, "4xx"},
		{"an expectation", lines("POST / HTTP/1.1", "Host: x", "Content-Length: 1", "Expect: more"), 417, "4xx"},
		{"a large body", lines("POST / HTTP/1.1", "Host: x", "Content-Length: 2000000000") + strings.Repeat("x", 9000), 413, "4xx"},
		{"TRACE", lines("TRACE / HTTP/1.1", "Host: x"), 501, "5xx"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\n", 505, "5xx"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := start(t, setup{config: func(conf *config.Config) {
				if c.status == 408 {
					conf.Server.ReadTimeout = 100 * time.Millisecond
				}
			}})
			counted := func() float64 { return n.metric(`weir_requests_total{code_class="` + c.class + `"}`) }
			ask := func() { require.Equal(t, []int{c.status}, statuses(n.raw(c.payload))) }
			ask()
			eventually(t, "it is counted", func() bool {
				if c.status == 408 && counted() == 0 {
					ask() // the client was so slow that nothing had arrived, which does not count
				}
				return counted() == 1
			})
			require.Zero(t, n.asked.Load())
		})
	}
	t.Run("a connection without a request does not count", func(t *testing.T) {
		n := start(t, setup{config: func(c *config.Config) { c.Server.ReadTimeout = 50 * time.Millisecond }})
		conn, err := net.Dial("tcp", n.public)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.ReadAll(conn)
		require.NoError(t, err)
		require.Zero(t, n.metric(`weir_requests_total{code_class="4xx"}`))
	})
}

// A client behind a proxy cannot force a new connection with each bad path.
func TestBadPathKeepsTheConnection(t *testing.T) {
	n := start(t, setup{rules: apiRules, config: func(c *config.Config) { c.Server.Paths = config.PathsStrict }})
	for _, path := range []string{"/a/../..", "/a%2f..%2fb", "/a%00"} {
		answers := n.raw(lines("GET "+path+" HTTP/1.1", "Host: x") +
			lines("POST "+path+" HTTP/1.1", "Host: x", "Content-Length: 2") + "ab" + lines("GET / HTTP/1.1", "Host: x", "Connection: close"))
		require.Equal(t, []int{400, 400, 200}, statuses(answers), path)
	}
	answers := n.raw(lines("POST /a/../.. HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + "0\r\n\r\n" + lines("GET /smuggled HTTP/1.1", "Host: x"))
	require.Equal(t, []int{400}, statuses(answers), "a body that nobody reads")
}
