package edge

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

// reluctantOrigin speaks both protocols, and HTTP/2 with a window so small that the end of a body that
// it does not read stays with the node. It counts requests for /smuggled.
func reluctantOrigin(t *testing.T) (addr string, smuggled *atomic.Int64) {
	t.Helper()
	smuggled = &atomic.Int64{}
	done := make(chan struct{})
	addr = originWithWindow(t, 4<<10, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.URL.Path)
		switch r.URL.Path {
		case "/smuggled":
			smuggled.Add(1)
		case "/early":
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, "too large")
		case "/closes":
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusForbidden)
		case "/part":
			_, _ = io.ReadFull(r.Body, make([]byte, 100))
			w.WriteHeader(http.StatusConflict)
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 100<<10))
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/silent":
			select {
			case <-r.Context().Done():
			case <-done:
			}
		default:
			_, _ = io.Copy(w, r.Body)
		}
	})
	t.Cleanup(func() { close(done) })
	return addr, smuggled
}

// Whatever answers a request, what was not read of it does not become the next one: its end is in the
// node's buffer, or comes after the answer.
func TestUnreadBodyIsNoRequest(t *testing.T) {
	origin, smuggled := reluctantOrigin(t)
	inner := lines("DELETE /smuggled HTTP/1.1", "Host: x")
	after := lines("GET /after HTTP/1.1", "Host: x", "Connection: close")
	known := func(name string, size int) unread {
		return unread{name, fmt.Sprintf("Content-Length: %d\r\n", size+len(inner)), strings.Repeat("x", size) + inner}
	}
	chunked := func(name string, size int) unread {
		return unread{name, "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s%s\r\n0\r\n\r\n", size+len(inner), strings.Repeat("x", size), inner)}
	}
	all := []unread{
		known("a small body", 0), known("8 KiB", 8<<10-len(inner)), known("8 KiB and a request", 8<<10), known("20 KiB and a request", 20<<10),
		chunked("a chunk", 0), chunked("a chunk of 8 KiB and a request", 8<<10),
	}
	all, large := all[:6:6], []unread{known("40 KiB", 40<<10), chunked("a chunk of 40 KiB", 40<<10)}
	behind := []unread{{"no body", "", inner}}
	for _, scheme := range []string{"http", "h2c"} {
		begin := func(timeout time.Duration) *node {
			return start(t, setup{rules: `rules:
  - {id: path, match: {paths: [/limited]}, key: [], limit: 1, window: 1h}
  - {id: host, match: {hosts: [limited]}, key: [], limit: 1, window: 1h}`, config: func(c *config.Config) {
				c.Upstreams = []config.Upstream{{URL: scheme + "://" + origin}}
				c.Server.MaxBodyBytes = 30 << 10
				c.Upstream.Timeout, c.Upstream.StreamTimeout = timeout, timeout
			}})
		}
		n, impatient := begin(patience), begin(2*time.Second)
		require.Equal(t, 200, n.get("/limited").status)
		require.Equal(t, 200, n.get("/", "Host: limited").status)
		eventually(t, "the origin's window is known", func() bool { return impatient.get("/").status == 200 })
		for _, c := range []struct {
			name, request string
			want          []int // one of them
			forms         []unread
		}{
			{"the origin answers before it has read", "POST /early HTTP/1.1\r\nHost: x", []int{413}, all},
			{"it wants its own connection closed", "POST /closes HTTP/1.1\r\nHost: x", []int{403, 502}, all},
			{"it reads a part", "POST /part HTTP/1.1\r\nHost: x", []int{409}, all},
			{"its answer is long", "POST /long HTTP/1.1\r\nHost: x", []int{200}, all},
			{"it breaks off", "POST /abort HTTP/1.1\r\nHost: x", []int{502}, all},
			{"it is silent", "POST /silent HTTP/1.1\r\nHost: x", []int{504, 408, 400}, all},
			{"it reads everything", "POST / HTTP/1.1\r\nHost: x", []int{200}, all},
			{"HTTP/1.0", "POST /early HTTP/1.0\r\nConnection: keep-alive\r\nHost: x", []int{413}, all[:3]},
			{"GET", "GET /early HTTP/1.1\r\nHost: x", []int{413}, all},
			{"HEAD", "HEAD /early HTTP/1.1\r\nHost: x", []int{413}, all},
			{"a body that is too large", "POST /early HTTP/1.1\r\nHost: x", []int{413}, large},
			{"a limit refuses", "POST /limited HTTP/1.1\r\nHost: x", []int{429}, append(all, large...)},
			{"a path is refused", "POST /a/../.. HTTP/1.1\r\nHost: x", []int{400}, all},
			{"Connection names a credential", "POST / HTTP/1.1\r\nConnection: Cookie\r\nHost: x", []int{400}, all},
			{"TRACE", "TRACE / HTTP/1.1\r\nHost: x", []int{501}, all},
			{"a version", "POST / HTTP/1.2\r\nHost: x", []int{505, 400}, all},
			{"an expectation", "POST / HTTP/1.1\r\nExpect: 200-ok\r\nHost: x", []int{417}, all},
			{"a limit refuses an upload that waits", "POST /limited HTTP/1.1\r\nExpect: 100-continue\r\nHost: x", []int{429}, all},
			{"the origin refuses an upload that waited", "POST /early HTTP/1.1\r\nExpect: 100-continue\r\nHost: x", []int{413}, all},
			{"an upgrade with a body", "POST /early HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nHost: x", []int{413}, all},
			{"an upgrade with more behind it", "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nHost: x", []int{400}, behind},
			{"CONNECT", "CONNECT x:1 HTTP/1.1\r\nHost: x", []int{501}, append(all, behind...)},
			{"a limit refuses CONNECT", "CONNECT limited:1 HTTP/1.1\r\nHost: limited", []int{429}, append(all, behind...)},
		} {
			t.Run(scheme+"/"+c.name, func(t *testing.T) {
				var conns []net.Conn
				for _, f := range c.forms { // all at once: an answer may take the timeout
					n := n
					if slices.Contains(c.want, 504) {
						n = impatient
					}
					conn, err := net.Dial("tcp", n.public)
					require.NoError(t, err)
					defer conn.Close()
					require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
					// The node may hang up before it has all of this.
					_, _ = io.WriteString(conn, c.request+"\r\n"+f.head+"\r\n"+f.body+after)
					conns = append(conns, conn)
				}
				for i, f := range c.forms {
					method, _, _ := strings.Cut(c.request, " ")
					answers, err := answersTo(conns[i], method)
					require.NoError(t, err, f.name)
					require.NotEmpty(t, answers, f.name)
					require.Contains(t, c.want, answers[0].status, f.name)
					for _, a := range answers[1:] {
						require.Equal(t, "/after", a.header.Get("X-Path"), f.name)
					}
					require.LessOrEqual(t, len(answers), 2, f.name)
				}
				require.Zero(t, smuggled.Swap(0))
			})
		}
		require.Zero(t, n.metric("weir_panics_total"))
	}
}

// unread is what follows the first lines of a request.
type unread struct{ name, head, body string }
