package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// auth_request has two results, so the configuration in deploy/nginx must name each status
// that a node may want for the client.
func TestNginxGivesEachStatus(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := strings.TrimPrefix(r.Header.Get("X-Original-Uri"), "/"); status != "stranger" {
			w.Header().Set("Weir-Status", status)
			w.Header().Set("Weir-Problem", `{"status":`+status+`}`)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(node.Close)
	port, addr := testenv.FreePorts(t, 1)[0], strings.TrimPrefix(node.URL, "http://")
	kind := gatewayKinds[0]
	require.Equal(t, "nginx.conf", kind.name)
	kind.run(t, documented(t, kind, port, [2]string{addr, addr}, node.URL), port)
	l := &gatewayLab{t: t, client: &http.Client{Timeout: time.Minute}}
	gateway := fmt.Sprintf("127.0.0.1:%d", port)
	for _, status := range []int{400, 403, 429, 431, 500, 503} {
		a := l.ask(gateway, "GET", fmt.Sprintf("/%d", status), "")
		require.Equal(t, status, a.status)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.JSONEq(t, fmt.Sprintf(`{"status":%d}`, status), a.body)
	}
	require.Equal(t, 500, l.ask(gateway, "GET", "/stranger", "").status, "nginx is not one of the node's gateways")
}
