package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// members adds n requests, a multiple of 10,000, to a sorted set, 1 µs apart and ending
// at last.
func members(t testing.TB, server *testenv.Server, key string, n int, last int64) {
	t.Helper()
	const fill = `for from = tonumber(ARGV[1]), tonumber(ARGV[2]), 1000 do
		local some = {}
		for i = from, from + 999 do
			local at = string.format('%.0f', ARGV[3] - i)
			some[#some + 1], some[#some + 2] = at, at
		end
		redis.call('ZADD', KEYS[1], unpack(some))
	end
	return 1`
	for from := 0; from < n; from += 10_000 {
		require.NoError(t, server.Client().Eval(t.Context(), fill, []string{key}, from, from+9999, last).Err())
	}
}

// An idle key with a million old members is cleared a little at each call, and decides as if it
// were empty.
func TestOldMembersGoInChunks(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	now := storetest.Epoch
	clock := func() int64 { return now }
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Clock: clock})
	plain := memory.New(memory.Config{Clock: clock})
	for _, line := range []string{
		"log rolling_window limit=3 window=10s storage=sorted_set count_denied",
		"slots concurrency limit=3 window=10s",
	} {
		l := rule(t, line)
		key := string(storetest.Key("a", l))
		const old = 1_000_000
		members(t, server, key, old, now-l.Window.Microseconds())
		for i := range 8 {
			now += 1000
			c := check(l, "a", 1)
			c.Slot = uint64(i)
			got, want := ask(t, s, c), ask(t, plain, c)
			want.Results[0].Source = limiter.SourceRedis
			require.Equal(t, want, got, "%s, call %d", line, i)
			left := server.Client().ZCard(t.Context(), key).Val()
			require.Greater(t, left, int64(old-(i+1)*(limiter.MaxEntries+1)), line)
		}
		require.Less(t, server.Client().ZCard(t.Context(), key).Val(), int64(old), line)
	}
}

// BenchmarkDearestCall runs the most expensive scripts that rules allow and reports their
// duration from Redis's SLOWLOG: the median and the 90th percentile.
func BenchmarkDearestCall(b *testing.B) {
	server := testenv.Redis(b, testenv.Options{Args: []string{"slowlog-log-slower-than 0", "slowlog-max-len 100000", "lazyfree-lazy-expire yes"}})
	for _, c := range []struct {
		name, rule string
		requests   int // in one script
		cost, old  int // units per request; expired members of the key
		full       bool
	}{
		{"64 requests of fixed_window", "r fixed_window limit=1000000 window=1h", 64, 1, 0, false},
		{"ring of 10,000, cost 10,000", "r rolling_window limit=10000 window=1h count_denied", 1, 10_000, 0, true},
		{"9 rings of 10,000", "r rolling_window limit=10000 window=1h count_denied", 9, 1, 0, true},
		{"sorted_set of 100,000, cost 200", "r rolling_window limit=100000 window=1h storage=sorted_set", 1, limiter.MaxEntries, 0, false},
		{"sorted_set, cost 200, a million old members", "r rolling_window limit=100000 window=1h storage=sorted_set", 1, limiter.MaxEntries, 1_000_000, false},
		{"sorted_set full, cost 200, count_denied", "r rolling_window limit=100000 window=1h storage=sorted_set count_denied", 1, limiter.MaxEntries, 0, true},
		{"concurrency, a million old slots", "r concurrency limit=100000 window=1h", 1, 1, 1_000_000, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := rule(b, c.rule)
			client := server.Client()
			require.NoError(b, client.FlushAll(b.Context()).Err())
			var calls []*limiter.Call
			for i := range c.requests {
				calls = append(calls, &limiter.Call{Times: 1, Checks: []limiter.Check{check(l, fmt.Sprint(i), int64(c.cost))}})
			}
			command, source := redisstore.Command(nil, calls)
			require.NoError(b, client.ScriptLoad(b.Context(), source).Err())
			if c.old > 0 {
				members(b, server, string(storetest.Key("0", l)), c.old, time.Now().Add(-l.Window).UnixMicro())
			}
			for i := 0; c.full && i < int(l.Limit); i += c.cost {
				require.NoError(b, client.Do(b.Context(), command...).Err())
			}
			require.NoError(b, client.Do(b.Context(), "slowlog", "reset").Err())
			for b.Loop() {
				if err := client.Do(b.Context(), command...).Err(); err != nil {
					b.Fatal(err)
				}
			}
			var took []time.Duration
			for _, e := range client.SlowLogGet(b.Context(), -1).Val() {
				if e.Args[0] == "evalsha" {
					took = append(took, e.Duration)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "redis-µs")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "redis-µs-p90")
		})
	}
}

// BenchmarkRingsThatGrow lets as many rings as one script decides grow at once, each after it has
// wrapped around its end, and reports the duration of that call.
func BenchmarkRingsThatGrow(b *testing.B) {
	server := testenv.Redis(b, testenv.Options{Args: []string{"slowlog-log-slower-than 0", "slowlog-max-len 100000"}})
	client, now := server.Client(), storetest.Epoch
	l := rule(b, "r rolling_window limit=10000 window=1h")
	var calls []*limiter.Call
	for i := range 9 {
		calls = append(calls, &limiter.Call{Times: 1, Checks: []limiter.Check{check(l, fmt.Sprint(i), 1)}})
	}
	run := func(times int, later time.Duration) {
		now += later.Microseconds()
		command, source := redisstore.Command(func() int64 { return now }, calls)
		require.NoError(b, client.ScriptLoad(b.Context(), source).Err())
		for range times {
			require.NoError(b, client.Do(b.Context(), command...).Err())
		}
	}
	const full = 8318 // of the room after 129, 259, … entries, the last before the limit's
	var took []time.Duration
	for b.Loop() {
		require.NoError(b, client.FlushAll(b.Context()).Err())
		run(full/2, 0)
		run(full/2, 30*time.Minute)
		run(full/2, 30*time.Minute+time.Second) // the first half has left
		require.NoError(b, client.Do(b.Context(), "slowlog", "reset").Err())
		run(1, 0)
		for _, e := range client.SlowLogGet(b.Context(), -1).Val() {
			if e.Args[0] == "evalsha" {
				took = append(took, e.Duration)
			}
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "redis-µs")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "redis-µs-p90")
}
