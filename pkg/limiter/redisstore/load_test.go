package redisstore_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

func TestLoads(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	now := int64(1_800_000_000_000_000)
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Clock: func() int64 { return now }})
	ctx := context.Background()
	say := func(node string, own int64) redisstore.Load {
		t.Helper()
		l := []redisstore.Load{{Group: "a", Own: own}}
		s.Loads(ctx, node, l)
		require.NoError(t, l[0].Err)
		require.Equal(t, now, l[0].Now)
		return l[0]
	}

	// One node: the script matches FollowLoad.
	var want redisstore.Following
	r := rand.New(rand.NewPCG(1, 1))
	target := int64(0)
	for i := range 500 {
		if i%40 == 0 {
			target = r.Int64N(1001)
		}
		own := min(1000, max(0, target+r.Int64N(101)-50))
		want = redisstore.FollowLoad(want, own)
		got := say("x", own)
		require.Equal(t, want.Value, got.Value, "second %d", i)
		require.Equal(t, int64(1), got.Nodes)
		require.Equal(t, want.Value, say("x", 1000-own).Value, "a second has one value")
		now += 1_000_000
	}

	// Several: the mean of recent reports.
	server.Client().Del(ctx, "weir:{~load:a}")
	want = redisstore.Following{}
	for range 100 {
		say("x", 900)
		say("y", 300)
		require.Equal(t, int64(2), say("z", -1).Nodes, "one that does not know does not count")
		now += 1_000_000
	}
	require.InDelta(t, 600, say("z", -1).Value, 46)
	now += 2_000_000
	require.Equal(t, int64(2), say("y", 300).Nodes)
	now += 1_000_000
	require.Equal(t, int64(1), say("y", 300).Nodes, "old reports do not count")

	// A clock that was set back does not stop it, and no node is needed for longer than a few
	// minutes.
	before := say("y", 0).Value
	now -= 3_600_000_000
	for range 60 {
		now += 1_000_000
		say("y", 0)
	}
	require.Less(t, say("y", 0).Value, before)
	now += 3_600_000_000
	require.Zero(t, say("y", 0).Value)

	ttl, err := server.Client().PTTL(ctx, "weir:{~load:a}").Result()
	require.NoError(t, err)
	require.Positive(t, ttl)

	require.NoError(t, server.Client().Set(ctx, "weir:{~load:b}", "?", 0).Err())
	l := []redisstore.Load{{Group: "b"}, {Group: "c", Own: 1000}}
	s.Loads(ctx, "x", l)
	require.Error(t, l[0].Err, "a foreign key")
	require.NoError(t, l[1].Err)
	require.Equal(t, int64(63), l[1].Value)
}
