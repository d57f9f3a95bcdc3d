package edge

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

const (
	balancer       = "127.0.0.8"
	refusedHeaders = `weir_connections_refused_total{reason="proxy_protocol"}`
	clientsLine    = "PROXY TCP4 203.0.113.7 192.0.2.1 40000 443\r\n"
)

// version2 is a header of version 2 with these bytes behind the fixed part.
func version2(command, family byte, rest ...string) string {
	body := strings.Join(rest, "")
	b := append([]byte(nil), proxyproto.SIGV2...)
	b = binary.BigEndian.AppendUint16(append(b, command, family), uint16(len(body)))
	return string(b) + body
}

const (
	addresses4 = "\xcb\x00\x71\x07\xc0\x00\x02\x01\x9c\x40\x01\xbb" // 203.0.113.7 to 192.0.2.1
	mapped7    = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xcb\x00\x71\x07"
	ports      = "\x9c\x40\x01\xbb"
)

var (
	sixth      = "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x07"
	addresses6 = sixth + sixth + ports
)

// headers are good ones, by whom they name; "" is the balancer.
var headers = []struct{ name, header, client string }{
	{"version 1", clientsLine, "203.0.113.7"},
	{"version 1, IPv6", "PROXY TCP6 2001:db8::7 2001:db8::1 40000 443\r\n", "2001:db8::7"},
	{"version 1, IPv4 as IPv6", "PROXY TCP6 ::ffff:203.0.113.7 ::ffff:192.0.2.1 40000 443\r\n", "203.0.113.7"},
	{"version 1, the longest", "PROXY TCP6 2001:0db8:aaaa:bbbb:cccc:dddd:eeee:0007 2001:0db8:aaaa:bbbb:cccc:dddd:eeee:0001 40000 65535\r\n", "2001:db8:aaaa:bbbb:cccc:dddd:eeee:7"},
	{"version 1, unknown", "PROXY UNKNOWN\r\n", ""},
	{"version 1, unknown and more", "PROXY UNKNOWN ffff::ffff 1.2.3.4 65535 x\r\n", ""},
	{"version 2", version2(0x21, 0x11, addresses4), "203.0.113.7"},
	{"version 2, IPv6", version2(0x21, 0x21, addresses6), "2001:db8::7"},
	{"version 2, IPv4 as IPv6", version2(0x21, 0x21, mapped7, mapped7, ports), "203.0.113.7"},
	{"version 2, TLVs", version2(0x21, 0x11, addresses4, "\x01\x00\x02h2", "\x03\x00\x04\x00\x00\x00\x00"), "203.0.113.7"},
	{"version 2, the longest", version2(0x21, 0x11, addresses4, strings.Repeat("\xff", 65535-len(addresses4))), "203.0.113.7"},
	{"version 2, one byte more than is kept", version2(0x21, 0x21, addresses6, strings.Repeat("\x04", 217-len(addresses6))), "2001:db8::7"},
	{"version 2, local", version2(0x20, 0x00), ""},
	{"version 2, local with addresses", version2(0x20, 0x11, addresses4), ""},
	{"version 2, local with anything", version2(0x20, 0x11, "anything"), ""},
	{"version 2, local with much", version2(0x20, 0x00, strings.Repeat("\xff", 65535)), ""},
	{"version 2, local of an unknown family", version2(0x20, 0x01, addresses4), ""},
	{"version 2, local of a later family", version2(0x20, 0x41, "anything"), ""},
	{"version 2, of no family", version2(0x21, 0x00), ""},
	{"version 2, of no family, TLVs", version2(0x21, 0x00, "\x03\x00\x04\x00\x00\x00\x00"), ""},
	{"version 2, a Unix socket", version2(0x21, 0x31, strings.Repeat("/", 216)), ""},
}

// tellsPeer is an origin that answers with whom it was asked for.
func tellsPeer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ws" {
		echo(w, r)
		return
	}
	_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
}

func balanced(more func(*config.Config)) setup {
	return setup{origin: tellsPeer, config: func(c *config.Config) {
		c.Listen.ProxyProtocol = &config.ProxyProtocol{From: []string{balancer, "127.0.0.16/28"}}
		if more != nil {
			more(c)
		}
	}}
}

// over is a client's connection above a header: TLS if the node speaks that.
func (n *node) over(c net.Conn) net.Conn {
	if n.config.Listen.TLS == nil {
		return c
	}
	config := n.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "localhost"
	return tls.Client(c, config)
}

// says sends a request and returns the body of its answer.
func says(t *testing.T, c net.Conn, header ...string) string {
	t.Helper()
	_, err := io.WriteString(c, lines(append([]string{"GET / HTTP/1.1", "Host: localhost"}, header...)...))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	a := read(t, resp)
	require.Equal(t, 200, a.status, a.body)
	return a.body
}

// inPieces writes what it is given first in pieces.
type inPieces struct {
	net.Conn
	first []byte
	size  int
}

// Write implements net.Conn.
func (c *inPieces) Write(b []byte) (int, error) {
	size := len(b)
	b = append(c.first, b...)
	for c.first = nil; len(b) > 0; b = b[min(c.size, len(b)):] {
		if _, err := c.Conn.Write(b[:min(c.size, len(b))]); err != nil {
			return 0, err
		}
	}
	return size, nil
}

func begins(t *testing.T) map[string]func(setup) *node {
	return map[string]func(setup) *node{
		"plain": func(s setup) *node { return start(t, s) },
		"TLS":   func(s setup) *node { return startTLS(t, s) },
	}
}

// However a header arrives, its client is the peer, and no other.
func TestPROXYHeader(t *testing.T) {
	for name, begin := range begins(t) {
		n := begin(balanced(nil))
		for _, h := range headers {
			want := h.client
			if want == "" {
				want = balancer
			}
			t.Run(name+" "+h.name, func(t *testing.T) {
				for _, size := range []int{len(h.header) + 1<<16, len(h.header), 1 + len(h.header)/300} {
					// With the request or the handshake right behind it, before it, and bit by bit.
					c := n.over(&inPieces{n.from(balancer), []byte(h.header), size})
					for range 2 { // the second on the kept connection
						require.Equal(t, want, says(t, c, "X-Forwarded-For: 198.51.100.1"))
					}
				}
			})
		}
		require.Zero(t, n.metric(refusedHeaders))
	}
}

// What a header names is the peer, in every respect: trusted_proxies goes by it.
func TestPROXYHeaderOfATrustedProxy(t *testing.T) {
	n := start(t, balanced(func(c *config.Config) {
		c.TrustedProxies = []string{"203.0.113.0/24", balancer}
		c.Server.MaxConnectionsPerClient = 1
	}))
	client := func(header string) string {
		c := n.from(balancer)
		_, err := io.WriteString(c, header)
		require.NoError(t, err)
		return says(t, c, "X-Forwarded-For: 198.51.100.1")
	}
	for range 2 {
		require.Equal(t, "198.51.100.1, 203.0.113.7", client(clientsLine), "a proxy before the balancer, which no cap counts")
	}
	require.Equal(t, "192.0.2.9", client("PROXY TCP4 192.0.2.9 192.0.2.1 40000 443\r\n"), "not one, though the balancer is")
	require.Equal(t, "198.51.100.1, "+balancer, client("PROXY UNKNOWN\r\n"), "the balancer itself")
}

// A header from elsewhere is not believed: it is no HTTP, and no TLS.
func TestPROXYHeaderFromElsewhere(t *testing.T) {
	for name, begin := range begins(t) {
		n := begin(balanced(nil))
		require.Equal(t, "127.0.0.1", says(t, n.over(n.from("127.0.0.1"))))
		for _, h := range headers {
			t.Run(name+" "+h.name, func(t *testing.T) {
				c := n.over(&inPieces{n.from("127.0.0.15"), []byte(h.header), 1 << 17})
				require.Contains(t, []int{0, 400, 431}, answers(t, c))
			})
		}
		require.EqualValues(t, 1, n.asked.Load())
		require.Zero(t, n.metric(refusedHeaders))
	}
}

// A connection without a whole, good header ends without a word, and is counted and told.
func TestPROXYHeaderRefused(t *testing.T) {
	const missing = "the connection does not begin with a PROXY header; make the balancer send one, or remove it from listen.proxy_protocol.from"
	bad := map[string]struct{ says, fault string }{
		"HTTP":                {lines("GET / HTTP/1.1", "Host: localhost"), missing},
		"TLS":                 {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", missing},
		"almost":              {"PROXY\r\n", missing},
		"almost version 2":    {"\r\n\r\n\x00\r\nQUIT\r\n", missing},
		"endless":             {"PROXY TCP4 " + strings.Repeat("1", 100), "the PROXY header has no end"},
		"a bare line feed":    {"PROXY TCP4 203.0.113.7 192.0.2.1 40000 443\n", "\\r\\n"},
		"no address":          {"PROXY TCP4 localhost 192.0.2.1 40000 443\r\n", "invalid address"},
		"of another family":   {"PROXY TCP4 ::1 192.0.2.1 40000 443\r\n", "invalid address"},
		"no port":             {"PROXY TCP4 203.0.113.7 192.0.2.1 -1 443\r\n", "invalid port"},
		"too little":          {"PROXY TCP4 203.0.113.7\r\n", "address family"},
		"too much":            {"PROXY TCP4 203.0.113.7 192.0.2.1 40000 443 x\r\n", "address family"},
		"of no protocol":      {"PROXY UDP4 203.0.113.7 192.0.2.1 40000 443\r\n", "address family"},
		"version 3":           {version2(0x31, 0x11, addresses4), "version and command"},
		"another command":     {version2(0x22, 0x11, addresses4), "version and command"},
		"another family":      {version2(0x21, 0x41, addresses4), "address family"},
		"another protocol":    {version2(0x21, 0x13, addresses4), "address family"},
		"too short":           {version2(0x21, 0x11, addresses4[:11]), "invalid length"},
		"IPv4 called IPv6":    {version2(0x21, 0x21, addresses4), "invalid length"},
		"cut, version 1":      {clientsLine[:20] + "$", "the connection ended within the PROXY header"},
		"cut, version 2":      {version2(0x21, 0x11, addresses4)[:20] + "$", "the connection ended within the PROXY header"},
		"cut, TLVs":           {version2(0x21, 0x11, addresses4, strings.Repeat("\xff", 500))[:400] + "$", "the connection ended within the PROXY header"},
		"late":                {clientsLine[:20], "the PROXY header did not arrive within server.read_timeout"},
		"silent":              {"", "the PROXY header did not arrive within server.read_timeout"},
		"late, with the TLVs": {version2(0x21, 0x11, addresses4, strings.Repeat("\xff", 500))[:400], "the PROXY header did not arrive within server.read_timeout"},
	}
	for name, begin := range begins(t) {
		begin := func(timeout time.Duration) *node {
			return begin(balanced(func(c *config.Config) { c.Server.ReadTimeout, c.Server.MaxConnectionsPerClient = timeout, 9 }))
		}
		for what, b := range bad {
			t.Run(name+" "+what, func(t *testing.T) {
				timeout := patience
				if strings.HasSuffix(b.fault, "server.read_timeout") {
					timeout = time.Second
				}
				n := begin(timeout) // so that each has its line
				c := n.from(balancer)
				text, cut := strings.CutSuffix(b.says, "$")
				_, err := io.WriteString(c, text)
				require.NoError(t, err)
				if cut {
					require.NoError(t, c.CloseWrite())
				}
				answer, err := io.ReadAll(c)
				if err != nil {
					require.ErrorIs(t, err, syscall.ECONNRESET) // something was not read
				}
				require.Empty(t, answer)
				require.EqualValues(t, 1, n.metric(refusedHeaders))
				logged := n.logs.lines(t, "PROXY header refused")
				require.Len(t, logged, 1)
				require.Equal(t, balancer, logged[0]["balancer"])
				require.Contains(t, logged[0]["error"], b.fault)
				require.Zero(t, n.asked.Load())
				eventually(t, "nothing is left", func() bool { return n.openOfAll() == 0 })
				require.Zero(t, n.metric(`weir_requests_total{code_class="4xx"}`))
			})
		}
		n := begin(patience)
		for range 50 {
			_, err := io.WriteString(n.from(balancer), "x")
			require.NoError(t, err)
		}
		eventually(t, "each is counted", func() bool { return int(n.metric(refusedHeaders)) == 50 })
		require.Less(t, len(n.logs.lines(t, "PROXY header refused")), 20, "not each is logged")
		c := n.from(balancer)
		require.NoError(t, c.CloseWrite())
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.EqualValues(t, 50, n.metric(refusedHeaders), "a balancer that only looks whether the port is open is no fault")
	}
}

// A balancer that says nothing keeps nobody from being accepted, and counts for nobody.
func TestSilentBalancer(t *testing.T) {
	for name, begin := range begins(t) {
		t.Run(name, func(t *testing.T) {
			n := begin(balanced(func(c *config.Config) {
				c.Server.MaxConnectionsPerClient, c.Server.MaxConnections, c.Server.ReadTimeout = 2, 8, time.Minute
			}))
			for range 5 {
				n.from(balancer)
			}
			eventually(t, "they are accepted", func() bool { return n.openOfAll() == 5 })
			require.Equal(t, 200, answers(t, n.over(n.from("127.0.0.1"))))
			c := n.from(balancer)
			_, err := io.WriteString(c, clientsLine)
			require.NoError(t, err)
			require.Equal(t, "203.0.113.7", says(t, n.over(c)))
			require.Equal(t, 1, n.openOf("203.0.113.7/32"))
			require.Zero(t, n.openOf(balancer+"/32"))
			n.from(balancer)
			_, err = n.from(balancer).Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "server.max_connections counts all")
		})
	}
}

// The cap goes by the client that the header names, from the header's end to the connection's.
func TestConnectionsPerClientBehindABalancer(t *testing.T) {
	for name, begin := range begins(t) {
		t.Run(name, func(t *testing.T) {
			n := begin(balanced(func(c *config.Config) { c.Server.MaxConnectionsPerClient = 2 }))
			ask := func(header string) (net.Conn, int) {
				c := n.from(balancer)
				_, err := io.WriteString(c, header)
				require.NoError(t, err)
				secured := n.over(c)
				return secured, answers(t, secured)
			}
			for range 4 {
				_, status := ask(version2(0x20, 0x00))
				require.Equal(t, 200, status, "the balancer's own")
			}
			first, status := ask(clientsLine)
			require.Equal(t, 200, status)
			_, status = ask(version2(0x21, 0x11, addresses4))
			require.Equal(t, 200, status)
			_, status = ask(clientsLine)
			require.Zero(t, status)
			require.EqualValues(t, 1, n.metric(refusedPerClient))
			require.Zero(t, n.metric(refusedHeaders))
			require.Equal(t, "203.0.113.7", n.logs.lines(t, "connection refused")[0]["client"])
			for range 2 {
				_, status = ask(version2(0x21, 0x21, addresses6))
				require.Equal(t, 200, status, "another client")
			}
			require.Equal(t, 2, n.openOf("2001:db8::/64"))
			require.NoError(t, first.Close())
			eventually(t, "there is room", func() bool { return n.openOf("203.0.113.7/32") == 1 })
			_, status = ask(clientsLine)
			require.Equal(t, 200, status)
		})
	}
}

func TestWebSocketBehindABalancer(t *testing.T) {
	for name, begin := range begins(t) {
		t.Run(name, func(t *testing.T) {
			n := begin(balanced(func(c *config.Config) { c.Server.MaxConnectionsPerClient = 1 }))
			c := n.from(balancer)
			d := websocket.Dialer{HandshakeTimeout: patience, NetDial: func(string, string) (net.Conn, error) {
				return n.over(&inPieces{c, []byte(clientsLine), 7}), nil
			}}
			ws, _, err := d.Dial("ws://localhost/ws", nil)
			require.NoError(t, err)
			for _, text := range []string{"hello", strings.Repeat("much", 10_000)} {
				require.NoError(t, ws.WriteMessage(websocket.TextMessage, []byte(text)))
				_, b, err := ws.ReadMessage()
				require.NoError(t, err)
				require.Equal(t, text, string(b))
			}
			require.Equal(t, 1, n.openOf("203.0.113.7/32"))
			require.NoError(t, c.Close())
			eventually(t, "the tunnel ends", func() bool { return n.metric("weir_upgrades_active") == 0 })
			eventually(t, "there is room", func() bool { return n.openOf("203.0.113.7/32") == 0 })
		})
	}
}

// The end of a client is seen through its balancer, also while nothing is sent.
func TestHangUpBehindABalancer(t *testing.T) {
	for name, begin := range begins(t) {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			s := balanced(nil)
			s.origin = func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "begun")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				close(gone)
			}
			n := begin(s)
			c := n.from(balancer)
			secured := n.over(&inPieces{c, []byte(clientsLine), 1 << 16})
			_, err := io.WriteString(secured, lines("GET / HTTP/1.1", "Host: localhost"))
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(secured), nil)
			require.NoError(t, err)
			_, err = io.ReadFull(resp.Body, make([]byte, 5))
			require.NoError(t, err)
			require.NoError(t, c.Close())
			select {
			case <-gone:
			case <-time.After(patience):
				require.Fail(t, "the origin still answers")
			}
		})
	}
}

// A real balancer, by both versions, with TLVs, checks of its own, and TLS passed through.
func TestHAProxy(t *testing.T) {
	for name, begin := range begins(t) {
		t.Run(name, func(t *testing.T) {
			n := begin(balanced(nil))
			p := testenv.FreePorts(t, 4)
			var config strings.Builder
			config.WriteString("global\n  maxconn 100\ndefaults\n  mode tcp\n  timeout connect 60s\n  timeout check 60s\n  timeout client 60s\n  timeout server 60s\n")
			for i, send := range []string{"send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id",
				"send-proxy-v2 check-send-proxy check inter 50ms"} {
				fmt.Fprintf(&config, "listen l%d\n  bind 127.0.0.1:%d\n  unique-id-format %%{+X}o%%ci:%%cp\n  server edge %s source %s %s\n", i, p[i], n.public, balancer, send)
			}
			file := filepath.Join(t.TempDir(), "haproxy.cfg")
			require.NoError(t, os.WriteFile(file, []byte(config.String()), 0o600))
			testenv.Serve(t, p, "haproxy", "-db", "-f", file)
			for i, port := range p {
				client := fmt.Sprintf("127.0.1.%d", i+1)
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}, Timeout: patience}
				c, err := d.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
				require.NoError(t, err)
				defer c.Close()
				require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
				secured := n.over(c)
				for range 2 {
					require.Equal(t, client, says(t, secured))
				}
			}
			require.Zero(t, n.metric(refusedHeaders), n.logs.String())
		})
	}
}
