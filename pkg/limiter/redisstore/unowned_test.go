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

// A call to a slot without an owner waits for the new one, which follows with the next gossip
// when a replica takes over.
func TestUnownedSlot(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: patience})
	awaitTopology(t, s)
	c := check(rule(t, "r fixed_window limit=1000000 window=1h"), "a", 1)
	require.True(t, ask(t, s, c).Allowed)
	owner := cluster.MasterOf(string(c.Key)).Client()
	slot := int(owner.ClusterKeySlot(t.Context(), string(c.Key)).Val())
	refused := func() (count int) {
		for line := range strings.Lines(owner.Info(t.Context(), "errorstats").Val()) {
			_, _ = fmt.Sscanf(line, "errorstat_CLUSTERDOWN:count=%d", &count)
		}
		return count
	}
	require.Eventually(t, func() bool {
		before := refused()
		require.NoError(t, owner.ClusterDelSlots(t.Context(), slot).Err())
		answer := make(chan error, 1)
		go func() { answer <- s.Take(context.Background(), []limiter.Check{c}, &limiter.Decision{}) }()
		for refused() < before+2 && len(answer) == 0 { // at once, and by the cluster's client
		}
		require.NoError(t, owner.ClusterAddSlots(t.Context(), slot).Err())
		return <-answer == nil
	}, time.Minute, time.Millisecond, "a slow machine may take longer than a call waits, but not each time")

	// Slots that stay down delay no caller for long: one call a second waits.
	before, calls := refused(), 100
	require.NoError(t, owner.ClusterDelSlots(t.Context(), slot).Err())
	for range calls {
		require.ErrorIs(t, s.Take(t.Context(), []limiter.Check{c}, &limiter.Decision{}), limiter.ErrReply)
	}
	require.Less(t, refused()-before, 4*calls, "two tries each, without the pauses of eight")
	require.NoError(t, owner.ClusterAddSlots(t.Context(), slot).Err())
	require.Eventually(t, func() bool {
		return s.Take(context.Background(), []limiter.Check{c}, &limiter.Decision{}) == nil
	}, time.Minute, time.Millisecond)
}
