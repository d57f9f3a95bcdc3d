package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// onCluster is onTestClock for a Redis Cluster.
func onCluster(t *testing.T, cluster *testenv.RedisCluster) storetest.Open {
	now := func() int64 { return 0 }
	var mu sync.Mutex
	s := open(t, redisstore.Config{
		Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: patience,
		Clock: func() int64 { mu.Lock(); defer mu.Unlock(); return now() },
	})
	awaitTopology(t, s)
	return func(t *testing.T, clock func() int64) limiter.FullStore {
		mu.Lock()
		defer mu.Unlock()
		now = clock
		for _, master := range cluster.Nodes[:3] {
			require.NoError(t, master.Client().FlushAll(context.Background()).Err())
		}
		return s
	}
}

// many returns counts of this node or another region, with keys in every part of a cluster.
type many struct {
	*testing.T
	store   *redisstore.Store
	limit   *limiter.Limit
	start   int64
	subject []string
}

func newMany(t *testing.T, cluster *testenv.RedisCluster) *many {
	l, err := storetest.ParseLimit([]string{"r", "fixed_window", "limit=1000000", "window=" + testenv.LongWindow(), "global"})
	require.NoError(t, err)
	width := l.Window.Microseconds()
	m := &many{T: t, limit: l, start: time.Now().UnixMicro() / width * width}
	m.store = open(t, redisstore.Config{Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: patience})
	for i := range 3000 {
		m.subject = append(m.subject, fmt.Sprint("s", i))
	}
	return m
}

func (m *many) key(i int) []byte { return storetest.Key(m.subject[i], m.limit) }

func (m *many) tally(node string, count int64) []limiter.Tally {
	list := make([]limiter.Tally, len(m.subject))
	for i := range list {
		list[i] = limiter.Tally{Key: m.key(i), Start: m.start, Width: m.limit.Window.Microseconds(), Count: count}
	}
	m.store.Tally(m.Context(), node, list)
	return list
}

func (m *many) merge(region string, count int64) []limiter.Merge {
	list := make([]limiter.Merge, len(m.subject))
	for i := range list {
		list[i] = limiter.Merge{Limit: m.limit, Key: m.key(i), Region: region, Start: m.start, Width: m.limit.Window.Microseconds(), Count: count}
	}
	m.store.Merge(m.Context(), list)
	return list
}

func TestMergesOnACluster(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	t.Run("as in memory", func(t *testing.T) {
		want := storetest.RunMerges(t, 1, func(_ *testing.T, clock func() int64) limiter.FullStore {
			return memory.New(memory.Config{Clock: clock})
		})
		require.Equal(t, want, storetest.RunMerges(t, 1, onCluster(t, cluster)))
	})

	m := newMany(t, cluster)
	require.Eventually(t, func() bool { return m.tally("1", 0)[0].Err == nil }, testenv.Patience, 10*time.Millisecond)
	t.Run("many keys at once", func(t *testing.T) {
		for _, told := range []struct {
			node         string
			count        int64
			known, total int64
		}{{"1", 5, 0, 5}, {"1", 5, 5, 5}, {"2", 7, 0, 12}, {"1", 3, 5, 12}, {"1", 6, 5, 13}} {
			for i, c := range m.tally(told.node, told.count) {
				require.NoError(t, c.Err)
				require.Equal(t, [2]int64{told.known, told.total}, [2]int64{c.Known, c.Total}, "key %d, %+v", i, told)
			}
		}
		for _, told := range [][3]int64{{10, 0}, {10, 10}, {4, 10}, {15, 10}} {
			for i, c := range m.merge("eu", told[0]) {
				require.NoError(t, c.Err)
				require.Equal(t, told[1], c.Known, "key %d, %v", i, told)
			}
		}
		var d limiter.Decision
		require.NoError(t, m.store.Take(t.Context(), []limiter.Check{{Limit: m.limit, Key: m.key(7), Cost: 1}}, &d))
		require.Equal(t, m.limit.Limit-15-1, d.Results[0].Remaining)
		own, others, err := m.store.Counters(t.Context(), m.key(7), m.start)
		require.NoError(t, err)
		require.EqualValues(t, 13, own)
		require.Equal(t, map[string]int64{"eu": 15}, others)
	})
	t.Run("servers that forget the scripts", func(t *testing.T) {
		for _, master := range cluster.Nodes[:3] {
			require.NoError(t, master.Client().ScriptFlush(context.Background()).Err())
		}
		for _, c := range m.tally("1", 9) {
			require.NoError(t, c.Err)
			require.EqualValues(t, 16, c.Total)
		}
		for _, master := range cluster.Nodes[:3] {
			require.NoError(t, master.Client().ScriptFlush(context.Background()).Err())
		}
		for _, c := range m.merge("eu", 20) {
			require.NoError(t, c.Err)
			require.EqualValues(t, 15, c.Known)
		}
	})
	t.Run("a key of another kind", func(t *testing.T) {
		counters := string(limiter.AppendCounters(nil, m.key(3), m.start))
		owner := cluster.MasterOf(counters).Client()
		require.NoError(t, owner.Del(context.Background(), counters).Err())
		require.NoError(t, owner.Set(context.Background(), counters, "x", 0).Err())
		for i, c := range m.tally("1", 11) {
			require.Equal(t, i == 3, c.Err != nil, "key %d: %v", i, c.Err)
		}
		for i, c := range m.merge("eu", 30) {
			require.Equal(t, i == 3, c.Err != nil, "key %d: %v", i, c.Err)
		}
	})
	t.Run("a master that hangs", func(t *testing.T) { masterHangs(t, cluster, newMany(t, cluster)) })
}

// masterHangs tests that a hung master fails only its own keys, after a few calls without a
// wait, so other counts continue. Once a replica has taken over, everything is counted,
// including what it had missed.
func masterHangs(t *testing.T, cluster *testenv.RedisCluster, m *many) {
	require.Eventually(t, func() bool { return m.tally("3", 0)[0].Err == nil }, testenv.Patience, 10*time.Millisecond)
	hung := cluster.MasterOf(string(m.key(0)))
	served := make([]bool, len(m.subject))
	for i := range served {
		served[i] = cluster.MasterOf(string(m.key(i))) != hung && i != 3 // which is of another kind
	}
	hung.Suspend()
	waits := true
	for count := int64(1); waits; count++ {
		require.LessOrEqual(t, count, int64(6), "calls that wait for it")
		waits = false
		for i, c := range m.tally("3", count) {
			if served[i] {
				require.NoError(t, c.Err, "key %d", i)
			}
			waits = waits || !served[i] && i != 3 && c.Err != nil && !errors.Is(c.Err, limiter.ErrBroken)
		}
	}
	require.Eventually(t, func() bool {
		tallies, merges := m.tally("3", 100), m.merge("us", 50)
		for i := range tallies {
			if i != 3 && (tallies[i].Err != nil || tallies[i].Total < 100 || merges[i].Err != nil) {
				return false
			}
		}
		return true
	}, testenv.Patience, 100*time.Millisecond, "a replica takes over")
}
