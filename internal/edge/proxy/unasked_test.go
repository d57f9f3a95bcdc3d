package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const poison = "HTTP/1.1 200 OK\r\nPoison: 1\r\nContent-Length: 6\r\n\r\npoison"

// liar answers each request with the path it asked for, except the first request to
// /lie on a connection: that gets answer, and more when due fires.
type liar struct {
	answer, more string
	end          bool          // hang up after more
	due          chan struct{} // time to send more
	sent         chan struct{} // more has been sent
}

func newLiar(answer, more string, end bool) *liar {
	return &liar{answer, more, end, make(chan struct{}), make(chan struct{})}
}

func (l *liar) serve(c net.Conn, br *bufio.Reader) {
	for {
		request, ok := head(br)
		if !ok {
			return
		}
		path := strings.Fields(request)[1]
		if path != "/lie" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: "+string(rune('0'+len(path)))+"\r\n\r\n"+path)
			continue
		}
		_, _ = io.WriteString(c, l.answer)
		<-l.due
		_, _ = io.WriteString(c, l.more)
		if l.end {
			c.Close()
		}
		l.sent <- struct{}{}
		if l.end {
			return
		}
	}
}

// lies are answers and what follows them later, in a packet of its own.
var lies = []struct {
	name, method, answer, more string
	end                        bool
}{
	{"body after HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 57\r\n\r\n", poison, false},
	{"body after 204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", poison, false},
	{"body after 304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 57\r\n\r\n", poison, false},
	{"more than its length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", poison, false},
	{"more than no length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", poison, false},
	{"more than a long length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("x", 20000), poison, false},
	{"after the last chunk", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", poison, false},
	{"after the trailer", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n", poison, false},
	{"one line feed", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "\n", false},
	{"late interim response", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 100 Continue\r\n\r\n", false},
	{"idle 408", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", true},
}

// lie makes the upstream send unrequested bytes on an idle connection.
func (e *edge) lie(t *testing.T, l *liar, method string) {
	t.Helper()
	req, err := http.NewRequest(method, e.url+"/lie", nil)
	require.NoError(t, err)
	resp, err := e.client.Do(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	resp.Body.Close()
	e.wait(t) // the connection is idle
	l.due <- struct{}{}
	<-l.sent
	e.arrived(t)
}

// arrived waits until what the origin has sent, or its end, has arrived on the idle connections.
func (e *edge) arrived(t *testing.T) {
	t.Helper()
	u := e.pool.ups[0]
	u.mu.Lock()
	idle := slices.Clone(u.idle)
	u.mu.Unlock()
	for _, c := range idle {
		await(t, "what the origin sent arrives", func() bool { return c.look() != idleQuiet })
	}
}

// No client gets bytes that arrived before its request was sent.
func TestUnaskedBytesReachNobody(t *testing.T) {
	for _, lie := range lies {
		t.Run(lie.name, func(t *testing.T) {
			l := newLiar(lie.answer, lie.more, lie.end)
			e := newEdge(t, Config{Upstreams: []string{evil(t, l.serve)}}, ForwardOptions{})
			e.lie(t, l, lie.method)
			for _, path := range []string{"/a", "/bb", "/ccc"} {
				resp, body := e.get(t, path)
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, path, body)
				require.NotContains(t, resp.Header, "Poison")
				e.wait(t)
			}
		})
	}
}

func (e *edge) keptConnections(t *testing.T) (open, idle int) {
	u := e.pool.ups[0]
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open, len(u.idle)
}

// A caught upstream gets a new connection for each request until it has behaved for a
// minute. Its other idle connections are closed too.
func TestUnaskedBytesEndKeepAlive(t *testing.T) {
	l := newLiar("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", poison, false)
	var conns atomic.Int32
	e := newEdge(t, Config{Upstreams: []string{evil(t, func(c net.Conn, br *bufio.Reader) {
		conns.Add(1)
		l.serve(c, br)
	})}}, ForwardOptions{})
	u := e.pool.ups[0]
	other, err := u.get(true)
	require.NoError(t, err)
	u.put(other, true, time.Since(u.epoch))
	for range 3 {
		e.get(t, "/honest")
		e.wait(t)
	}
	require.EqualValues(t, 1, conns.Load(), "kept while it behaves")
	require.Empty(t, e.caught())

	e.lie(t, l, "GET")
	for i := range 3 {
		_, body := e.get(t, "/a")
		require.Equal(t, "/a", body)
		e.wait(t)
		open, idle := e.keptConnections(t)
		require.Zero(t, open+idle)
		require.EqualValues(t, 2+i, conns.Load())
	}
	require.Equal(t, []bool{true}, e.caught())
	u.unsolicited(time.Since(u.epoch)) // again, while it has no credit
	require.Equal(t, []bool{true, false}, e.caught())

	u.mu.Lock()
	require.InDelta(t, time.Since(u.epoch)+keepAliveBan, u.keepFrom, float64(patience))
	u.keepFrom = 0 // the minute is over
	u.mu.Unlock()
	for range 3 {
		e.get(t, "/a")
		e.wait(t)
	}
	require.EqualValues(t, 5, conns.Load())
	_, idle := e.keptConnections(t)
	require.Equal(t, 1, idle)
}

// An upstream may close an idle connection.
func TestClosingIdleIsNoLie(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn) error{
		"end":   (*net.TCPConn).Close,
		"half":  (*net.TCPConn).CloseWrite,
		"reset": func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			due, ended := make(chan struct{}), make(chan struct{}, 1)
			first := true
			e := newEdge(t, Config{Upstreams: []string{evil(t, func(c net.Conn, br *bufio.Reader) {
				for {
					if _, ok := head(br); !ok {
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					if first {
						first = false
						<-due
						_ = end(c.(*net.TCPConn))
						ended <- struct{}{}
					}
				}
			})}}, ForwardOptions{})
			e.get(t, "/")
			e.wait(t)
			close(due)
			<-ended
			for range 3 {
				_, body := e.get(t, "/")
				require.Equal(t, "ok", body)
				e.wait(t)
			}
			require.Empty(t, e.caught())
			_, idle := e.keptConnections(t)
			require.Equal(t, 1, idle)
		})
	}
}
