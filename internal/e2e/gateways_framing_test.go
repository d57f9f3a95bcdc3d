package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// framing: the framing of a client's connection or body does not affect the question. A node
// that waited for a body that no gateway sends would not answer, and requests would pass.
func (l *gatewayLab) framing() {
	t := l.t
	body := strings.Repeat("x", 40_000)
	for name, request := range map[string][2]string{
		"chunked":               {"Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"},
		"long and chunked":      {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)},
		"trailers":              {"Transfer-Encoding: chunked\r\nTrailer: X-Forwarded-For, X-User\r\nTE: trailers", "5\r\nhello\r\n0\r\nX-Forwarded-For: 203.0.113.9\r\nX-User: other\r\n\r\n"},
		"long":                  {fmt.Sprintf("Content-Length: %d", len(body)), body},
		"expects":               {"Expect: 100-continue\r\nContent-Length: 5", "hello"},
		"hop by hop":            {"Connection: close, X-Forwarded-For, X-Forwarded-Uri, X-Original-Uri, X-Original-Method\r\nContent-Length: 0", ""},
		"upgrade":               {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nContent-Length: 0", ""},
		"upgrade to HTTP/2":     {"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 0", ""},
		"names that look alike": {"X_Original_Uri: /free\r\nX_Forwarded_For: 203.0.113.9\r\nX-Forwarded_Uri: /free\r\nContent-Length: 0", ""},
		"lengths that differ":   {"Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"},
	} {
		passed, refused := 0, 0
		for i := range 12 {
			a := l.raw(l.addrs[i%2], "POST /ten/x HTTP/1.1\r\nHost: "+l.addrs[i%2]+"\r\nX-User: "+name+"\r\n"+request[0]+"\r\n\r\n"+request[1])
			switch {
			case a.status == 200:
				passed++
				require.Regexp(t, `^"ten";r=`, a.header.Get("RateLimit"), "%s: decided", name)
			default:
				refused++
				require.Contains(t, []int{400, 429, 501}, a.status, "%s: %s", name, a.body)
			}
		}
		t.Logf("%s: %d pass, %d do not", name, passed, refused)
		require.LessOrEqual(t, passed, 10, "%s", name)
		require.GreaterOrEqual(t, refused, 2, "%s", name)
	}
}

// hosts: however a client names the host, rules count by the one that the origin reads.
func (l *gatewayLab) hosts() {
	for _, request := range []string{
		"/ HTTP/1.1\r\nHost: limited.example",
		"/ HTTP/1.1\r\nHost: LIMITED.example",
		"/ HTTP/1.1\r\nHost: limited.example:8000",
		"/ HTTP/1.1\r\nHost: Limited.Example.:80",
		"/ HTTP/1.1\r\nHost: limited.example\r\nHost: other.example",
		"/ HTTP/1.1\r\nHost: other.example\r\nHost: limited.example",
		"http://limited.example/ HTTP/1.1\r\nHost: limited.example",
		"http://limited.example:80/ HTTP/1.1\r\nHost: limited.example",
		"http://limited.example/ HTTP/1.1\r\nHost: other.example",
		"http://other.example/ HTTP/1.1\r\nHost: limited.example",
		"http://other.example/ HTTP/1.1\r\nHost: Limited.example:8000",
		"http://limited.example/ HTTP/1.0",
		"http://other.example/ HTTP/1.0\r\nHost: limited.example",
	} {
		for i := range 12 {
			a := l.raw(l.addrs[i%2], "GET "+request+"\r\n\r\n")
			require.Contains(l.t, []int{200, 400, 429}, a.status, request)
		}
		require.EqualValues(l.t, 10, l.limited.Load(), "%s: the origin got more than the rule admits", request)
	}
}

// raw sends bytes on a new connection.
func (l *gatewayLab) raw(gateway, request string) answer {
	t := l.t
	conn, err := net.Dial("tcp", gateway)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(testenv.Patience)))
	_, err = conn.Write([]byte(request))
	require.NoError(t, err)
	from := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(from, nil)
		require.NoError(t, err, "%.200s", request)
		if resp.StatusCode != http.StatusContinue {
			return answer{resp.StatusCode, resp.Header, resp.Status}
		}
	}
}
