package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// What one client that has used up its limit costs Redis, including key and overhead. make
// tables prints it.
func TestMemoryTable(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	store := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	ctx := context.Background()
	table := []string{fmt.Sprintf("%-28s %8s %10s %14s", "algorithm", "limit", "bytes", "a request")}
	for _, row := range []struct {
		name      string
		algorithm limiter.Algorithm
		storage   limiter.Storage
		bound     int64 // bytes per request; 0 means none
	}{
		{"fixed_window", limiter.FixedWindow, limiter.Ring, 0},
		{"sliding_window", limiter.SlidingWindow, limiter.Ring, 0},
		{"token_bucket", limiter.TokenBucket, limiter.Ring, 0},
		{"leaky_bucket", limiter.LeakyBucket, limiter.Ring, 0},
		{"rolling_window, ring", limiter.RollingWindow, limiter.Ring, 8},
		{"rolling_window, sorted_set", limiter.RollingWindow, limiter.SortedSet, 0},
		{"concurrency", limiter.Concurrency, limiter.Ring, 0},
	} {
		for _, limit := range []int64{100, 128, 129, 1000} {
			l := &limiter.Limit{Rule: "per-client", Algorithm: row.algorithm, Storage: row.storage, Limit: limit, Window: time.Hour}
			if l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket {
				l.Burst = limit
			}
			require.Empty(t, l.Validate())
			key := fmt.Appendf(nil, "weir:{203.0.113.7}:per-client:%s", l.Tag())
			require.NoError(t, server.Client().Del(ctx, string(key)).Err())
			var d limiter.Decision
			for i := range limit {
				checks := []limiter.Check{{Limit: l, Key: key, Cost: 1, Slot: 1<<63 + uint64(i)}}
				require.NoError(t, store.Take(ctx, checks, &d))
				require.True(t, d.Allowed)
			}
			bytes := server.Client().MemoryUsage(ctx, string(key), 0).Val()
			require.Positive(t, bytes)
			table = append(table, fmt.Sprintf("%-28s %8d %10d %14.1f", row.name, limit, bytes, float64(bytes)/float64(limit)))
			if row.bound > 0 && (limit == 100 || limit == 1000) {
				require.LessOrEqual(t, bytes, row.bound*limit, "%s at %d", row.name, limit)
			}
		}
	}
	t.Log("MEMORY USAGE of one key, its limit spent\n" + strings.Join(table, "\n"))
}
