package redisstore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/lease"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// leases returns a node's leases over Redis, and a tenant with an unreachable limit.
func leases(t testing.TB) (*testenv.Server, *lease.Store, limiter.Check) {
	server := testenv.Redis(t, testenv.Options{})
	shared := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	s := lease.New(lease.Config{Next: shared, Grants: shared, Nodes: func() int { return 1 }})
	t.Cleanup(s.Close) // before the store's
	l := rule(t, "tenant sliding_window limit=1000000000 window=10m")
	l.Leased = true
	return server, s, check(l, "tenant", 1)
}

// A busy tenant with 64 callers costs Redis at most one call in a hundred decisions.
func TestABusyTenantCostsNearlyNothing(t *testing.T) {
	server, s, c := leases(t)
	const callers, each = 64, 5000
	before := server.CommandCalls("evalsha", "eval")
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			var d limiter.Decision
			for range each {
				if err := s.Take(context.Background(), []limiter.Check{c}, &d); err != nil || !d.Allowed {
					t.Errorf("%v, %+v", err, d)
				}
			}
		})
	}
	group.Wait()
	calls := float64(server.CommandCalls("evalsha", "eval")-before) / callers / each
	t.Logf("%.5f calls a decision", calls)
	require.LessOrEqual(t, calls, 0.01)
}

func BenchmarkBusyTenant(b *testing.B) {
	server, s, c := leases(b)
	before := server.CommandCalls("evalsha", "eval")
	b.SetParallelism(32) // 64 callers on two cores
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var d limiter.Decision
		checks := []limiter.Check{c}
		for pb.Next() {
			_ = s.Take(context.Background(), checks, &d)
		}
	})
	b.ReportMetric(float64(server.CommandCalls("evalsha", "eval")-before)/float64(b.N), "calls/op")
}
