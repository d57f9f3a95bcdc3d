package edge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/testenv"
)

// consulting has a rule for each part of a request that a client controls.
const consulting = `
rules:
  - {id: client, key: [client_ip], limit: 10000, window: 1h}
  - {id: header, key: ["header:X-Api-Key", path], limit: 10000, window: 1h}
  - {id: credential, key: ["header:Authorization"], limit: 10000, window: 1h}
  - {id: cookie, key: ["cookie:session", host], limit: 10000, window: 1h}
  - {id: query, match: {paths: ["/api/*"]}, key: ["query:user", method], limit: 10000, window: 1h}
  - {id: tier, key: [tier], limit: 10000, window: 1h}
`

// sentConn is a connection whose client has sent everything and waits for the answers.
type sentConn struct {
	remote
	says    *bytes.Reader
	answers bytes.Buffer
}

// Read implements net.Conn.
func (c *sentConn) Read(b []byte) (int, error) { return c.says.Read(b) }

// Write implements net.Conn.
func (c *sentConn) Write(b []byte) (int, error)      { return c.answers.Write(b) }
func (c *sentConn) Close() error                     { return nil }
func (c *sentConn) SetDeadline(time.Time) error      { return nil }
func (c *sentConn) SetReadDeadline(time.Time) error  { return nil }
func (c *sentConn) SetWriteDeadline(time.Time) error { return nil }

// accepts is a listener that has one connection.
type accepts struct{ conn net.Conn }

func (a accepts) Accept() (net.Conn, error) { return a.conn, nil }
func (accepts) Close() error                { return nil }
func (accepts) Addr() net.Addr              { return &net.TCPAddr{} }

// strict is an origin that remembers a request that net/http could not read. It requires only that the target is
// one word: the meaning of a percent sign is between client and origin.
type strict struct{ wrong atomic.Pointer[error] }

func (s *strict) fault() error {
	if err := s.wrong.Swap(nil); err != nil {
		return *err
	}
	return nil
}

func (s *strict) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for from := bufio.NewReader(conn); ; {
				line, err := from.ReadString('\n')
				if err != nil {
					return
				}
				words := strings.Split(line, " ")
				if len(words) != 3 {
					err = fmt.Errorf("request line %q", line)
				} else {
					err = s.read(words[0]+" / "+words[2], from)
				}
				if err != nil {
					s.wrong.Store(&err)
					return
				}
				if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
					return
				}
			}
		}()
	}
}

func (*strict) read(line string, rest io.Reader) error {
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(line), rest)))
	if err == nil {
		_, _ = io.Copy(io.Discard, r.Body) // a client may truncate it
	}
	return err
}

// Whatever a client sends, each answer is whole, the origin can read what it gets, and no
// request costs more than its bound.
func FuzzRequest(f *testing.F) {
	for _, header := range [][]string{
		{"GET /api/users/42?user=7&user=8 HTTP/1.1", "Host: api.example.com", "X-Forwarded-For: 203.0.113.1, 10.0.0.2"},
		{"GET /x HTTP/1.1", "Host: [::1]:80", "X-Forwarded-For: [2001:db8::1]:443, fe80::1%eth0", "X-Forwarded-For: 1.2.3.4:5"},
		{"GET http://api.example.com/%2e%2e/a;b?user=%zz HTTP/1.1", "Host: api.example.com", "X-Tier: pro"},
		{"HEAD /../%2f HTTP/1.0", "Connection: keep-alive, X-Api-Key", "X-Api-Key: k"},
		{"GET / HTTP/1.1", "Host: x", "Cookie: session=1; a; =b; session=\"2\"", "Authorization: bAsIc  YTpi", "X-Cost: 7"},
		{"GET / HTTP/1.1", "Host: x", "Forwarded: for=\"[2001:db8::1]\"", "Upgrade: websocket", "Connection: Upgrade", "Via: 1.1 weir"},
		{"POST / HTTP/1.1", "Host: x", "Expect: 100-continue", "Content-Length: 3"},
		{"OPTIONS * HTTP/1.1", "Host: x", "TE: trailers", "X_Forwarded_For: 1.1.1.1"},
	} {
		f.Add([]byte(lines(header...)))
	}
	f.Add([]byte(lines("POST /up HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + "3;a=b\r\nabc\r\n0\r\nX-Api-Key: t\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"))

	origin := &strict{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f, err)
	go origin.serve(l)
	f.Cleanup(func() { _ = l.Close() })
	c := config.Dev(l.Addr().String())
	c.TrustedProxies, c.TierHeader = []string{"10.0.0.0/8"}, "X-Tier"
	c.Rules.File = "unused"
	require.NoError(f, c.Validate())
	e, err := New(c, consulting, discard())
	require.NoError(f, err)
	f.Cleanup(e.close)
	server := e.publicServer()
	f.Fuzz(func(t *testing.T, input []byte) {
		client := &sentConn{remote: remote{addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 40000}}, says: bytes.NewReader(input)}
		conn, err := proxy.Timeouts{}.Listen(accepts{client}).Accept()
		require.NoError(t, err)
		testenv.Bounded(t, 8<<20+256*uint64(len(input)), func() { _ = server.ServeConn(conn) }) // ends when the client does
		require.NoError(t, origin.fault(), "the origin could not read what it got")
		for answers := bufio.NewReader(&client.answers); ; {
			if _, err := answers.Peek(1); err != nil {
				return
			}
			resp, err := http.ReadResponse(answers, &http.Request{Method: http.MethodGet})
			require.NoError(t, err)
			if bytes.Contains(input, []byte("HEAD")) || resp.StatusCode < 200 {
				return // this test cannot know which answer has no body
			}
			_, err = io.Copy(io.Discard, resp.Body)
			require.True(t, err == nil || errors.Is(err, io.ErrUnexpectedEOF) && resp.Close, "%v", err)
		}
	})
}

// Whatever an operator's browser or a stranger sends to the admin side, the node does not fail.
func FuzzAdmin(f *testing.F) {
	e := inMemory(f, consulting)
	handler := e.admin.Handler()
	f.Add("GET", "/v1/explain?client=203.0.113.7&path=/x&header=X-Api-Key:k&cookie=session=b&query=user=1&tier=pro&host=a", "", "127.0.0.1:1")
	f.Add("DELETE", "/v1/limits?rule=header&client=203.0.113.7&header=X-Api-Key:k&path=/a;b", "", "localhost")
	f.Add("PUT", "/v1/shedder?for=15m", "{enabled: false, signals: {cpu: off}}", "[::1]:1")
	f.Add("PUT", "/v1/shedder", "classes: [{name: read, match: []}]", "127.0.0.1")
	f.Add("GET", "/v1/rules?brief", "", "evil.example.com")
	f.Fuzz(func(t *testing.T, method, target, body, host string) {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")))
		if err != nil || strings.HasPrefix(req.URL.Path, "/debug/") {
			return // net/http's parsers and profiles
		}
		req.Body, req.RemoteAddr = io.NopCloser(strings.NewReader(body)), "127.0.0.1:40000"
		answer := httptest.NewRecorder()
		testenv.Bounded(t, 64<<20, func() { handler.ServeHTTP(answer, req) })
		require.Less(t, answer.Code, http.StatusInternalServerError, answer.Body)
	})
}
