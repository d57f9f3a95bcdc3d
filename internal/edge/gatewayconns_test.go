package edge

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	silent := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
		c, err := d.DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		return c
	}
	refused := func(c net.Conn) {
		t.Helper()
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	const answers = `weir_gateway_answers_total{protocol="http",answer=`

	gateways := []net.Conn{silent("127.0.0.1"), silent("127.0.0.1"), silent("127.0.0.1")}
	refused(silent("127.0.0.1"))
	require.EqualValues(t, 1, n.metric(answers+`"failed"}`))
	for range maxStrangers {
		silent("127.0.0.9")
	}
	refused(silent("127.0.0.9"))
	require.EqualValues(t, 1, n.metric(answers+`"stranger"}`))

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
