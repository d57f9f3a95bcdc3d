package edge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

const apiRules = `
rules:
  - {id: api, match: {paths: ["/api/*"]}, key: [], limit: 10000, window: 1h}
  - {id: keyed, match: {paths: [/keyed]}, key: ["header:X-Api-Key"], limit: 10000, window: 1h}
  - {id: cookies, match: {paths: [/cookies]}, key: ["cookie:session"], limit: 10000, window: 1h}
  - {id: hosted, match: {hosts: [api.example.com]}, key: [], limit: 10000, window: 1h}
`

// rawExchange sends bytes on one connection and reads responses until the node closes it.
// So the bytes must end in a request that asks for that, or be bad enough.
func rawExchange(addr, payload string) ([]answer, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	// An answer may come, and the connection close, before everything is sent.
	_, _ = io.WriteString(conn, payload)
	return answersOf(conn)
}

// answersOf reads responses until the node closes the connection.
func answersOf(conn net.Conn) ([]answer, error) { return answersTo(conn, "GET") }

// answersTo is answersOf, for a first request of that method.
func answersTo(conn net.Conn, method string) ([]answer, error) {
	var answers []answer
	br := bufio.NewReader(conn)
	for {
		if _, err := br.Peek(1); err == io.EOF || errors.Is(err, syscall.ECONNRESET) {
			return answers, nil
		}
		resp, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return answers, fmt.Errorf("after %d answers: %w", len(answers), err)
		}
		if resp.StatusCode == http.StatusContinue {
			continue
		}
		method = "GET"
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return answers, err
		}
		answers = append(answers, answer{resp.StatusCode, resp.Header, string(body)})
	}
}

func (n *node) raw(payload string) []answer {
	n.t.Helper()
	answers, err := rawExchange(n.public, payload)
	require.NoError(n.t, err)
	return answers
}

func statuses(answers []answer) []int {
	var list []int
	for _, a := range answers {
		list = append(list, a.status)
	}
	return list
}

// lines joins header lines and ends the header.
func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n\r\n" }

func TestHostileRequests(t *testing.T) {
	upstreamsOfBoth(t, func(t *testing.T, s setup) {
		upstreams := s.config
		s.rules, s.config = apiRules, func(c *config.Config) { upstreams(c); c.Server.MaxBodyBytes = 1 << 20 }
		testHostileRequests(t, start(t, s))
	})
}

// overHTTP2 are answers for an origin of HTTP/2, whose refusal has no status.
var overHTTP2 = map[string][]int{"incomplete percent-encodings": {502}}

func testHostileRequests(t *testing.T, n *node) {
	allowed := int64(0)
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, c := range []struct {
		name    string
		payload string
		want    []int
		origin  int64 // requests that may reach it
	}{
		{"Content-Length alongside Transfer-Encoding", lines("POST / HTTP/1.1", "Host: x", "Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\n" + smuggled, []int{400}, 0},
		{"the same the other way round", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "Content-Length: 4") + "0\r\n\r\n" + smuggled, []int{400}, 0},
		{"Transfer-Encoding twice", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "Transfer-Encoding: identity") + "0\r\n\r\n" + smuggled, []int{400}, 0},
		{"Transfer-Encoding unknown", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: xchunked") + "0\r\n\r\n" + smuggled, []int{400}, 0},
		{"Transfer-Encoding list", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: gzip, chunked") + "0\r\n\r\n" + smuggled, []int{400}, 0},
		{"Transfer-Encoding with a blank before the colon", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding : chunked") + "0\r\n\r\n" + smuggled, []int{400}, 0},
		{"Transfer-Encoding of HTTP/1.0", lines("POST / HTTP/1.0", "Host: x", "Transfer-Encoding: chunked") + "0\r\n\r\n" + smuggled, []int{400}, 0},
		{"Content-Length twice, different", lines("POST / HTTP/1.1", "Host: x", "Content-Length: 0", "Content-Length: 38") + smuggled, []int{400}, 0},
		{"Content-Length twice, the same", lines("POST / HTTP/1.1", "Host: x", "Content-Length: 1", "Content-Length: 1") + "x", []int{400}, 0},
		{"Content-Length list", lines("POST / HTTP/1.1", "Host: x", "Content-Length: 1, 1") + "x", []int{400}, 0},
		{"Content-Length signed", lines("POST / HTTP/1.1", "Host: x", "Content-Length: +1") + "x", []int{400}, 0},
		{"Content-Length negative", lines("POST / HTTP/1.1", "Host: x", "Content-Length: -1") + "x", []int{400}, 0},
		{"Content-Length beyond any integer", lines("POST / HTTP/1.1", "Host: x", "Content-Length: 99999999999999999999") + "x", []int{400}, 0},
		{"folded header", "GET / HTTP/1.1\r\nHost: x\r\nX-Api-Key: a\r\n b\r\n\r\n", []int{400}, 0},
		{"a bare line feed within", "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\nX-C: d\r\n\r\n", []int{400}, 0},
		{"a bare carriage return within", "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\rX-C: d\r\n\r\n", []int{400}, 0},
		{"no colon", lines("GET / HTTP/1.1", "Host: x", "nonsense"), []int{400}, 0},
		{"null in a value", lines("GET / HTTP/1.1", "Host: x", "X-A: a\x00b"), []int{400}, 0},
		{"null in a name", lines("GET / HTTP/1.1", "Host: x", "X-\x00A: b"), []int{400}, 0},
		{"null in the target", lines("GET /a\x00b HTTP/1.1", "Host: x"), []int{400}, 0},
		{"null in the host", lines("GET / HTTP/1.1", "Host: x\x00y"), []int{400}, 0},
		{"two hosts", lines("GET / HTTP/1.1", "Host: x", "Host: y"), []int{400}, 0},
		{"an invalid host", lines("GET /api/x HTTP/1.1", "Host: [::1"), []int{400}, 0},
		{"a host with a percent-encoding", lines("GET /api/x HTTP/1.1", "Host: a%zzb"), []int{400}, 0},
		{"unknown version", lines("GET / HTTP/3.7", "Host: x"), []int{505}, 0},
		{"a TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []int{400}, 0},
		{"not a request at all", strings.Repeat("\xff", 200) + "\r\n\r\n", []int{400}, 0},
		{"CONNECT", lines("CONNECT example.com:443 HTTP/1.1", "Host: example.com:443", "Connection: close"), []int{501}, 0},
		{"a fragment in the target", lines("GET /x#/../api/y HTTP/1.1", "Host: x", "Connection: close"), []int{400}, 0},
		{"a key twice", lines("GET /keyed HTTP/1.1", "Host: x", "X-Api-Key: a", "x-api-KEY: b", "Connection: close"), []int{400}, 0},
		{"a cookie twice in one line", lines("GET /cookies HTTP/1.1", "Host: x", "Cookie: session=a; session=b", "Connection: close"), []int{400}, 0},
		{"a cookie twice in two lines", lines("GET /cookies HTTP/1.1", "Host: x", "Cookie: session=a", "Cookie: session=b", "Connection: close"), []int{400}, 0},
		{"a key of a megabyte", lines("GET /keyed HTTP/1.1", "Host: x", "X-Api-Key: "+strings.Repeat("k", 1<<20)), []int{431}, 0},
		{"a target of a megabyte", lines("GET /"+strings.Repeat("p", 1<<20)+" HTTP/1.1", "Host: x"), []int{431}, 0},
		{"more headers than fit", lines("GET / HTTP/1.1", "Host: x", strings.Repeat("X-A: b\r\n", 5000)+"X-B: c"), []int{431}, 0},
		{"many headers", lines("GET / HTTP/1.1", "Host: x", strings.Repeat("X-A: b\r\n", 1000)+"Connection: close"), []int{200}, 1},
		{"a body that is too large", lines("POST /api/x HTTP/1.1", "Host: x", "Content-Length: 1048577") + strings.Repeat("b", 10000), []int{413}, 0},
		{"chunks that are too large", lines("POST /api/x HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + strings.Repeat("10000\r\n"+strings.Repeat("b", 0x10000)+"\r\n", 17), []int{413}, 1},
		{"a chunk that has no length", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + "zz\r\nxx\r\n0\r\n\r\n" + smuggled, []int{400}, 1},
		{"a chunk of immense length", lines("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + "fffffffffffffffff\r\nxx\r\n0\r\n\r\n" + smuggled, []int{400}, 1},
		{"HTTP/1.0", lines("GET /api/x HTTP/1.0", "Host: x"), []int{200}, 1},
		{"HTTP/1.0 without a host", lines("GET /api/x HTTP/1.0"), []int{200}, 1},
		{"invalid UTF-8 in path and value", lines("GET /\xff\xfe%ff%fe HTTP/1.1", "Host: x", "X-A: \xc3\x28", "Connection: close"), []int{200}, 1},
		{"incomplete percent-encodings", lines("GET /api/%/%4/%zz?%=% HTTP/1.1", "Host: x", "Connection: close"), []int{400}, 1}, // net/http's refusal
		{"an encoded null", lines("GET /api/%00 HTTP/1.1", "Host: x", "Connection: close"), []int{400}, 0},
		{"pipelined requests", strings.Repeat(lines("GET /api/x HTTP/1.1", "Host: x"), 5) + lines("GET / HTTP/1.1", "Host: x", "Connection: close"), []int{200, 200, 200, 200, 200, 200}, 6},
		{"pipelined with bodies", strings.Repeat(lines("POST /api/x HTTP/1.1", "Host: x", "Content-Length: 3")+"abc", 3) + lines("GET / HTTP/1.1", "Host: x", "Connection: close"), []int{200, 200, 200, 200}, 4},
		{"pipelined behind a bad one", lines("GET / HTTP/1.1", "Host: x") + "bad\r\n\r\n" + smuggled, []int{200, 400}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			allowed += c.origin + 1 // and the one that asks whether the node still serves
			answers, err := rawExchange(n.public, c.payload)
			require.NoError(t, err)
			if got := statuses(answers); !strings.Contains(t.Name(), "HTTP/2/") || !slices.Equal(got, overHTTP2[c.name]) {
				require.Equal(t, c.want, got)
			}
			// Summed over the cases so far: the start of a refused upload may reach the
			// origin late.
			require.LessOrEqual(t, n.asked.Load(), allowed, "requests that reached the origin")
			require.Zero(t, n.smuggled.Load())
			require.NotContains(t, answers[0].body, "goroutine")
			if answers[0].status >= 400 && c.origin == 0 {
				require.Equal(t, "application/problem+json", answers[0].header.Get("Content-Type"))
			}
			require.Equal(t, 200, n.get("/").status, "the node still serves")
		})
	}
	require.Zero(t, n.metric("weir_panics_total"))
}

// Whatever form of its path a request uses, the rule for the plain path counts it, or it
// is refused.
func TestPathFormsAreNoBypass(t *testing.T) {
	n := start(t, setup{rules: apiRules})
	counted := []string{
		"/api/x", "/%61pi/x", "/%61%70%69/x", "/api/./x", "/api/x/../y", "/api/x?y=/other", "/api/x?y=http://other/", "/api/x//y?u=a://b/c",
		"http://anything/api/x", "http://user:pw@anything/%61pi/x", "http://anything:80/api/../api/x", "/api/%zz",
	}
	refused := []string{
		"//api/x", "///api///x", "/./api/x", "/x/../api/x", "/../api/x", "/../../../api/x", "/%61%70%69%2fx", "/%2fapi/x", "/%2e/api/x",
		"/x/%2e%2e/api/x", "/x/%2E./api/x", "/x/..%2fapi/x", "//x/..//api//x", "//api/x?y=http://other/z", "//api/x?y=://",
		"HTTP://anything//api/x",
	}
	for i, target := range append(counted, refused...) {
		for _, host := range []string{"HTTP/1.1\r\nHost: x", "HTTP/1.0\r\nHost: x", "HTTP/1.0\r\nAccept: */*"} {
			left := n.remainingAt("/api/x")
			answers := n.raw(lines("GET "+target+" "+host, "Connection: close"))
			require.Len(t, answers, 1, target)
			if i < len(counted) {
				require.Equal(t, left-1, n.remainingAt("/api/x"), "%s %q was not counted", target, host)
			} else {
				require.Equal(t, 400, answers[0].status, "%s %q", target, host)
			}
		}
	}
	require.Equal(t, n.remainingAt("/api/x"), n.remainingAt("/%61pi/x"), "explain reads paths as requests are read")
}

func (n *node) remainingAt(path string) int64 {
	n.t.Helper()
	return n.explained("api", "192.0.2.1", "&path="+strings.ReplaceAll(path, "%", "%25")).Remaining
}

func TestHostFormsAreNoBypass(t *testing.T) {
	n := start(t, setup{rules: apiRules})
	for _, request := range []string{
		lines("GET / HTTP/1.1", "Host: api.example.com", "Connection: close"),
		lines("GET / HTTP/1.1", "Host: API.Example.COM:8080", "Connection: close"),
		lines("GET / HTTP/1.1", "Host: api.example.com.", "Connection: close"),
		lines("GET /other//x?y=:// HTTP/1.1", "Host: api.example.com", "Connection: close"),
		// In an absolute target the host counts, for the origin too (RFC 9112, 3.2.2).
		lines("GET http://api.example.com/ HTTP/1.1", "Host: other", "Connection: close"),
	} {
		before := n.explained("hosted", "192.0.2.1", "&host=api.example.com").Remaining
		require.Equal(t, []int{200}, statuses(n.raw(request)), request)
		require.Equal(t, before-1, n.explained("hosted", "192.0.2.1", "&host=api.example.com").Remaining, request)
	}
	seen := make(chan string, 1)
	n = start(t, setup{origin: func(_ http.ResponseWriter, r *http.Request) { seen <- r.Host + " " + r.RequestURI }})
	n.raw(lines("GET http://api.example.com/a//b?c HTTP/1.1", "Host: other", "Connection: close"))
	require.Equal(t, "api.example.com /a//b?c", <-seen)
}

// The body bytes that a refusal leaves unread must not become requests.
func TestRefusedBodyIsNotTheNextRequest(t *testing.T) {
	n := start(t, setup{rules: "rules: [{id: none, match: {paths: [/refused]}, key: [], limit: 1, window: 1h}]"})
	require.Equal(t, 200, n.get("/refused").status)
	inner := lines("GET /smuggled HTTP/1.1", "Host: x", "Connection: close")
	for _, size := range []int{10, 8 << 10, 8<<10 + 1, 100 << 10} {
		body := strings.Repeat(inner, size/len(inner)+1)[:size]
		answers := n.raw(lines("POST /refused HTTP/1.1", "Host: x", fmt.Sprintf("Content-Length: %d", size)) + body +
			lines("GET /after HTTP/1.1", "Host: x", "Connection: close"))
		require.Contains(t, [][]int{{429, 200}, {429}}, statuses(answers), "%d bytes", size)
	}
	answers := n.raw(lines("POST /refused HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(inner), inner))
	require.Equal(t, []int{429}, statuses(answers))
}

func TestSlowHeaderIsCutOff(t *testing.T) {
	n := start(t, setup{config: func(c *config.Config) { c.Server.ReadTimeout = 200 * time.Millisecond }})
	began := time.Now()
	for _, part := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow"} {
		require.Equal(t, []int{408}, statuses(n.raw(part)), part)
	}
	promised(t, time.Since(began), 5*time.Second)
	require.Zero(t, n.asked.Load())
	eventually(t, "a header that is not slow passes", func() bool {
		return slices.Equal(statuses(n.raw(lines("GET / HTTP/1.1", "Host: x", "Connection: close"))), []int{200})
	})
}

func TestSlowTLSHandshakeIsCutOff(t *testing.T) {
	n := startTLS(t, setup{config: func(c *config.Config) { c.Server.ReadTimeout = 200 * time.Millisecond }})
	answers, err := rawExchange(n.public, "\x16\x03\x01\x02\x00")
	require.NoError(t, err)
	require.Empty(t, answers)
}

func TestHostileFloodIsBounded(t *testing.T) {
	n := start(t, setup{rules: apiRules})
	payloads := []string{
		lines("GET /keyed HTTP/1.1", "Host: x", "X-Api-Key: "+strings.Repeat("k", 32<<10)),
		lines("POST / HTTP/1.1", "Host: x", "Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		lines("GET /keyed HTTP/1.1", "Host: x", "X-Api-Key: a", "X-Api-Key: b", "Connection: close"),
		"\x00\x01\x02garbage\r\n\r\n",
	}
	flood := func(count int) {
		var wg sync.WaitGroup
		failed := make(chan error, 8)
		for w := range 8 {
			wg.Go(func() {
				for i := w; i < count; i += 8 {
					if answers, err := rawExchange(n.public, payloads[i%len(payloads)]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						failed <- err
						return
					} else if len(answers) != 1 || answers[0].status < 400 {
						failed <- fmt.Errorf("payload %d: %v", i%len(payloads), statuses(answers))
						return
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-failed:
			require.NoError(t, err)
		default:
		}
	}
	flood(200) // fills the pools
	before := heap()
	flood(2000)
	require.Less(t, heap()-before, int64(16<<20), "bytes that 2,000 hostile requests leave behind")
	require.Zero(t, n.asked.Load())
	require.Equal(t, 200, n.get("/").status)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
