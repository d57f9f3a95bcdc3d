package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/testenv"
)

// Idle connections, which send no token, do not keep an operator out.
func TestAdminHoldsSoManyConnections(t *testing.T) {
	n := start(t, setup{})
	var conns []net.Conn
	for range httpconns.Max + 10 {
		c, err := net.Dial("tcp", n.admin)
		require.NoError(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	require.Equal(t, 200, n.operate("GET", "/v1/rules").status)
	for i, c := range conns { // an operator's own took a place too
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		if i <= 10 {
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "connection %d has waited longest", i)
			continue
		}
		_, err := io.WriteString(c, lines("GET /healthz HTTP/1.1", "Host: localhost", "Connection: close"))
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err, "connection %d", i)
		require.Equal(t, 200, resp.StatusCode)
		resp.Body.Close()
	}
}

// Requests of which only a part arrives keep neither operators out nor the node out of DNS, even
// if they come from the address of both.
func TestHalfSentRequestsKeepNobodyOut(t *testing.T) {
	region, files := testenv.StartConsul(t, testenv.ConsulOptions{}), testenv.Certificates(t)
	put := lines("PUT /v1/shedder?for=1m HTTP/1.1", "Host: localhost", "Content-Length: 100000")
	for _, c := range []struct {
		name, begin string
		tls         bool
	}{
		{"header", "GET /readyz HTTP/1.1\r\nHost: loc", false},
		{"body", put, false},
		{"body of a probe", lines("GET /readyz HTTP/1.1", "Host: localhost", "Content-Length: 100000"), false},
		{"body by TLS", put, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := publish(t, region)
			p.apply(ruleA)
			n := start(t, p.setup(func(to *config.Config) {
				to.Node.ID, to.Consul.Register = strings.ReplaceAll(c.name, " ", "-"), true
				if c.tls {
					to.Listen.AdminTLS = &config.MutualTLS{Pair: pairOf(files)}
				}
			}))
			url, client := "http://"+n.admin, (*tls.Config)(nil)
			n.speak(nil)
			if c.tls {
				url, client = "https://"+n.admin, files.ClientConfig(t)
				n.speak(client)
			}
			var half *testenv.HalfSent
			// checked waits until Consul has checked the node with these rules, and returns what it
			// said if a check failed.
			checked := func(version string) (failed string) {
				eventually(t, "a check", func() bool {
					all, err := region.Client().Agent().Checks()
					check := all["service:weir-edge-"+n.config.Node.ID]
					if err != nil || check == nil {
						return false
					}
					if check.Status != "passing" {
						failed = check.Output
					}
					return strings.Contains(check.Output, version) || half != nil && failed != ""
				})
				return failed
			}
			checked(p.apply(ruleB))
			half = testenv.SendHalf(t, n.admin, client, c.begin, httpconns.Max+44)
			for _, document := range []string{ruleA, ruleC, ruleB} {
				half.Drip()
				require.Equal(t, 200, n.ask("GET", url+"/v1/rules").status)
				require.Equal(t, 200, n.ask("GET", url+"/healthz").status)
				require.Empty(t, checked(p.apply(document)))
			}
		})
	}
}

// oneConn is a listener with one connection to accept.
type oneConn struct{ conns chan net.Conn }

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l oneConn) Close() error   { return nil }
func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// A request that does not end is cut off, and the node does not wait for a stranger's
// body.
func TestAdminRequestsThatDoNotArrive(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("horse"), 0o600))
	e := inMemory(t, "rules: []")
	for _, c := range []struct {
		name, token, request string
		after                time.Duration
		status               int
	}{
		{"nothing", "", "", 5 * time.Second, 0},
		{"half a header", "", "GET /v1/rules HTTP/1.1\r\nHost: loc", 5 * time.Second, 0},
		{"half a body", "", lines("PUT /v1/shedder?for=1m HTTP/1.1", "Host: localhost", "Content-Length: 9") + "x", 15 * time.Second, 400},
		{"half a chunk", "", lines("PUT /v1/shedder?for=1m HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked") + "9\r\nx", 15 * time.Second, 400},
		{"a stranger's body", token, lines("PUT /v1/shedder?for=1m HTTP/1.1", "Host: localhost", "Content-Length: 9") + "x", 0, 401},
		{"a body with a probe", token, lines("GET /healthz HTTP/1.1", "Host: localhost", "Content-Length: 9") + "x", 0, 200},
		{"an idle connection", token, lines("GET /healthz HTTP/1.1", "Host: localhost"), time.Minute, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.config.Listen.AdminTokenFile = c.token
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				accept := make(chan net.Conn, 1)
				accept <- server
				s := httpconns.New(e.admin.Handler())
				served := make(chan error)
				go func() { served <- s.Serve(oneConn{accept}) }()
				go func() { _, _ = io.WriteString(client, c.request) }()
				began := time.Now()
				b, err := io.ReadAll(client)
				client.Close()
				close(accept)
				took := time.Since(began)
				require.ErrorIs(t, <-served, net.ErrClosed)
				require.NoError(t, err)
				require.Equal(t, c.after, took, "%s", b)
				if c.status != 0 {
					require.Contains(t, string(b), fmt.Sprintf("HTTP/1.1 %d ", c.status))
				}
			})
		})
	}
}
