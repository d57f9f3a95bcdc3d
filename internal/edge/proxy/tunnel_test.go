package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// webSockets is an origin that sends every message back.
func webSockets(t *testing.T) string {
	return origin(t, func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{Subprotocols: []string{"echo"}}
		ws, err := up.Upgrade(w, r, http.Header{"X-Origin": {"here"}})
		if err != nil {
			return
		}
		defer ws.Close()
		for {
			kind, b, err := ws.ReadMessage()
			if err != nil || ws.WriteMessage(kind, b) != nil {
				return
			}
		}
	})
}

func (e *edge) tunnels(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return e.pool.Tunnels() == n }, patience, time.Millisecond, "%d tunnels", n)
}

func TestWebSocket(t *testing.T) {
	e := newEdge(t, Config{Upstreams: []string{webSockets(t)}, Upgrades: []string{"websocket"}}, ForwardOptions{})
	d := websocket.Dialer{Subprotocols: []string{"echo"}, HandshakeTimeout: patience}
	ws, resp, err := d.Dial("ws"+strings.TrimPrefix(e.url, "http")+"/ws", nil)
	require.NoError(t, err)
	require.Equal(t, "here", resp.Header.Get("X-Origin"))
	require.Equal(t, `"test";r=1`, resp.Header.Get("RateLimit"))
	require.Equal(t, "echo", ws.Subprotocol())
	require.Equal(t, 1, e.pool.Tunnels())
	for _, size := range []int{0, 1, 125, 70_000, 3 << 20} { // larger than every buffer
		sent := strings.Repeat("x", size)
		require.NoError(t, ws.WriteMessage(websocket.BinaryMessage, []byte(sent)))
		_, got, err := ws.ReadMessage()
		require.NoError(t, err)
		require.Equal(t, sent, string(got))
	}
	require.Zero(t, e.finished.Load(), "the exchange lasts as long as the tunnel")
	require.NoError(t, ws.Close()) // without a word
	e.wait(t)
	e.tunnels(t, 0)
	require.EqualValues(t, 1, e.finished.Load())
	require.Equal(t, []Kind{KindNone}, e.kinds())
}

// switching is an upstream that answers any request with 101 and hands the connection over.
func switching(t *testing.T, protocol string, then func(net.Conn, *bufio.Reader)) string {
	return evil(t, func(c net.Conn, br *bufio.Reader) {
		if _, ok := head(br); ok {
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nhello\n", protocol)
			then(c, br)
		}
	})
}

const upgradeRequest = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"

// open sends an upgrade request and reads the 101 and what the origin said right after
// it.
func (e *edge) open(t *testing.T) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c, br := e.upgrade(t)
	line, err := br.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
	return c, br
}

// upgrade sends an upgrade request and reads the 101.
func (e *edge) upgrade(t *testing.T) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", e.addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, upgradeRequest)
	require.NoError(t, err)
	br := bufio.NewReader(c)
	h, ok := head(br)
	require.True(t, ok)
	require.True(t, strings.HasPrefix(h, "HTTP/1.1 101 "), h)
	require.Contains(t, h, "Connection: Upgrade\r\n")
	require.Contains(t, h, "Upgrade: websocket\r\n")
	return c.(*net.TCPConn), br
}

func TestTunnelEnds(t *testing.T) {
	echo := func(c net.Conn, br *bufio.Reader) { _, _ = io.Copy(c, br) }
	f := func(name string, cfg Config, via ForwardOptions, then func(net.Conn, *bufio.Reader), end func(*testing.T, *edge, *net.TCPConn, *bufio.Reader)) {
		t.Run(name, func(t *testing.T) {
			cfg.Upgrades, cfg.Upstreams = []string{"websocket"}, []string{switching(t, "WebSocket", then)}
			e := newEdge(t, cfg, via)
			open := e.open
			if cfg.TunnelTimeout > 0 || !via.Until.IsZero() { // it may end before the origin speaks
				open = e.upgrade
			}
			c, br := open(t)
			end(t, e, c, br)
			e.wait(t)
			e.tunnels(t, 0)
		})
	}
	closed := func(t *testing.T, _ *edge, _ *net.TCPConn, br *bufio.Reader) {
		_, err := br.ReadByte()
		require.Error(t, err)
	}
	f("half by the client", Config{}, ForwardOptions{}, func(c net.Conn, br *bufio.Reader) {
		b, _ := io.ReadAll(br)
		_, _ = c.Write(append(b, " and all of it"...))
	}, func(t *testing.T, _ *edge, c *net.TCPConn, br *bufio.Reader) {
		_, err := io.WriteString(c, "this")
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		b, err := io.ReadAll(br)
		require.NoError(t, err)
		require.Equal(t, "this and all of it", string(b))
	})
	f("reset by the client", Config{}, ForwardOptions{}, echo, func(t *testing.T, _ *edge, c *net.TCPConn, _ *bufio.Reader) {
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
	})
	f("reset by the origin", Config{}, ForwardOptions{}, func(c net.Conn, _ *bufio.Reader) {
		_ = c.(*net.TCPConn).SetLinger(0)
	}, closed)
	ends := func(t *testing.T, _ *edge, _ *net.TCPConn, br *bufio.Reader) { _, _ = io.Copy(io.Discard, br) }
	f("silence", Config{TunnelTimeout: 50 * time.Millisecond}, ForwardOptions{}, echo, ends)
	f("its time is over", Config{}, ForwardOptions{Until: time.Now().Add(50 * time.Millisecond)}, func(c net.Conn, _ *bufio.Reader) {
		for {
			if _, err := c.Write([]byte("still here\n")); err != nil {
				return
			}
		}
	}, ends)
	f("drain", Config{}, ForwardOptions{}, echo, func(t *testing.T, e *edge, _ *net.TCPConn, br *bufio.Reader) {
		e.pool.DrainTunnels(20 * time.Millisecond)
		require.Zero(t, e.pool.Tunnels())
		closed(t, e, nil, br)
	})
}

// duplex is a connection in virtual time whose halves end separately.
type duplex struct {
	net.Conn // reads
	out      net.Conn
}

func newDuplex() (one, other duplex) {
	r1, w2 := net.Pipe()
	r2, w1 := net.Pipe()
	return duplex{r1, w1}, duplex{r2, w2}
}

func (d duplex) Write(b []byte) (int, error) { return d.out.Write(b) }
func (d duplex) CloseWrite() error           { return d.out.Close() }
func (d duplex) Close() error                { d.out.Close(); return d.Conn.Close() }

// How long a tunnel lasts, to the instant.
func TestTunnelLasts(t *testing.T) {
	silent := func(duplex) {}
	chatty := func(origin duplex) {
		for range time.Tick(time.Second) {
			if _, err := origin.Write([]byte{'.'}); err != nil {
				return
			}
		}
	}
	f := func(name string, timeout, until time.Duration, half bool, talk func(origin duplex), want time.Duration) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &Pool{cfg: Config{TunnelTimeout: timeout}, epoch: time.Now()}
				client, near := newDuplex()
				origin, far := newDuplex()
				up := &upstream{cfg: &p.cfg, open: 1}
				up.busy.Store(1)
				tun := &tunnel{p: p, client: &clientConn{Conn: near}, c: &conn{Conn: far, up: up, br: bufio.NewReader(far)}}
				p.tunnels.running.Add(1)
				var sides sync.WaitGroup
				defer sides.Wait()
				sides.Go(func() { _, _ = io.Copy(io.Discard, client) })
				sides.Go(func() { talk(origin) })
				if half {
					require.NoError(t, client.CloseWrite())
				}
				time.Sleep(time.Second) // of the pool's life
				began := time.Now()
				if until != 0 {
					tun.until = began.Add(until).Sub(p.epoch)
				}
				tun.run()
				require.Equal(t, want, time.Since(began))
				require.Zero(t, up.busy.Load()+int32(up.open))
			})
		})
	}
	briefly := func(origin duplex) { // bytes from one side are enough
		tick := time.Tick(time.Second)
		for range 30 {
			<-tick
			if _, err := origin.Write([]byte{'.'}); err != nil {
				return
			}
		}
		_ = origin.CloseWrite()
	}
	f("in silence", time.Minute, 0, false, silent, time.Minute)
	f("while one side talks", 2*time.Second, 0, false, briefly, 31*time.Second)
	f("while its time lasts", time.Minute, 90*time.Second, false, chatty, 90*time.Second)
	f("when its time is over", time.Minute, -time.Millisecond, false, chatty, 0)
	f("half closed, in silence", time.Minute, 0, true, silent, halfClosed)
	f("half closed, as silent as others may be", 2*time.Second, 0, true, silent, 2*time.Second)
	f("half closed, while its time lasts", time.Minute, 5*time.Second, true, chatty, 5*time.Second)
	f("half closed, long after", time.Minute, 45*time.Second, true, chatty, 45*time.Second)
}

// A tunnel that begins while others are drained ends, or does not begin; the race detector
// looks on.
func TestTunnelBeginsDuringADrain(t *testing.T) {
	for range 2000 {
		p := &Pool{epoch: time.Now()}
		_, near := newDuplex()
		_, far := newDuplex()
		client := &clientConn{Conn: near}
		var ctx fasthttp.RequestCtx
		ctx.Init2(client, nil, false)
		ctx.Response.Header.Set("Upgrade", "websocket")
		var both sync.WaitGroup
		both.Go(func() { p.DrainTunnels(0) })
		if p.startTunnel(&ctx, &conn{Conn: far, up: &upstream{}}, &ForwardOptions{upgrade: []byte("websocket")}) == nil {
			require.NoError(t, client.Close()) // as fasthttp does that cannot answer
		}
		both.Wait()
		require.Zero(t, p.Tunnels())
	}
}

// When an Upgrade is dropped, the origin gets an ordinary request.
func TestUpgradeNotForwarded(t *testing.T) {
	seen := make(chan *http.Request, 100)
	o := origin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- r
		_, _ = io.WriteString(w, "plain")
	})
	e := newEdge(t, Config{Upstreams: []string{o}, Upgrades: []string{"websocket"}}, ForwardOptions{})
	for name, request := range map[string]string{
		"h2c":                 "GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
		"h2c alongside one":   "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
		"h2c in another line": "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
		"not in Connection":   "GET / HTTP/1.1\r\nUpgrade: websocket\r\n",
		"only in Connection":  "GET / HTTP/1.1\r\nConnection: upgrade\r\n",
		"closing":             "GET / HTTP/1.1\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n",
		"with a body":         "POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n",
		"with chunks":         "POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n",
		"of HTTP/1.0":         "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			body := map[string]string{"with a body": "ab", "with chunks": "2\r\nab\r\n0\r\n\r\n"}[name]
			body += "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
			for len(seen) > 0 {
				<-seen
			}
			answer := e.raw(t, request+"Host: a\r\n\r\n"+body)
			r := <-seen
			require.Empty(t, r.Header.Get("Upgrade"))
			require.Empty(t, r.Header.Get("Connection"))
			require.Empty(t, r.Header.Get("Http2-Settings"))
			require.True(t, strings.HasPrefix(answer, "HTTP/1.1 200"), answer)
			if name != "of HTTP/1.0" {
				require.Equal(t, "/last", (<-seen).URL.Path, "the next request counts as one")
			}
		})
	}
	require.Zero(t, e.pool.Tunnels())
}

func TestUpgradeRefused(t *testing.T) {
	f := func(name string, serve http.HandlerFunc, want string) {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, Config{Upstreams: []string{origin(t, serve)}, Upgrades: []string{"websocket"}}, ForwardOptions{})
			d := websocket.Dialer{HandshakeTimeout: patience}
			_, resp, err := d.Dial("ws"+strings.TrimPrefix(e.url, "http"), nil)
			require.ErrorIs(t, err, websocket.ErrBadHandshake)
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, want, fmt.Sprint(resp.StatusCode, " ", string(b)))
			e.wait(t)
			require.Zero(t, e.pool.Tunnels())
		})
	}
	f("403", func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "websocket", r.Header.Get("Upgrade"))
		http.Error(w, "no", http.StatusForbidden)
	}, "403 no\n")
	f("200", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") }, "200 page")
	f("another protocol", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "h2c")
		w.WriteHeader(101)
	}, "502 bad_response")
	f("none", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, "502 bad_response")
}

// A client must wait for the 101. What it sends before could be a request that bypasses
// every decision if the upstream does not switch as weir assumes.
func TestBytesBehindAnUpgrade(t *testing.T) {
	reached := false
	e := newEdge(t, Config{Upgrades: []string{"websocket"}, Upstreams: []string{origin(t, func(http.ResponseWriter, *http.Request) { reached = true })}}, ForwardOptions{})
	for _, behind := range []string{"\x81\x00", "GET /hidden HTTP/1.1\r\n", "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n", "x\n"} {
		answer := e.raw(t, upgradeRequest+behind)
		require.True(t, strings.HasPrefix(answer, "HTTP/1.1 400"), answer)
		require.Equal(t, 1, strings.Count(answer, "HTTP/1.1 "), answer)
	}
	require.False(t, reached)
}
