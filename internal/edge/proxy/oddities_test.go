package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// replies is an upstream that answers each request with the same bytes.
func replies(t *testing.T, answer string) string {
	return evil(t, func(c net.Conn, br *bufio.Reader) {
		for _, ok := head(br); ok; _, ok = head(br) {
			_, _ = io.WriteString(c, answer)
		}
	})
}

// repliesHTTP2 is an upstream that answers each stream with that status.
func repliesHTTP2(t *testing.T, status string) string {
	return evil(t, func(c net.Conn, br *bufio.Reader) {
		_, err := io.ReadFull(br, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, br)
		_ = f.WriteSettings()
		for err == nil {
			var frame http2.Frame
			if frame, err = f.ReadFrame(); frame != nil && frame.Header().Type == http2.FrameHeaders {
				var block bytes.Buffer
				_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: status})
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.Header().StreamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
			}
		}
	})
}

// A status that no client can be sent is the upstream's fault.
func TestImpossibleStatuses(t *testing.T) {
	f := func(upstream, name string) {
		t.Helper()
		e := newEdge(t, Config{Upstreams: []string{upstream}}, ForwardOptions{})
		resp, body := e.get(t, "/")
		require.Equal(t, http.StatusBadGateway, resp.StatusCode, name)
		require.Equal(t, KindBadResponse.String(), body, name)
	}
	for _, status := range []string{"0", "7", "99", "1000", "20000"} {
		f(replies(t, fmt.Sprintf("HTTP/1.1 %s OK\r\nContent-Length: 0\r\n\r\n", status)), status)
		f(replies(t, fmt.Sprintf("HTTP/1.1 %s OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status)), status)
		f("h2c"+strings.TrimPrefix(repliesHTTP2(t, status), "http"), status)
	}
}

// once sends one request, and returns the answer as it comes.
func (e *edge) once(t *testing.T, request string) (resp *http.Response, header string) {
	t.Helper()
	c, err := net.Dial("tcp", e.addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	var seen bytes.Buffer
	resp, err = http.ReadResponse(bufio.NewReader(io.TeeReader(c, &seen)), nil)
	require.NoError(t, err, "%q", seen.String())
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return resp, seen.String()
}

// HTTP/2 has no Upgrade, which a server may ignore.
func TestUpgradeToHTTP2(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) { w.Header()["X-Got"] = r.Header["Upgrade"] })
	e := newEdge(t, Config{Upstreams: []string{"h2c" + strings.TrimPrefix(up, "http")}, Upgrades: []string{"websocket"}}, ForwardOptions{})
	for _, protocol := range []string{"websocket", "other"} {
		resp, _ := e.once(t, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
		require.Equal(t, http.StatusOK, resp.StatusCode, protocol)
		require.Empty(t, resp.Header["X-Got"])
	}
}

// No origin gets CONNECT, in whatever case: some read methods so.
func TestConnectInAnyCase(t *testing.T) {
	e := newEdge(t, Config{Upstreams: []string{refused(t)}}, ForwardOptions{})
	for _, method := range []string{"CONNECT", "connect", "Connect"} {
		for _, target := range []string{"/", "h:443", "http://h/"} {
			resp, _ := e.once(t, method+" "+target+" HTTP/1.1\r\nHost: h\r\n\r\n")
			if target == "h:443" && method != http.MethodConnect { // no URI
				require.Equal(t, http.StatusBadRequest, resp.StatusCode, "%s %s", method, target)
			} else {
				require.Equal(t, http.StatusNotImplemented, resp.StatusCode, "%s %s", method, target)
			}
			require.True(t, resp.Close)
		}
	}
}

// What is no name of a header, or no text, does not reach clients: programs differ on it.
func TestOddAnswersAreCleaned(t *testing.T) {
	for _, odd := range []string{"200 O\x01dd\r\n", "200 O\x7fdd\r\n", "200 OK\r\nX Odd: 1\r\n", "200 OK\r\nX\tOdd: 1\r\n", "200 OK\r\nX-\x01Odd: 1\r\n", "200 OK\r\nX(Odd): 1\r\n", "200 OK\r\nX-Name: O\x01dd\r\n"} {
		e := newEdge(t, Config{Upstreams: []string{replies(t, "HTTP/1.1 "+odd+"X-Good: 2\r\nContent-Length: 0\r\n\r\n")}}, ForwardOptions{})
		resp, header := e.once(t, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		t.Logf("%q: %q", odd, resp.Status)
		require.NotContains(t, strings.ToLower(header), "odd")
		require.NotContains(t, header, "dd")
	}
}
