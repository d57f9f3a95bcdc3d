package edge

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/shedding"
)

var chunked = lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked")

// refusedForms are requests that the node answers itself before it closes the
// connection.
var refusedForms = []struct {
	name, request string
	status        int
}{
	{"bare line feed after the request line", "GET / HTTP/1.1\nHost: x\r\n\r\n", 400},
	{"bare line feeds only", "GET / HTTP/1.1\nHost: x\n\n", 400},
	{"bare line feed before the request line", "\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"bare line feed in a header", "GET / HTTP/1.1\r\nHost: x\nX-A: b\r\n\r\n", 400},
	{"bare line feed as the blank line", "GET / HTTP/1.1\r\nHost: x\r\n\n", 400},
	{"bare line feed after a chunk's size", chunked + "1\na\r\n0\r\n\r\n", 400},
	{"bare line feed in a chunk's extension", chunked + "1;a\nb\r\na\r\n0\r\n\r\n", 400},
	{"bare line feed after a chunk", chunked + "1\r\na\n0\r\n\r\n", 400},
	{"bare line feed in a trailer", chunked + "1\r\na\r\n0\r\nX-A: b\nX-C: d\r\n\r\n", 400},
	{"bare line feed after a trailer", chunked + "1\r\na\r\n0\r\nX-A: b\r\n\n", 400},
	{"bare line feed instead of a trailer", chunked + "0\r\n\n", 400},
	{"NUL in a chunk's extension", chunked + "1;a=\x00\r\na\r\n0\r\n\r\n", 400},
	{"DEL in a chunk's extension", chunked + "1;\x7f\r\na\r\n0\r\n\r\n", 400},
	{"bare carriage return in a chunk's extension", chunked + "1;a\rb\r\na\r\n0\r\n\r\n", 400},
	{"two carriage returns after a chunk's size", chunked + "1\r\r\na\r\n0\r\n\r\n", 400},
	{"NUL in the last chunk's extension", chunked + "1\r\na\r\n0;\x00\r\n\r\n", 400},
	{"a trailer's name with a space", chunked + "1\r\na\r\n0\r\nX A: b\r\n\r\n", 400},
	{"a trailer's name with a space at its end", chunked + "1\r\na\r\n0\r\nX-A : b\r\n\r\n", 400},
	{"a folded trailer", chunked + "1\r\na\r\n0\r\nX-A: b\r\n c\r\n\r\n", 400},
	{"a trailer without a name", chunked + "1\r\na\r\n0\r\n: b\r\n\r\n", 400},
	{"a trailer without a colon", chunked + "1\r\na\r\n0\r\n" + strings.Repeat("x", 100) + "\r\n\r\n", 400},
	{"NUL in a trailer", chunked + "1\r\na\r\n0\r\nX-A: " + strings.Repeat("x", 100) + "\x00\r\n\r\n", 400},
	{"bare carriage return in a trailer", chunked + "1\r\na\r\n0\r\nX-A: b\rX-C: d\r\n\r\n", 400},
	{"padded length", lines("POST / HTTP/1.1", "Host: x", "Content-Length: "+strings.Repeat("0", 70)+"1") + "a", 400},
	{"padded chunk", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + strings.Repeat("0", 20) + "1\r\na\r\n0\r\n\r\n", 400},
	{"identity", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: identity"), 400},
	{"Identity alongside a length", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: Identity", "Content-Length: 1") + "a", 400},
	{"a name with a space", lines("GET / HTTP/1.1", "Host: x", "X Api-Key: a"), 400},
	{"a name with a quote", lines("GET / HTTP/1.1", "Host: x", "X\"Api: a"), 400},
	{"preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
	{"HTTP/2.0", lines("GET / HTTP/2.0", "Host: x"), 505},
	{"HTTP/1.2", lines("GET / HTTP/1.2", "Host: x"), 505},
	{"HTTP/0.9", lines("GET / HTTP/0.9", "Host: x"), 505},
	{"TRACE", lines("TRACE / HTTP/1.1", "Host: x", "Cookie: a=secret"), 501},
	{"track", lines("track / HTTP/1.1", "Host: x", "Cookie: a=secret"), 501},
	{"no host", lines("GET / HTTP/1.1", "X-A: b"), 400},
	{"an empty host", lines("GET / HTTP/1.1", "Host:"), 400},
	{"two hosts", lines("GET / HTTP/1.1", "Host: x", "Host: x"), 400},
	{"a list of hosts", lines("GET / HTTP/1.1", "Host: x, y"), 400},
	{"a host with a space", lines("GET / HTTP/1.1", "Host: x y"), 400},
	{"a host with a scheme", lines("GET / HTTP/1.1", "Host: http://x"), 400},
	{"a host with a user", lines("GET / HTTP/1.1", "Host: u@x"), 400},
	{"a host with a quote", lines("GET / HTTP/1.1", "Host: x\"y"), 400},
	{"a host with markup", lines("GET / HTTP/1.1", "Host: <x>"), 400},
	{"a host that is not ASCII", lines("GET / HTTP/1.1", "Host: x\xe9"), 400},
	{"a port that is not a number", lines("GET / HTTP/1.1", "Host: x:http"), 400},
	{"a port out of range", lines("GET / HTTP/1.1", "Host: x:65536"), 400},
	{"two ports", lines("GET / HTTP/1.1", "Host: x:80:80"), 400},
	{"an open bracket", lines("GET / HTTP/1.1", "Host: [::1"), 400},
	{"brackets around a name", lines("GET / HTTP/1.1", "Host: [x]"), 400},
	{"an address without brackets", lines("GET / HTTP/1.1", "Host: 2001:db8::1"), 400},
	{"a bad host in the target", lines("GET http://x\"y/ HTTP/1.1", "Host: x"), 400},
	{"no host in the target", lines("GET http:///a HTTP/1.1", "Host: x"), 400},
}

func TestRefusedForms(t *testing.T) {
	upstreamsOfBoth(t, func(t *testing.T, s setup) {
		s.rules = apiRules
		testRefusedForms(t, start(t, s))
	})
}

func testRefusedForms(t *testing.T, n *node) {
	const next = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, c := range refusedForms {
		t.Run(c.name, func(t *testing.T) {
			answers := n.raw(c.request + next)
			require.Equal(t, []int{c.status}, statuses(answers))
			require.NotContains(t, answers[0].body, "secret")
			require.Zero(t, n.smuggled.Load())
			for size := range 3 { // also in packets of a few bytes
				answers, err := exchangeSlowly(n.public, c.request+next, 1+size*5)
				require.NoError(t, err)
				require.Equal(t, []int{c.status}, statuses(answers), "%d bytes a packet", 1+size*5)
			}
		})
	}
	require.Zero(t, n.smuggled.Load())
	require.Zero(t, n.metric("weir_panics_total"))
}

// exchangeSlowly is exchange with a payload that arrives in several reads.
func exchangeSlowly(addr, payload string, size int) ([]answer, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	go func() {
		for len(payload) > 0 {
			n := min(size, len(payload))
			if _, err := io.WriteString(conn, payload[:n]); err != nil {
				return
			}
			payload = payload[n:]
		}
	}()
	return answersOf(conn)
}

// Accepted forms mean the same to every program.
func TestAcceptedForms(t *testing.T) {
	upstreamsOfBoth(t, func(t *testing.T, s setup) {
		s.rules = apiRules
		testAcceptedForms(t, start(t, s))
	})
}

func testAcceptedForms(t *testing.T, n *node) {
	for _, request := range []string{
		lines("GET / HTTP/1.1", "Host: x_y.example.com.:65535"), lines("GET / HTTP/1.1", "Host: [2001:db8::1]:80"),
		lines("GET / HTTP/1.1", "Host: 192.0.2.1"), lines("GET / HTTP/1.1", "Host: x:"), lines("GET / HTTP/1.1", "Host: xn--bcher-kva.example"),
		lines("GET / HTTP/1.0"), lines("GET http://y:80/a HTTP/1.1", "Host: x"), "\r\n\r\n" + lines("GET / HTTP/1.1", "Host: x"),
		lines("POST / HTTP/1.1", "Host: x", "transfer-encoding:  CHUNKED ") + "1;a=\"b\t\xe9\"\r\na\r\n00\r\nX-A: b\tc \r\nX_C:\r\n\r\n",
		lines("POST / HTTP/1.1", "Host: x", "Content-Length:\t3 ") + "\n\n\n",
	} {
		for _, closing := range []string{"close", "Close", "keep-alive, CLOSE", "close\r\nConnection: keep-alive"} {
			request := strings.Replace(request, "\r\n\r\n", "\r\nConnection: "+closing+"\r\n\r\n", 1)
			if strings.HasPrefix(request, "\r\nConnection") { // the blank lines came first
				continue
			}
			require.Equal(t, []int{200}, statuses(n.raw(request+"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")), request)
		}
	}
	require.Zero(t, n.smuggled.Load())
}

// A header that programs reading "_" as "-" would take for weir's, or for a trusted
// proxy's, does not reach the origin.
func TestLookAlikesAreNotForwarded(t *testing.T) {
	seen := make(chan http.Header, 1)
	n := start(t, setup{
		rules: `
rules:
  - {id: keyed, key: ["header:X-Tenant"], limit: 1000, window: 1h}
  - {id: odd, key: ["header:X_Odd"], limit: 1000, window: 1h}
`,
		origin: func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header },
		config: func(c *config.Config) { c.TierHeader = "X-Tier" },
	})
	answers := n.raw(lines("GET / HTTP/1.1", "Host: x", "X_Forwarded_For: 1", "X-Forwarded_Proto: 1", "x.forwarded.host: 1", "X_REAL_IP: 1", "X_Original_URL: 1", "X-Rewrite-Url: 1", "Content_Length: 1",
		"X_Tenant: 1", "X-Tier: gold", "X_Tier: gold", "X_Odd: 1", "X_Other: 1", "My.Header: 1", "Connection: close"))
	require.Equal(t, []int{200}, statuses(answers), "%v", answers)
	got := <-seen
	for name := range got {
		switch name {
		case "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Via":
			require.NotEqual(t, "1", got.Get(name))
			delete(got, name)
		}
	}
	require.Equal(t, http.Header{"X_odd": {"1"}, "X_other": {"1"}, "My.header": {"1"}}, got)
}

// A client that waits for permission to send its body gets it only if its request
// passes.
func TestContinueAfterTheDecision(t *testing.T) {
	n := start(t, setup{
		rules: "rules: [{id: once, match: {paths: [/once]}, key: [], limit: 1, window: 1h}, {id: slots, key: [], algorithm: concurrency, limit: 1, window: 1h}]",
		origin: func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			_, _ = w.Write(b)
		},
	})
	ask := func(path string, size string) (net.Conn, *bufio.Reader) {
		t.Helper()
		conn, err := net.Dial("tcp", n.public)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(conn, lines("POST "+path+" HTTP/1.1", "Host: x", "Expect: 100-continue", size))
		require.NoError(t, err)
		return conn, bufio.NewReader(conn)
	}
	response := func(br *bufio.Reader) *http.Response {
		t.Helper()
		resp, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		return resp
	}
	conn, br := ask("/once", "Content-Length: 4")
	require.Equal(t, 100, response(br).StatusCode)
	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="once",outcome="allowed",source="memory"}`), "decided before the body came")
	for range 2 { // the connection continues
		_, err := io.WriteString(conn, "body")
		require.NoError(t, err)
		resp := response(br)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "200 body", resp.Status[:4]+string(b))
		eventually(t, "its slot is free", func() bool { return n.remaining("slots", "192.0.2.1") == 1 })
		_, err = io.WriteString(conn, lines("POST / HTTP/1.1", "Host: x", "Content-Length: 4"))
		require.NoError(t, err)
	}
	conn.Close()
	eventually(t, "the slot of the request without a body is free", func() bool { return n.remaining("slots", "192.0.2.1") == 1 })

	// In any letter case, but never for HTTP/1.0. Other expectations fail before the
	// body.
	for _, c := range []struct {
		version, expect string
		want            int
	}{{"1.1", "100-Continue", 100}, {"1.1", "\t100-CONTINUE ", 100}, {"1.1", "100-continue\r\nexpect: 100-continue", 100},
		{"1.0", "100-continue", 200}, {"1.0", "200-ok", 200},
		{"1.1", "200-ok", 417}, {"1.1", "100-continue, x", 417}, {"1.1", "100-continue\r\nExpect: x", 417}, {"1.1", "x\r\nExpect: 100-continue", 417}} {
		conn, err := net.Dial("tcp", n.public)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		header := lines("POST / HTTP/"+c.version, "Host: x", "Expect: "+c.expect, "Content-Length: 4")
		if c.want == 200 {
			header += "body"
		}
		_, err = io.WriteString(conn, header)
		require.NoError(t, err)
		require.Equal(t, c.want, response(bufio.NewReader(conn)).StatusCode, "%q", c)
		conn.Close()
		eventually(t, "its slot is free", func() bool { return n.remaining("slots", "192.0.2.1") == 1 })
	}

	for _, size := range []string{"Content-Length: 4", "Transfer-Encoding: chunked", "Content-Length: 9999999"} {
		_, br = ask("/once", size)
		resp := response(br)
		require.Equal(t, 429, resp.StatusCode)
		require.Equal(t, []string{"1"}, []string{resp.Header.Get("RateLimit-Policy")[len(`"once";q=`):][:1]})
		_, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		_, err = br.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}

	// Clients that hang up after that permission leave nothing behind.
	requests := n.metric("weir_request_seconds")
	for range 3 {
		conn, br = ask("/", "Content-Length: 4")
		require.Equal(t, 100, response(br).StatusCode)
		conn.Close()
		requests++
		eventually(t, "the request is over", func() bool { return n.metric("weir_request_seconds") == requests })
		eventually(t, "its slot is free", func() bool { return n.remaining("slots", "192.0.2.1") == 1 })
	}
	for _, c := range shedding.Defaults().Classes {
		require.Zero(t, n.metric(`weir_inflight{class="`+c.Name+`",upstream="default"}`))
	}
	require.Zero(t, n.metric("weir_panics_total"))
}
