package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// HAProxy asks over TLS, with the line in docs/GATEWAYS.md: both ends present a certificate,
// and a HAProxy with another one gets no answer.
func TestHAProxyAsksOverTLS(t *testing.T) {
	var kind gatewayKind
	for _, k := range gatewayKinds {
		if k.spoe {
			kind = k
		}
	}
	pem := func(f testenv.TLSFiles) string {
		cert, err := os.ReadFile(f.CertFile)
		require.NoError(t, err)
		key, err := os.ReadFile(f.KeyFile)
		require.NoError(t, err)
		return write(t, "haproxy.pem", string(cert)+string(key))
	}
	nodes, gateways := testenv.NewAuthority(t), testenv.NewAuthority(t)
	served, shown, foreign := nodes.Issue(24*time.Hour, "edge.internal"), gateways.Issue(24*time.Hour, "haproxy"), nodes.Issue(24*time.Hour, "haproxy")
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(origin.Close)
	ports := testenv.FreePorts(t, 3)
	spoe := fmt.Sprintf("127.0.0.1:%d", ports[0])
	rules := "rules: [{id: ten, key: [client_ip], algorithm: fixed_window, limit: 10, window: " + testenv.LongWindow() + "}]"
	node := testenv.StartEdge(t, fmt.Sprintf("  spoe: {address: %q, tls: {cert_file: %q, key_file: %q, client_ca_file: %q}}\nrules: {file: %q}\nstore: {kind: memory}\nupstreams: [{url: %q}]\n",
		spoe, served.CertFile, served.KeyFile, shown.CAFile, write(t, "rules.yaml", rules), origin.URL))
	node.WaitReady()

	const plain = "  default-server check inter 500ms fall 1 rise 1\n"
	run := func(port int, certificate testenv.TLSFiles) *gatewayLab {
		conf := kind.closed(documented(t, kind, port, [2]string{spoe, spoe}, origin.URL))
		require.Equal(t, 1, strings.Count(conf, plain))
		secure := strings.NewReplacer("nodes-ca.pem", served.CAFile, "haproxy.pem", pem(certificate)).Replace(block(t, "haproxy-spoe-tls.cfg"))
		kind.run(t, strings.Replace(conf, plain, secure, 1), port)
		return &gatewayLab{t: t, client: &http.Client{Timeout: time.Minute}}
	}
	l := run(ports[1], shown)
	gateway, other := fmt.Sprintf("127.0.0.1:%d", ports[1]), fmt.Sprintf("127.0.0.1:%d", ports[2])
	answered := 0.0
	ask := func() answer {
		a := l.ask(gateway, "GET", "/", "")
		if a.status != 503 {
			answered++
		}
		return a
	}
	eventually(t, testenv.Patience, "HAProxy asks", func() bool { return ask().status != 503 })
	for range 10 {
		ask()
	}
	a := ask()
	require.Equal(t, 429, a.status)
	require.Contains(t, a.body, `"violated-policies":["ten"]`)

	const asked = `weir_gateway_seconds_count{protocol="spoe"}`
	var before float64
	eventually(t, testenv.Patience, "all are counted", func() bool { before = metrics(t, node, asked)[asked]; return before >= answered })
	l = run(ports[2], foreign)
	for range 5 {
		require.Equal(t, 503, l.ask(other, "GET", "/", "").status)
	}
	require.Equal(t, before, metrics(t, node, asked)[asked], "it was not answered")
}
