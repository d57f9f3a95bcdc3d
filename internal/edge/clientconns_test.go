package edge

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

const refusedPerClient = `weir_connections_refused_total{reason="max_connections_per_client"}`

// from connects to the public side from one of this machine's addresses.
func (n *node) from(addr string) *net.TCPConn {
	n.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}, Timeout: patience}
	c, err := d.DialContext(n.t.Context(), "tcp", n.public)
	require.NoError(n.t, err)
	require.NoError(n.t, c.SetDeadline(time.Now().Add(patience)))
	n.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// answers requests a page and returns the status, 0 if the connection is closed.
func answers(t *testing.T, c net.Conn) int {
	t.Helper()
	_, _ = io.WriteString(c, lines("GET / HTTP/1.1", "Host: localhost"))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		netErr, ok := err.(net.Error)
		require.False(t, ok && netErr.Timeout(), "neither served nor closed")
		return 0
	}
	read(t, resp)
	return resp.StatusCode
}

func (n *node) openOf(addr string) int {
	_, own := n.listeners.Clients.Open(netip.MustParsePrefix(addr))
	return own
}

// openOfAll returns how many connections clients have, without those that speak another protocol.
func (n *node) openOfAll() int64 {
	all, _ := n.listeners.Clients.Open(netip.Prefix{})
	return all
}

func TestConnectionsPerClient(t *testing.T) {
	n := start(t, setup{config: func(c *config.Config) {
		c.Server.MaxConnectionsPerClient = 2
		c.TrustedProxies = []string{"127.0.0.9"}
	}})
	first, second := n.from("127.0.0.1"), n.from("127.0.0.1")
	require.Equal(t, 200, answers(t, first))
	require.Equal(t, 200, answers(t, second))
	for range 3 {
		require.Zero(t, answers(t, n.from("127.0.0.1")))
	}
	require.Equal(t, 200, answers(t, n.from("127.0.0.2")), "another client")
	for range 3 {
		require.Equal(t, 200, answers(t, n.from("127.0.0.9")), "a trusted proxy")
	}
	require.EqualValues(t, 3, n.metric(refusedPerClient))
	logged := n.logs.lines(t, "connection refused")
	require.NotEmpty(t, logged)
	require.Equal(t, "127.0.0.1", logged[0]["client"])
	require.Equal(t, "server.max_connections_per_client", logged[0]["limit"])
	require.Equal(t, 200, answers(t, first), "the open ones are served")

	require.NoError(t, first.Close())
	eventually(t, "there is room", func() bool { return n.openOf("127.0.0.1/32") == 1 })
	require.Equal(t, 200, answers(t, n.from("127.0.0.1")))
	require.Zero(t, answers(t, n.from("127.0.0.1")))
}

// A silent client for which there is no room keeps nobody else out.
func TestConnectionsOfAll(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, setup) *node{"plain": start, "TLS": startTLS} {
		t.Run(name, func(t *testing.T) {
			n := begin(t, setup{origin: echoOrPage, config: func(c *config.Config) { c.Server.MaxConnections = 1 }})
			first, second := n.from("127.0.0.1"), n.from("127.0.0.2")
			_, err := second.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.EqualValues(t, 1, n.metric(`weir_connections_refused_total{reason="max_connections"}`))
			room := func() bool { return n.openOfAll() == 0 }
			require.NoError(t, first.Close())
			eventually(t, "there is room", room)
			if name == "TLS" {
				require.Equal(t, 200, n.ask("GET", "https://"+n.public+"/").status)
				return
			}
			ws, _, err := websocket.DefaultDialer.Dial("ws://"+n.public+"/ws", nil)
			require.NoError(t, err)
			defer ws.Close()
			eventually(t, "a WebSocket does not count", room)
			require.Equal(t, 200, answers(t, n.from("127.0.0.1")))
		})
	}
}

// However a connection ends, it makes room once and leaves nothing behind.
func TestConnectionsPerClientAreReturned(t *testing.T) {
	ends := map[string]func(*testing.T, *node, *net.TCPConn){
		"unused": func(_ *testing.T, _ *node, c *net.TCPConn) { c.Close() },
		"half":   func(t *testing.T, _ *node, c *net.TCPConn) { require.NoError(t, c.CloseWrite()) },
		"reset":  func(_ *testing.T, _ *node, c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
		"kept": func(t *testing.T, _ *node, c *net.TCPConn) {
			require.Equal(t, 200, answers(t, c))
			c.Close()
		},
		"by the server": func(t *testing.T, _ *node, c *net.TCPConn) {
			_, err := io.WriteString(c, lines("GET / HTTP/1.1", "Host: localhost", "Connection: close"))
			require.NoError(t, err)
		},
		"garbage": func(t *testing.T, _ *node, c *net.TCPConn) {
			_, err := io.WriteString(c, "\x16\x03nothing\r\n\r\n")
			require.NoError(t, err)
		},
	}
	check := func(t *testing.T, n *node, end func(*testing.T, *node, *net.TCPConn)) {
		t.Helper()
		c := n.from("127.0.0.1")
		eventually(t, "it is counted", func() bool { return n.openOf("127.0.0.1/32") == 1 })
		end(t, n, c)
		eventually(t, "nothing is counted", func() bool { return n.openOf("127.0.0.1/32") == 0 })
		require.Zero(t, n.metric(refusedPerClient))
	}
	one := func(c *config.Config) { c.Server.MaxConnectionsPerClient, c.Server.ReadTimeout = 1, patience }
	plain, secured := start(t, setup{config: one, origin: echoOrPage}), startTLS(t, setup{config: one})
	ends["websocket"] = func(t *testing.T, n *node, c *net.TCPConn) {
		d := websocket.Dialer{HandshakeTimeout: patience, NetDial: func(string, string) (net.Conn, error) { return c, nil }}
		ws, _, err := d.Dial("ws://"+n.public+"/ws", nil)
		require.NoError(t, err)
		require.Equal(t, 1, n.openOf("127.0.0.1/32"))
		ws.Close()
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) { check(t, plain, end) })
		if name == "kept" || name == "by the server" || name == "websocket" {
			end = func(t *testing.T, n *node, c *net.TCPConn) {
				config := n.client.Transport.(*http.Transport).TLSClientConfig.Clone()
				config.ServerName = "localhost"
				secured := tls.Client(c, config)
				require.Equal(t, 200, answers(t, secured))
				if name != "kept" {
					c.Close() // without TLS's close notify
					return
				}
				secured.Close()
			}
		}
		t.Run("TLS "+name, func(t *testing.T) { check(t, secured, end) })
	}
	for name, begin := range map[string]func(*testing.T, setup) *node{"silence": start, "TLS silence": startTLS} {
		t.Run(name, func(t *testing.T) {
			n := begin(t, setup{config: func(c *config.Config) { c.Server.MaxConnectionsPerClient, c.Server.ReadTimeout = 1, time.Second }})
			_, err := io.Copy(io.Discard, n.from("127.0.0.1")) // until it is closed
			require.NoError(t, err)
			eventually(t, "nothing is counted", func() bool { return n.openOf("127.0.0.1/32") == 0 })
			require.Zero(t, n.metric(refusedPerClient))
		})
	}
}

func echoOrPage(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ws" {
		echo(w, r)
	}
}
