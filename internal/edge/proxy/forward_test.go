package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmallExchanges(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("Got", fmt.Sprintf("%s %d %v", r.Method, r.ContentLength, r.TransferEncoding))
			fmt.Fprintf(w, "%s", b)
		}
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	f := func(method, path, body string, wantStatus int, wantGot string) {
		t.Helper()
		req, err := http.NewRequest(method, e.url+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := e.client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, wantStatus, resp.StatusCode)
		require.Equal(t, wantGot, resp.Header.Get("Got"))
		if method != "HEAD" && wantStatus == 200 {
			require.Equal(t, body, string(b))
		}
		e.wait(t)
	}
	for range 3 {
		f("GET", "/", "", 200, "GET 0 []")
		f("HEAD", "/", "", 200, "HEAD 0 []")
		f("POST", "/", "hello", 200, "POST 5 []")
		f("POST", "/", "", 200, "POST 0 []")
		f("DELETE", "/", "x", 200, "DELETE 1 []")
		f("GET", "/", "body of a get", 200, "GET 13 []")
		f("PUT", "/", strings.Repeat("x", smallRequest), 200, fmt.Sprintf("PUT %d []", smallRequest))
		f("PUT", "/", strings.Repeat("x", smallRequest+1), 200, fmt.Sprintf("PUT %d []", smallRequest+1))
		f("GET", "/204", "", 204, "")
		f("GET", "/304", "", 304, "")
	}
	require.EqualValues(t, 30, e.finished.Load())
	u := e.pool.ups[0]
	u.mu.Lock()
	defer u.mu.Unlock()
	require.Equal(t, 1, u.open, "one connection served all")
}

func TestChunkedRequestAndExpect(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %v %q %q %v", r.ContentLength, r.TransferEncoding, b, r.Header.Get("Expect"), r.Trailer)
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	got := e.raw(t, "POST / HTTP/1.1\r\nHost: h\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"+
		"Connection: close\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n")
	require.True(t, strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), got)
	require.Contains(t, got, `-1 [chunked] "abcde" "" map[]`)
}

func TestHTTP10ClientGetsALength(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "part ")
			w.(http.Flusher).Flush()
		}
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	got := e.raw(t, "GET / HTTP/1.0\r\n\r\n")
	require.Contains(t, got, "Content-Length: 15\r\n")
	require.True(t, strings.HasSuffix(got, "\r\n\r\npart part part "), got)
	require.NotContains(t, got, "chunked")

	first := e.raw(t, "GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.0\r\n\r\n")
	require.Equal(t, 2, strings.Count(first, "part part part "), "the client's version still counts: %q", first)
	require.Equal(t, 1, strings.Count(first, "Connection: keep-alive"))
}

// Each upstream here answers a GET in a different wrong way.
func TestEvilUpstreams(t *testing.T) {
	f := func(name, answer string, hold bool, want Kind, status int) {
		t.Run(name, func(t *testing.T) {
			up := evil(t, func(c net.Conn, br *bufio.Reader) {
				head(br)
				_, _ = io.WriteString(c, answer)
				if hold {
					_, _ = io.Copy(io.Discard, br)
				}
			})
			e := newEdge(t, Config{Upstreams: []string{up}, Timeout: limitFor(want),
				StreamTimeout: limitFor(want), MaxResponseHeaderBytes: 4096}, ForwardOptions{})
			resp, body := e.get(t, "/")
			require.Equal(t, status, resp.StatusCode)
			require.Equal(t, want.String(), body)
			require.Equal(t, []Kind{want}, e.kinds())
			require.EqualValues(t, 1, e.finished.Load())
			require.NotEmpty(t, e.err(t).Error())
		})
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	f("closes at once", "", false, KindBroken, 502)
	f("closes in the status line", "HTTP/1.", false, KindBroken, 502)
	f("closes in the header", ok+"Content-Le", false, KindBroken, 502)
	f("closes in a small body", ok+"Content-Length: 5\r\n\r\nhi", false, KindBroken, 502)
	f("garbage", "SSH-2.0-OpenSSH_9.2\r\n\r\n", true, KindBadResponse, 502)
	f("garbage header", ok+"no colon\r\n\r\n", true, KindBadResponse, 502)
	f("two lengths", ok+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nhi", true, KindBadResponse, 502)
	f("negative length", ok+"Content-Length: -1\r\n\r\n", true, KindBadResponse, 502)
	f("huge header", ok+"X: "+strings.Repeat("x", 5000)+"\r\n\r\n", true, KindBadResponse, 502)
	f("upgrade nobody wanted", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", true, KindBadResponse, 502)
	f("interim for ever", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100), true, KindBadResponse, 502)
	f("silence", "", true, KindTimeout, 504)
	f("silence after an interim", "HTTP/1.1 100 Continue\r\n\r\n", true, KindTimeout, 504)
	f("silence in the header", ok+"X: 1\r\n", true, KindTimeout, 504)
	f("silence in a small body", ok+"Content-Length: 5\r\n\r\nhi", true, KindTimeout, 504)
}

// Bytes after a response would be taken for the answer to the next request.
func TestSurplusBytesEndTheConnection(t *testing.T) {
	f := func(name, answer, want string) {
		t.Run(name, func(t *testing.T) {
			var conns atomic.Int32
			up := evil(t, func(c net.Conn, br *bufio.Reader) {
				conns.Add(1)
				for {
					if _, ok := head(br); !ok {
						return
					}
					_, _ = io.WriteString(c, answer)
				}
			})
			e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
			for range 3 {
				resp, body := e.get(t, "/")
				require.Equal(t, want, body)
				require.NotContains(t, resp.Header, "Poison")
				require.Len(t, resp.Header["Content-Length"], len(resp.Header["Content-Length"])&1)
				e.wait(t)
			}
			require.EqualValues(t, 3, conns.Load())
		})
	}
	const poison = "HTTP/1.1 200 OK\r\nPoison: 1\r\nContent-Length: 6\r\n\r\npoison"
	f("after a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"+poison, "ok")
	f("after no content", "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\npoison", "")
	f("after not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\npoison", "")
	f("both lengths", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"+poison, "ok")
	f("unknown length", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "ok")
}

// closesKept answers one request per connection as if it would keep the connection,
// then closes it; if swallow is set, it reads the second request first.
func closesKept(t *testing.T, swallow bool) (url string, conns *atomic.Int32, closed chan struct{}) {
	conns, closed = new(atomic.Int32), make(chan struct{}, 100)
	return evil(t, func(c net.Conn, br *bufio.Reader) {
		conns.Add(1)
		if _, ok := head(br); !ok {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if swallow {
			head(br)
		}
		c.Close()
		closed <- struct{}{}
	}), conns, closed
}

func TestKeptConnectionThatClosed(t *testing.T) {
	f := func(name, method string, body io.Reader, swallow bool, wantStatus int, wantConns int32) {
		t.Run(name, func(t *testing.T) {
			up, conns, closed := closesKept(t, swallow)
			e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
			_, first := e.get(t, "/")
			require.Equal(t, "ok", first)
			if !swallow {
				<-closed
			}
			req, err := http.NewRequest(method, e.url, body)
			require.NoError(t, err)
			resp, err := e.client.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.Equal(t, wantStatus, resp.StatusCode)
			require.Equal(t, wantConns, conns.Load())
		})
	}
	f("get", "GET", nil, false, 200, 2)
	f("get, request lost", "GET", nil, true, 200, 2)
	f("put, small body", "PUT", strings.NewReader("x"), false, 200, 2)
	f("post, nothing sent", "POST", strings.NewReader("x"), false, 200, 2)
	f("post, request lost", "POST", strings.NewReader("x"), true, 502, 1)
	f("put, request lost", "PUT", strings.NewReader("x"), true, 502, 1)
	f("delete, request lost", "DELETE", nil, true, 502, 1)
	f("put, streamed, request lost", "PUT", io.MultiReader(strings.NewReader("x")), true, 502, 1)
	f("get, streamed, request lost", "GET", io.MultiReader(strings.NewReader("x")), true, 502, 1)
}

// An origin that reads requests and hangs up gets each of them once, or twice if it is safe.
func TestAnOriginGetsARequestAtMostTwice(t *testing.T) {
	f := func(method string, most int32) {
		t.Run(method, func(t *testing.T) {
			var asked atomic.Int32
			up := evil(t, func(c net.Conn, br *bufio.Reader) {
				for {
					h, ok := head(br)
					if !ok || !strings.HasPrefix(h, "GET /first") {
						if ok {
							asked.Add(1)
						}
						_ = c.Close()
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
			for i := range int32(5) {
				_, first := e.get(t, "/first")
				require.Equal(t, "ok", first)
				req, err := http.NewRequest(method, e.url, nil)
				require.NoError(t, err)
				resp, err := e.client.Do(req)
				require.NoError(t, err)
				resp.Body.Close()
				require.Equal(t, 502, resp.StatusCode)
				require.Equal(t, most*(i+1), asked.Load())
			}
		})
	}
	f("GET", 2)
	f("HEAD", 2)
	f("OPTIONS", 2)
	f("PUT", 1)
	f("DELETE", 1)
	f("POST", 1)
	f("PATCH", 1)
}

func TestPostGoesToTheNextUpstreamIfNoneConnected(t *testing.T) {
	var hits atomic.Int32
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	})
	e := newEdge(t, Config{Upstreams: []string{refused(t), up, refused(t)}, FailAfter: 1000}, ForwardOptions{})
	for i := range 6 {
		body := strings.Repeat("x", 1+i*5000) // the larger one streams
		resp, err := e.client.Post(e.url, "", strings.NewReader(body))
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		require.Len(t, b, len(body))
		e.wait(t)
	}
	require.EqualValues(t, 6, hits.Load())
	require.Contains(t, e.kinds(), KindConnect)
	require.EqualValues(t, 6, e.finished.Load())
}

func TestNoneConnects(t *testing.T) {
	e := newEdge(t, Config{Upstreams: []string{refused(t), refused(t), refused(t)}}, ForwardOptions{})
	for range 10 { // even when all of them rest
		resp, body := e.get(t, "/")
		require.Equal(t, 502, resp.StatusCode)
		require.Equal(t, "connect", body)
	}
	require.Len(t, e.kinds(), 30, "each upstream once a request")
	require.EqualValues(t, 10, e.finished.Load())
}

func TestTooManyConnections(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{})
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-release
		}
	})
	e := newEdge(t, Config{Upstreams: []string{up}, MaxConns: 1}, ForwardOptions{})
	slow := make(chan error, 1)
	go func() {
		resp, err := e.client.Get(e.url + "/slow")
		if err == nil {
			resp.Body.Close()
		}
		slow <- err
	}()
	<-arrived
	resp, body := e.get(t, "/")
	require.Equal(t, 502, resp.StatusCode)
	require.Equal(t, "unavailable", body)
	close(release)
	require.NoError(t, <-slow)
}

func TestCloseRefuses(t *testing.T) {
	up := origin(t, func(http.ResponseWriter, *http.Request) {})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	e.get(t, "/")
	e.pool.Close()
	resp, body := e.get(t, "/")
	require.Equal(t, 502, resp.StatusCode)
	require.Equal(t, "unavailable", body)
}
