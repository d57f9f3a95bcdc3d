package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// A cluster divides limits like memory. It reports nothing that its replicas lack, and after a
// failover it still has everything that it reported.
func TestEscrowOnACluster(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	t.Run("as in memory", func(t *testing.T) {
		inMemory := func(_ *testing.T, clock func() int64) limiter.FullStore {
			return memory.New(memory.Config{Clock: clock})
		}
		on := onCluster(t, cluster)
		require.Equal(t, storetest.RunMoves(t, 1, inMemory), storetest.RunMoves(t, 1, on))
		require.Equal(t, storetest.RunLeasedParts(t, 1, inMemory), storetest.RunLeasedParts(t, 1, on))
		require.Equal(t, storetest.RunTerms(t, 1, inMemory), storetest.RunTerms(t, 1, on))
		storetest.RunOpened(t, on)
	})
	for _, master := range cluster.Nodes[:3] {
		require.NoError(t, master.Client().FlushAll(context.Background()).Err())
	}

	whole, err := storetest.ParseLimit([]string{"r", "fixed_window", "limit=300", "window=" + testenv.LongWindow(), "escrow"})
	require.NoError(t, err)
	part := &limiter.Limit{Rule: whole.Rule, Algorithm: whole.Algorithm, Limit: 100, Window: whole.Window, Global: whole.Global, Whole: whole}
	m := &many{T: t, limit: part, start: time.Now().UnixMicro() / part.Window.Microseconds() * part.Window.Microseconds()}
	m.store = open(t, redisstore.Config{Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: patience})
	for i := range 60 {
		m.subject = append(m.subject, string(rune('A'+i)))
	}
	move := func(upto int64) []limiter.Move {
		list := make([]limiter.Move, len(m.subject))
		for i := range list {
			list[i] = limiter.Move{Limit: part, Key: m.key(i), Region: "eu", Start: m.start, Upto: upto}
		}
		m.store.Move(t.Context(), list)
		return list
	}
	told := func(upto, gave, left int64) func() bool {
		return func() bool {
			for _, one := range move(upto) {
				if one.Err != nil || one.Gave != gave || one.Left != left {
					return false
				}
			}
			return true
		}
	}
	require.Eventually(t, func() bool { return m.store.Open(t.Context()) == nil }, testenv.Patience, 10*time.Millisecond)
	require.Eventually(t, told(10, 10, 90), testenv.Patience, 10*time.Millisecond)

	// A change is not reported until a replica has it, and then completely.
	replica, master := cluster.Nodes[3], cluster.Nodes[0]
	replica.Suspend()
	alone := make([]bool, len(m.subject))
	for i := range alone {
		alone[i] = cluster.MasterOf(string(m.key(i))) == master
	}
	require.Eventually(t, func() bool { // other replicas may be late
		others := true
		for i, one := range move(20) {
			if alone[i] {
				assert.Error(t, one.Err, "key %d", i)
			} else {
				others = others && one.Err == nil
			}
		}
		return others
	}, testenv.Patience, 10*time.Millisecond)
	terms := []limiter.Term{{Division: 1, Part: "eu", Holder: "eu", Until: time.Now().UnixMicro(), Life: 1, Draw: 1}}
	renewed := func() bool { m.store.Renew(t.Context(), terms); return terms[0].Err == nil }
	if cluster.MasterOf("weir:{~terms}") == master {
		require.False(t, renewed())
	} else {
		require.Eventually(t, renewed, testenv.Patience, 10*time.Millisecond)
	}
	replica.Resume()
	require.Eventually(t, told(20, 20, 80), testenv.Patience, 10*time.Millisecond)

	master.Kill()
	require.Eventually(t, told(0, 20, 80), testenv.Patience, 100*time.Millisecond, "a replica has taken over")
	var d limiter.Decision
	for i := range m.subject {
		require.NoError(t, m.store.Take(t.Context(), []limiter.Check{{Limit: part, Key: m.key(i), Cost: 80}}, &d))
		require.True(t, d.Allowed, "key %d: windows stay open", i)
	}
}
