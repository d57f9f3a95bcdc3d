package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// connections returns how many connections this process has to a server.
func connections(t *testing.T, server *testenv.Server) (n int) {
	_, port, err := net.SplitHostPort(server.Addr)
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	remote := fmt.Appendf(nil, ":%04X 01 ", number) // established
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		table, err := os.ReadFile(file)
		require.NoError(t, err)
		n += bytes.Count(table, remote)
	}
	return n
}

// Many callers of a master that hangs hold no more connections than late batches and probes need,
// and its breaker opens.
func TestHungMasterHoldsFewConnections(t *testing.T) {
	const callers, asks = 64, 300
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}})
	awaitTopology(t, s)
	before := connections(t, server) // the test's own among them
	server.Suspend()
	defer server.Resume()
	var all sync.WaitGroup
	var broken sync.Map
	l := rule(t, "r fixed_window limit=1000 window=1h")
	for caller := range callers {
		all.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for i := range asks {
				<-tick.C
				var d limiter.Decision
				if err := s.Take(context.Background(), []limiter.Check{check(l, fmt.Sprint(caller, " ", i), 1)}, &d); errors.Is(err, limiter.ErrBroken) {
					broken.Store(caller, true)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	most := 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-tick.C:
			most = max(most, connections(t, server))
		}
	}
	t.Logf("%d connections before, at most %d", before, most)
	require.LessOrEqual(t, most, before+2*limiter.MaxBatchesUnanswered+3) // one that ends may overlap with the next
	for caller := range callers {
		_, opened := broken.Load(caller)
		require.True(t, opened)
	}
}
