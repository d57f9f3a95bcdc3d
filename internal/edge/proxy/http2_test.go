package proxy

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A burst of requests opens one connection to an upstream that speaks HTTP/2, not one each.
func TestConcurrentRequestsShareAConnection(t *testing.T) {
	const burst = 40
	var arrived atomic.Int32
	var conns sync.Map // by address
	all := make(chan struct{})
	up := origin(t, func(_ http.ResponseWriter, r *http.Request) {
		conns.Store(r.RemoteAddr, nil)
		if arrived.Add(1) == burst {
			close(all)
		}
		<-all
	})
	e := newEdge(t, Config{Upstreams: []string{"h2c" + up[len("http"):]}}, ForwardOptions{})
	failed := make(chan error, burst)
	for range burst {
		go func() {
			resp, err := e.client.Get(e.url)
			if err == nil {
				err = resp.Body.Close()
			}
			failed <- err
		}()
	}
	for range burst {
		require.NoError(t, <-failed)
	}
	opened := 0
	conns.Range(func(any, any) bool { opened++; return true })
	require.Equal(t, 1, opened)
}

// A health check speaks its upstream's protocol, each on a new connection.
func TestChecksSpeakTheUpstreamsProtocol(t *testing.T) {
	served := make(chan *http.Request, 1)
	handler := func(_ http.ResponseWriter, r *http.Request) { served <- r }
	secure := func(http2 bool) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(handler))
		s.EnableHTTP2 = http2
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	plain, old, both := strings.TrimPrefix(origin(t, handler), "http://"), secure(false), secure(true)
	f := func(upstream, protocol string, encrypted bool) {
		t.Helper()
		p, err := New(Config{
			Upstreams: []string{upstream}, TLS: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test's own server
			Check: HealthCheck{Path: "/healthz", Interval: patience, Timeout: patience, Healthy: 1, Unhealthy: 1},
		})
		require.NoError(t, err)
		defer p.Close()
		u, tr, before := p.ups[0], p.ups[0].checker(), ""
		if protocol == "" {
			require.ErrorContains(t, u.check(t.Context(), tr), "no application protocol")
			return
		}
		for range 2 {
			require.NoError(t, u.check(t.Context(), tr))
			r := <-served
			require.Equal(t, protocol, r.Proto)
			require.Equal(t, encrypted, r.TLS != nil)
			require.NotEqual(t, before, r.RemoteAddr)
			before = r.RemoteAddr
		}
	}
	f("http://"+plain, "HTTP/1.1", false)
	f("h2c://"+plain, "HTTP/2.0", false)
	f("https://"+both, "HTTP/1.1", true)
	f("h2://"+both, "HTTP/2.0", true)
	f("h2://"+old, "", true)
}
