package proxy

import (
	"net/http"
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
	e := newEdge(t, Config{Upstreams: []string{"h2c" + up[len("http"):]}}, Via{})
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
