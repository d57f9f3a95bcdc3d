package edge

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/testenv"
)

// Connections beyond the bounds are closed before their handshake, and strangers take no room
// from gateways.
func TestGatewayConnections(t *testing.T) {
	files := testenv.Certificates(t)
	n, _ := gatewayNode(t, setup{config: func(c *config.Config) {
		c.Server.MaxConnections, c.Server.ReadTimeout = 3, time.Minute
		c.Listen.Decide.TLS = &config.MutualTLS{Pair: pairOf(files)}
	}})
	n.speak(files.ClientConfig(t))
	address := n.config.Listen.Decide.Address
	silent := func(from string) net.Conn { t.Helper(); return silentFrom(t, net.ParseIP(from), address) }
	refused := func(c net.Conn) {
		t.Helper()
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	const answers = `weir_gateway_answers_total{protocol="http",answer=`

	gateways := []net.Conn{silent("127.0.0.1"), silent("127.0.0.1"), silent("127.0.0.1")}
	refused(silent("127.0.0.1"))
	require.EqualValues(t, 1, n.metric(answers+`"failed"}`))
	for range 64 { // strangers
		silent("127.0.0.9")
	}
	refused(silent("127.0.0.9"))
	require.EqualValues(t, 1, n.metric(answers+`"unauthenticated"}`))

	req, err := http.NewRequest("GET", "https://"+address+gateway.Path, nil)
	require.NoError(t, err)
	for name, value := range map[string]string{"X-Forwarded-For": "203.0.113.1", "X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/", "X-Forwarded-Host": "shop.example.com"} {
		req.Header.Set(name, value)
	}
	require.NoError(t, gateways[0].Close())
	eventually(t, "a gateway has room", func() bool {
		resp, err := n.client.Do(req)
		return err == nil && read(t, resp).status == 204
	})
}

// silentFrom connects from an address of this machine.
func silentFrom(t *testing.T, from net.IP, address string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: patience}
	c, err := d.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// Where client_ca_file tells gateways from strangers, 10,000 strangers of many addresses keep no
// gateway out, whether they are silent, stop in the handshake, or present no certificate.
func TestStrangersKeepNoGatewayOut(t *testing.T) {
	files := testenv.Certificates(t)
	mutual := &config.MutualTLS{Pair: pairOf(files), ClientCAFile: files.CAFile}
	ports := testenv.FreePorts(t, 3)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	n := start(t, setup{rules: gatewayRules, config: func(c *config.Config) {
		c.Server.MaxConnections = 100
		c.Listen.Decide = &config.Decide{Address: at(0), TLS: mutual}
		c.Listen.SPOE = &config.Decide{Address: at(1), TLS: mutual}
		c.Listen.RLS = &config.RLS{Address: at(2), TLS: mutual}
	}})
	client := func(c *tls.Config, i int) *tls.Config {
		c.ServerName, c.NextProtos = "127.0.0.1", []string{[...]string{"http/1.1", "http/1.1", "h2"}[i]}
		return c
	}
	gatewayAsks := func(i int) { // and gets settings, or a refusal of what is not HTTP/1.1 or SPOP
		t.Helper()
		c := tls.Client(silentFrom(t, net.IPv4(127, 0, 0, 1), at(i)), client(showing(t, files.ClientConfig(t), files), i))
		require.NoError(t, c.Handshake())
		_, err := io.WriteString(c, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err)
		_ = c.Close()
	}
	for i := range ports {
		unknown := client(files.ClientConfig(t), i)
		var all sync.WaitGroup
		slots := make(chan net.Conn, 3000) // open at once
		strangers := [...]int{10_000, 4_000, 4_000}[i]
		for j := range strangers {
			from := net.IPv4(127, 1, byte(j>>8), byte(j))
			if j >= strangers-1000 { // and many of one
				from = net.IPv4(127, 0, 0, 9)
			}
			c := silentFrom(t, from, at(i))
			if j%50 == 0 {
				all.Go(func() { _ = tls.Client(c, unknown).Handshake() })
			}
			select {
			case slots <- c:
			default:
				_ = (<-slots).Close()
				slots <- c
			}
			if j%1000 == 999 {
				gatewayAsks(i)
			}
		}
		close(slots)
		for c := range slots {
			_ = c.Close()
		}
		all.Wait()
	}
	for _, series := range []string{`weir_gateway_answers_total{protocol="http",answer="unauthenticated"}`, `weir_gateway_answers_total{protocol="spoe",answer="unauthenticated"}`, `weir_rls_connections_refused_total{reason="unauthenticated"}`} {
		require.Positive(t, n.metric(series), series)
	}
	require.Positive(t, n.metric(`weir_tls_handshakes_failed_total{listener="rls",reason="certificate"}`))
}

// Failed handshakes are counted where clients and operators connect, too.
func TestFailedHandshakes(t *testing.T) {
	files := testenv.Certificates(t)
	n := start(t, setup{config: func(c *config.Config) {
		c.Listen.TLS, c.Listen.AdminTLS = &config.TLS{Pair: pairOf(files)}, &config.MutualTLS{Pair: pairOf(files)}
	}})
	for listener, address := range map[string]string{"public": n.public, "admin": n.admin} {
		_ = silentFrom(t, net.IPv4(127, 0, 0, 1), address).Close() // a health check
		c := files.ClientConfig(t)
		c.ServerName = "other.example"
		require.Error(t, tls.Client(silentFrom(t, net.IPv4(127, 0, 0, 1), address), c).Handshake())
		series := `weir_tls_handshakes_failed_total{listener="` + listener + `",reason=`
		eventually(t, "it is counted", func() bool { return n.metric(series+`"rejected"}`) == 1 })
		require.Zero(t, n.metric(series+`"closed"}`))
	}
}
