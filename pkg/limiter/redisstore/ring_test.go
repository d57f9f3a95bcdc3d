package redisstore_test

import (
	"context"
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// A ring wraps many times, grows and shrinks, while its rule alternates between the two
// storages, and decides like the memory store.
func TestLargeRingGoesRound(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	now := storetest.Epoch
	clock := func() int64 { return now }
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Clock: clock})
	plain := memory.New(memory.Config{Clock: clock, Source: limiter.SourceRedis})
	large := rule(t, "r rolling_window limit=600 window=10s storage=large_ring")
	small := rule(t, "r rolling_window limit=200 window=10s storage=large_ring count_denied")
	whole := rule(t, "r rolling_window limit=600 window=10s")
	key := string(storetest.Key("a", large))
	random := rand.New(rand.NewSource(1))
	rings, logs := 0, 0
	for i := range 6000 {
		l := large
		switch {
		case i%1500 > 1400:
			l = whole
		case i%7 == 0:
			l = small
		}
		now += random.Int63n(60_000)
		if i%500 == 0 {
			now += 9_000_000 // most leave the window at once
		}
		c := check(l, "a", 1+random.Int63n(9))
		if i%400 == 1 {
			c.Cost = 300
		}
		want, got := ask(t, plain, c), ask(t, s, c)
		require.Equal(t, want, got, "decision %d", i)
		if want.Allowed && random.Intn(20) == 0 {
			now += random.Int63n(20_000)
			require.NoError(t, plain.Return(context.Background(), []limiter.Check{c}, want))
			require.NoError(t, s.Return(context.Background(), []limiter.Check{c}, got))
		}
		if size := server.Client().StrLen(t.Context(), key).Val(); size > 4*limiter.WholeLog+24 && l != whole {
			rings++
		} else {
			logs++
		}
		if l == whole {
			first, err := server.Client().GetRange(t.Context(), key, 0, 7).Result()
			require.NoError(t, err)
			require.False(t, first[0]^first[4] == 0x80 && first[1:4] == first[5:8] && got.Results[0].Charged, "the previous release could not read it")
		}
	}
	require.Greater(t, rings, 1000)
	require.Greater(t, logs, 100)
}

// A ring's cost in Redis does not grow with its limit: an accepted request neither reads nor
// writes all of it.
func TestLargeRingTouchesLittle(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	l := rule(t, "r rolling_window limit=10000 window=1h storage=large_ring count_denied")
	ask(t, s, check(l, "a", 10_000))
	ask(t, s, check(l, "a", 1)) // the ring is written as such
	before := commands(t, server)
	for range 100 {
		ask(t, s, check(l, "a", 1))
	}
	after := commands(t, server)
	require.Equal(t, before["set"], after["set"], "no decision writes the whole ring")
	require.Equal(t, before["get"], after["get"], "or reads it")
	require.LessOrEqual(t, after["setrange"]-before["setrange"], 300)
	require.LessOrEqual(t, after["getrange"]-before["getrange"], 400)
	require.LessOrEqual(t, server.Client().PTTL(t.Context(), string(storetest.Key("a", l))).Val(), time.Hour+time.Second)
}

// commands returns how often each command ran.
func commands(t *testing.T, server *testenv.Server) map[string]int {
	t.Helper()
	info, err := server.Client().InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	counts := map[string]int{}
	for name, stats := range info["Commandstats"] {
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		counts[strings.TrimPrefix(name, "cmdstat_")], err = strconv.Atoi(calls)
		require.NoError(t, err)
	}
	return counts
}
