package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asSent returns what the upstream received for a raw request.
func asSent(t *testing.T, via ForwardOptions, request string) string {
	t.Helper()
	got := make(chan string, 1)
	up := evil(t, func(c net.Conn, br *bufio.Reader) {
		h, ok := head(br)
		if !ok {
			return
		}
		got <- h
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, via)
	answer := e.raw(t, request)
	require.Contains(t, answer, " 200 OK\r\n")
	return <-got
}

func TestRequestHeaders(t *testing.T) {
	trusted := ForwardOptions{Trusted: true, TLS: true}
	f := func(name string, via ForwardOptions, in string, want, absent []string) {
		t.Run(name, func(t *testing.T) {
			lines := strings.ReplaceAll(in, "\n", "\r\n")
			got := "\r\n" + asSent(t, via, lines+"\r\nConnection: close\r\n\r\n")
			for _, w := range want {
				require.Equal(t, 1, strings.Count(got, "\r\n"+w+"\r\n"), "%q once in %q", w, got)
			}
			for _, a := range absent {
				require.NotContains(t, strings.ToLower(got), strings.ToLower(a))
			}
		})
	}
	f("plain", ForwardOptions{}, "GET /a?b HTTP/1.1\nHost: Example.COM:81\nAccept: */*",
		[]string{"GET /a?b HTTP/1.1", "Host: Example.COM:81", "Accept: */*", "X-Forwarded-For: 192.0.2.1",
			"X-Forwarded-Host: Example.COM:81", "X-Forwarded-Proto: http"},
		[]string{"connection:", "user-agent", "content-type", "content-length"})
	f("untrusted claims", ForwardOptions{TLS: true}, "GET / HTTP/1.1\nHost: h\nX-Forwarded-For: 1.1.1.1\nx-forwarded-for:\n"+
		"X-FORWARDED-FOR: 2.2.2.2\nForwarded:\nForwarded: for=3.3.3.3\nX-Real-IP: 4.4.4.4\nX-Forwarded-Host: evil\n"+
		"X-Forwarded-Proto: gopher\nX-Forwarded-Port: 5\nX-Original-URL: /six\nX-Rewrite-Url: /seven",
		[]string{"X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: h", "X-Forwarded-Proto: https"},
		[]string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4", "evil", "gopher", "port", "forwarded:", "six", "seven"})
	f("trusted", trusted, "GET / HTTP/1.1\nHost: h\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\nX-Forwarded-For: 3.3.3.3\n"+
		"Forwarded: for=3.3.3.3\nX-Real-IP: 4.4.4.4\nX-Forwarded-Host: www\nX-Forwarded-Proto: http\nX-Original-URL: /six\nX-Rewrite-Url: /seven",
		[]string{"X-Original-Url: /six", "X-Rewrite-Url: /seven", "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.1", "X-Forwarded-Host: www",
			"X-Forwarded-Proto: http", "Forwarded: for=3.3.3.3", "X-Real-Ip: 4.4.4.4"}, nil)
	f("trusted without claims", trusted, "GET / HTTP/1.1\nHost: h",
		[]string{"X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: h", "X-Forwarded-Proto: https"}, nil)
	f("hop by hop", ForwardOptions{}, "GET / HTTP/1.1\nHost: h\nKeep-Alive: 1\nProxy-Authenticate: a\nProxy-Authorization: b\n"+
		"Proxy-Connection: c\nTE: trailers\nTrailer: X-T\nUpgrade: websocket\nconnection: X-Hop , upgrade\nX-Hop: 1\n"+
		"X-End: 2\nExpect: 100-other", []string{"X-End: 2"},
		[]string{"keep-alive", "proxy-", "te:", "trailer", "upgrade", "hop", "connection:", "expect"})
	f("hostile connection", trusted, "POST / HTTP/1.1\nHost: h\nContent-Length: 0\nX-Forwarded-For: 1.1.1.1\n"+
		"Connection: X-Forwarded-For, Host, Content-Length\nConnection: X-Forwarded-Proto, x-forwarded-host, x-gone\nX-Gone: 1",
		[]string{"Host: h", "Content-Length: 0", "X-Forwarded-For: 1.1.1.1, 192.0.2.1", "X-Forwarded-Proto: https",
			"X-Forwarded-Host: h"}, []string{"gone", "connection:"})
	f("target as sent", ForwardOptions{}, "GET //a/../b%2f%41//c/./%zz?q=%20+x&&y=//:http://z HTTP/1.1\nHost: h",
		[]string{"GET //a/../b%2f%41//c/./%zz?q=%20+x&&y=//:http://z HTTP/1.1"}, nil)
	f("absolute target", ForwardOptions{}, "GET http://u:p@Real:80?q HTTP/1.1\nHost: pretended",
		[]string{"GET /?q HTTP/1.1", "Host: Real:80", "X-Forwarded-Host: Real:80"}, []string{"pretended", "authorization"})
	f("asterisk", ForwardOptions{}, "OPTIONS * HTTP/1.1\nHost: h", []string{"OPTIONS * HTTP/1.1"}, nil)
	f("http 1.0", ForwardOptions{}, "GET / HTTP/1.0", []string{"GET / HTTP/1.1"}, nil)
	f("cookies stay apart", ForwardOptions{}, "GET / HTTP/1.1\nHost: h\nCookie: a=1;b=2\nCookie: c=\"3\"",
		[]string{"Cookie: a=1;b=2", "Cookie: c=\"3\""}, nil)
}

func TestResponseHeaders(t *testing.T) {
	up := evil(t, func(c net.Conn, br *bufio.Reader) {
		head(br)
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+
			"HTTP/1.1 299 Fine Enough\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: p\r\nX-Keep: 1\r\nX-Drop: 2\r\n"+
			"Connection: X-Drop, Content-Length\r\nConnection: close\r\nUpgrade: h2c\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"+
			"Content-Length: 2\r\nServer: origin\r\n\r\nok")
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	resp, body := e.get(t, "/")
	require.Equal(t, "ok", body)
	require.Equal(t, "299 Fine Enough", resp.Status)
	require.False(t, resp.Close, "the upstream's Connection: close is not the client's")
	require.Equal(t, []string{"a=1", "b=2"}, resp.Header["Set-Cookie"])
	require.Equal(t, "origin", resp.Header.Get("Server"))
	require.Equal(t, "1", resp.Header.Get("X-Keep"))
	require.NotEmpty(t, resp.Header.Get("RateLimit"), "what the caller adds")
	for _, name := range []string{"Keep-Alive", "Proxy-Authenticate", "X-Drop", "Upgrade", "Link", "Connection"} {
		require.NotContains(t, resp.Header, name)
	}
}

// What fasthttp refuses, and what only CheckFraming finds: all of it gets 400, and the
// connection is closed.
func TestFraming(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	f := func(name string, ours bool, request string) {
		t.Run(name, func(t *testing.T) {
			before := len(e.errs)
			got := e.raw(t, request)
			require.True(t, strings.HasPrefix(got, "HTTP/1.1 400 "), got)
			require.Equal(t, 1, strings.Count(got, "HTTP/1.1"), "one answer: %q", got)
			require.Equal(t, ours, len(e.errs) > before, "found by CheckFraming")
		})
	}
	const get, post = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
	f("both lengths", true, post+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f("both lengths, other order", true, post+"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n")
	f("both lengths, identity", true, post+"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi")
	f("folded", true, get+"X-A: 1\r\n 2\r\n\r\n")
	f("folded connection", true, get+"Connection: a,\r\n\tX-Forwarded-For\r\n\r\n")
	f("bare line feed", false, get+"X-A: 1\nX-B: 2\r\n\r\n")
	f("two lengths", false, post+"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi")
	f("list of lengths", false, post+"Content-Length: 2, 2\r\n\r\nhi")
	f("signed length", false, post+"Content-Length: +2\r\n\r\nhi")
	f("space before colon", false, get+"Content-Length : 2\r\n\r\n")
	f("tab before colon", false, get+"X-A\t: 2\r\n\r\n")
	f("two encodings", false, post+"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f("unknown encoding", false, post+"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
	f("encoding in 1.0", false, "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f("two hosts", false, get+"Host: i\r\n\r\n")
	f("no host", false, "GET / HTTP/1.1\r\n\r\n")
	f("first line folded", false, "GET / HTTP/1.1\r\n Host: h\r\n\r\n")
	f("null in a value", false, get+"X-A: a\x00b\r\n\r\n")
	f("carriage return in a value", false, get+"X-A: a\rb\r\n\r\n")
	f("bad chunk", true, post+"Transfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n")
}

func TestConnect(t *testing.T) {
	up := origin(t, func(http.ResponseWriter, *http.Request) {})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	require.Contains(t, e.raw(t, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n"), " 501 ")
	require.Equal(t, KindUnsupported, e.err(t).Kind)
}

func TestNewRefuses(t *testing.T) {
	f := func(want string, ups ...string) {
		t.Helper()
		_, err := New(Config{Upstreams: ups})
		require.ErrorContains(t, err, want)
	}
	f("upstreams: want 1 to 64, got 0")
	f(`upstreams[1].url "ftp://h": want http://, https:// or h2c://`, "http://h", "ftp://h")
	f("upstreams[0].url \"http://\": want a host", "http://")
	f("upstreams[0].url \"127.0.0.1:9000\": has no scheme; write http://127.0.0.1:9000", "127.0.0.1:9000")
	f("upstreams[0].url \"localhost:9000\": has no scheme; write http://localhost:9000", "localhost:9000")
	f("want no path", "http://h/p")
	f("want no path", "http://h?q")
	f("want no user", "http://u@h")
	f("upstreams[0].url", "http://h:port")
	_, err := New(Config{Upstreams: []string{"http://h"}, Timeout: -1})
	require.ErrorContains(t, err, "timeout -1ns: must not be negative")
}
