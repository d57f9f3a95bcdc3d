package dashboards

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Load sends requests from this many clients at once, until the returned function is
// called. request creates the n-th request of a client.
func Load(t testing.TB, transport *http.Transport, clients int, request func(ctx context.Context, client, n int) (*http.Request, error)) (stop func()) {
	t.Helper()
	transport.MaxIdleConnsPerHost = clients
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				req, err := request(ctx, i, n)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if err != nil || resp.StatusCode >= http.StatusTooManyRequests {
					<-time.After(60 * time.Millisecond) // a shorter wait would only use CPU
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait(); client.CloseIdleConnections() })
	t.Cleanup(stop)
	return stop
}
