package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// Every key has a TTL that ends within a second of when its state stops mattering: after
// charges, refusals, returns and rule changes.
func TestTimeToLive(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	ctx := context.Background()
	for i, line := range []string{
		"fixed_window limit=5 window=%s",
		"fixed_window limit=5 window=%s count_denied",
		"sliding_window limit=5 window=%s",
		"sliding_window limit=5 window=%s count_denied",
		"token_bucket limit=5 window=%s burst=9",
		"token_bucket limit=5 window=%s burst=9 count_denied",
		"leaky_bucket limit=5 window=%s burst=3",
		"rolling_window limit=5 window=%s",
		"rolling_window limit=5 window=%s count_denied",
		"rolling_window limit=5 window=%s min_interval=1ms",
		"rolling_window limit=500 window=%s count_denied",
		"rolling_window limit=5 window=%s storage=sorted_set",
		"rolling_window limit=5 window=%s storage=sorted_set count_denied",
		"concurrency limit=5 window=%s",
	} {
		verify := func(c limiter.Check) {
			t.Helper()
			began := time.Now()
			left, err := server.Client().PTTL(ctx, string(c.Key)).Result()
			require.NoError(t, err)
			if left == -2 { // already gone
				return
			}
			require.NotEqualValues(t, -1, left, "%s: no time to live", line)
			reset := ask(t, s, peek(c)).Results[0].ResetAfter
			// The TTL was read before the count, so it may be that much longer.
			require.LessOrEqual(t, left, reset+time.Second+time.Since(began), line)
		}
		for _, window := range []string{"1ms", "20ms", "1.5s", "1m", "24h"} {
			l := rule(t, fmt.Sprintf("rule%d-%s ", i, window)+fmt.Sprintf(line, window))
			first := check(l, "a", 1)
			first.Slot = 1
			d := ask(t, s, first)
			verify(first)
			for slot := range 20 {
				c := check(l, "a", 1)
				c.Slot = uint64(2 + slot)
				ask(t, s, c)
				verify(c)
			}
			require.NoError(t, s.Return(ctx, []limiter.Check{first}, d))
			verify(first)
		}
	}
	keys, err := server.Client().Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		left, err := server.Client().PTTL(ctx, key).Result()
		require.NoError(t, err)
		require.NotEqualValues(t, -1, left, key)
		require.LessOrEqual(t, left, 48*time.Hour+time.Second, key)
	}
}

// A bucket that tiers share lives until it has drained for the slowest of them.
func TestSharedBucketLivesForItsSlowestTier(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	large := rule(t, "r token_bucket limit=100 window=1h burst=10")
	large.Slowest = 10
	c := check(large, "a", 10)
	require.Equal(t, 6*time.Minute, ask(t, s, c).Results[0].ResetAfter)
	left := server.Client().PTTL(t.Context(), string(c.Key)).Val()
	require.Greater(t, left, 59*time.Minute)
	require.LessOrEqual(t, left, time.Hour)
}

// A decision's time keeps all sixteen digits on the way to Redis and back.
func TestSixteenDigits(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	ctx := context.Background()
	for range 200 { // trailing zeros prove nothing
		set := check(rule(t, "set rolling_window limit=1000 window=1h storage=sorted_set"), "a", 1)
		bucket := check(rule(t, "bucket token_bucket limit=1 window=744h burst=1681"), "a", 1681)
		slot := check(rule(t, "slot concurrency limit=1000 window=1h"), "a", 1)
		d := ask(t, s, set, bucket, slot)
		require.True(t, d.Allowed)
		at := d.Results[0].TakenAt
		text := strconv.FormatInt(at, 10)
		require.Len(t, text, 16)

		members, err := server.Client().ZRange(ctx, string(set.Key), 0, -1).Result()
		require.NoError(t, err)
		require.Equal(t, []string{text}, members)
		scores, err := server.Client().ZRangeArgsWithScores(ctx, argsOf(slot.Key)).Result()
		require.NoError(t, err)
		require.Equal(t, at+time.Hour.Microseconds(), int64(scores[0].Score))
		state, err := server.Client().Get(ctx, string(bucket.Key)).Result()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d %d %d", at, int64(1681*2_678_400_000_000), int64(2_678_400_000_000)), state)

		checks := []limiter.Check{set, bucket, slot}
		require.NoError(t, s.Return(ctx, checks, d))
		require.EqualValues(t, 1000, ask(t, s, peek(set)).Results[0].Remaining)
		require.NoError(t, s.Reset(ctx, checks))
	}
}

// Identical requests in one batch are charged as if they had arrived one by one.
func TestTwinsInTheScript(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	f := func(want []int64, times int, lines ...string) {
		t.Helper()
		require.NoError(t, server.Client().FlushAll(t.Context()).Err())
		call := &limiter.Call{Times: times}
		for _, line := range lines {
			call.Checks = append(call.Checks, check(rule(t, line), "a", 1))
		}
		got := decide(t, server, call)
		require.Equal(t, stopped(), got[0])
		require.Equal(t, want, got[1:])
	}
	const second = 1_000_000
	// fits, remaining, retry, reset of each check
	f([]int64{3, 0, 10*second - 1, 10*second - 1}, 5, "r fixed_window limit=3 window=10s")
	f([]int64{5, 4, 0, 10*second - 1}, 5, "r fixed_window limit=9 window=10s")
	f([]int64{1, 0, 10*second - 1, 10*second - 1, 3, 2, 0, 10 * second}, 5,
		"tight fixed_window limit=1 window=10s", "roomy token_bucket limit=1 window=10s burst=3")
	// A count_denied rule has not denied the requests that the other rule refused.
	f([]int64{1, 0, 10*second - 1, 10*second - 1, 3, 2, 0, 10 * second}, 5,
		"tight fixed_window limit=1 window=10s", "roomy token_bucket limit=1 window=10s burst=3 count_denied")
	f([]int64{3, 0, 10 * second, 30 * second, 9, 6, 0, 30 * second}, 9,
		"tight token_bucket limit=1 window=10s burst=3 count_denied", "roomy token_bucket limit=1 window=10s burst=9")
	// An overdraft charges them all, whoever refuses them.
	f([]int64{3, 0, 30 * second, 50 * second}, 5, "r token_bucket limit=1 window=10s burst=3 overdraft")
	f([]int64{1, 0, 10*second - 1, 10*second - 1, 5, 4, 0, 50 * second}, 5,
		"tight fixed_window limit=1 window=10s", "roomy token_bucket limit=1 window=10s burst=9 overdraft")
	// A shadow rule charges what passes and refuses nothing.
	f([]int64{1, 0, 10*second - 1, 10*second - 1, 5, 4, 0, 10*second - 1}, 5,
		"shadow fixed_window limit=1 window=10s shadow", "r fixed_window limit=9 window=10s")
}

// decide runs calls in one script and returns its reply.
func decide(t *testing.T, server *testenv.Server, calls ...*limiter.Call) []int64 {
	t.Helper()
	command, source := redisstore.Command(stopped, calls)
	require.NoError(t, server.Client().ScriptLoad(t.Context(), source).Err())
	got, err := server.Client().Do(t.Context(), command...).Int64Slice()
	require.NoError(t, err)
	return got
}

func TestReplyErrorIsTheCallsOwn(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	heard := make(news, 1)
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Hooks: heard.hooks()})
	ctx := context.Background()
	for name, l := range every(t) {
		c := check(l, "a", 1)
		require.NoError(t, server.Client().LPush(ctx, string(c.Key), "not ours").Err())
		for range 10 {
			err := s.Take(ctx, []limiter.Check{c}, &limiter.Decision{})
			require.ErrorIs(t, err, limiter.ErrReply, name)
			require.ErrorContains(t, err, "WRONGTYPE")
			require.Equal(t, "reply", redisstore.ErrorKind(err))
		}
		require.True(t, ask(t, s, check(l, "b", 1)).Allowed, "the shard works")
		require.NoError(t, s.Reset(ctx, []limiter.Check{c}))
		require.True(t, ask(t, s, c).Allowed, "and an operator can repair it")
	}
	require.Empty(t, heard, "the breaker stayed closed")
}

// A foreign key fails only the request that needs it, not the others in the same script.
func TestAForeignKeyHarmsItsOwnRequestOnly(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	ctx := context.Background()
	for name, l := range every(t) {
		for what, write := range map[string]func(key string) error{
			"list": func(key string) error { return server.Client().LPush(ctx, key, "not ours").Err() },
			"text": func(key string) error { return server.Client().Set(ctx, key, "not ours", time.Minute).Err() },
		} {
			require.NoError(t, server.Client().FlushAll(ctx).Err())
			foreign, before, after := check(l, "foreign", 1), check(l, "before", 1), check(l, "after", 1)
			require.NoError(t, write(string(foreign.Key)))
			var calls []*limiter.Call
			for i, checks := range [][]limiter.Check{{before}, {before, foreign}, {after}} {
				for j := range checks {
					checks[j].Slot = uint64(10*i + j)
				}
				calls = append(calls, &limiter.Call{Times: 1, Checks: checks})
			}
			got := decide(t, server, calls...)
			require.EqualValues(t, 1, got[1], "%s, %s: the request before", name, what)
			require.EqualValues(t, 1, got[13], "%s, %s: the request after", name, what)
			if what == "list" {
				require.Equal(t, []int64{-1, 0, 0, 0, -1, 0, 0, 0}, got[5:13], name)
			}
			require.NotEqual(t, "none", server.Client().Type(ctx, string(after.Key)).Val(), "%s: charged", name)
		}
	}
}

func TestSecuredServer(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{TLS: true, User: "weir", Password: "s3cret"})
	l := rule(t, "r fixed_window limit=5 window=1h")
	password := func(s string) func() string { return func() string { return s } }
	good := redisstore.Config{
		Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience,
		TLS: server.TLSConfig(), Username: "weir", Password: password("s3cret"),
	}
	require.True(t, ask(t, open(t, good), check(l, "a", 1)).Allowed)

	f := func(change func(*redisstore.Config)) {
		t.Helper()
		bad := good
		change(&bad)
		s := open(t, bad)
		err := s.Take(context.Background(), []limiter.Check{check(l, "a", 1)}, &limiter.Decision{})
		require.Error(t, err)
		require.NotEqual(t, "reply", redisstore.ErrorKind(err), "%v: the shard is at fault, not the call", err)
	}
	f(func(c *redisstore.Config) { c.Password = password("guess") })
	f(func(c *redisstore.Config) { c.Username = "somebody" })
	f(func(c *redisstore.Config) { c.Password = nil })
	f(func(c *redisstore.Config) { c.TLS = nil })
}

func TestClusterAllOrNothing(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: patience, Clock: stopped})
	awaitTopology(t, s)
	require.True(t, s.Slots())
	spread := limiter.NewSpread(s, time.Minute)
	one := rule(t, "one rolling_window limit=1 window=1h")
	// Two subjects on different masters.
	mine, theirs := "a", ""
	for i := 0; theirs == ""; i++ {
		if other := fmt.Sprint("b", i); cluster.MasterOf("{"+other+"}") != cluster.MasterOf("{"+mine+"}") {
			theirs = other
		}
	}
	for name, l := range every(t) {
		if l.Algorithm == limiter.Concurrency {
			continue // each slot on its own, below
		}
		require.NoError(t, s.Reset(t.Context(), []limiter.Check{check(one, mine, 1), check(one, theirs, 1)}))
		for _, subject := range []string{mine, theirs} { // in one slot, then in two
			require.True(t, ask(t, spread, check(l, mine, 3), check(one, subject, 1)).Allowed, name)
			before := ask(t, s, peek(check(l, mine, 1))).Results[0]
			for range 20 {
				d := ask(t, spread, check(l, mine, 3), check(one, subject, 1))
				require.False(t, d.Allowed)
				require.Contains(t, []limiter.Source{limiter.SourceRedis, limiter.SourceNone}, d.Results[0].Source)
				require.Equal(t, d.Results[0].Source == limiter.SourceRedis, d.Results[0].Allowed, "unless the other slot was asked alone")
				require.False(t, d.Results[0].Charged)
			}
			require.Equal(t, before, ask(t, s, peek(check(l, mine, 1))).Results[0], "%s: uncharged", name)
		}
	}
	require.NoError(t, s.Reset(t.Context(), []limiter.Check{check(one, theirs, 1)}))
	slot := rule(t, "slot concurrency limit=1 window=1h")
	held, passed := check(slot, mine, 1), check(one, theirs, 1)
	held.Slot = 1
	d := ask(t, spread, held, passed)
	require.True(t, d.Allowed)
	require.NoError(t, spread.Return(t.Context(), []limiter.Check{held, passed}, d))
	require.EqualValues(t, 1, ask(t, s, peek(held)).Results[0].Remaining)
	require.EqualValues(t, 1, ask(t, s, peek(passed)).Results[0].Remaining)
}

// BenchmarkTake measures a decision that passes, alone and among many callers.
func BenchmarkTake(b *testing.B) {
	server := testenv.Redis(b, testenv.Options{})
	for name, s := range map[string]limiter.Store{
		"redis":  open(b, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience}),
		"memory": memory.New(memory.Config{}),
	} {
		l := rule(b, "r sliding_window limit=1000000 window=1s")
		b.Run(name+"/alone", func(b *testing.B) {
			b.ReportAllocs()
			checks := []limiter.Check{check(l, "a", 1)}
			var d limiter.Decision
			for b.Loop() {
				if err := s.Take(context.Background(), checks, &d); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/seldom", func(b *testing.B) {
			checks := []limiter.Check{check(l, "a", 1)}
			var d limiter.Decision
			var took []time.Duration
			tick := time.NewTicker(500 * time.Microsecond)
			defer tick.Stop()
			for b.Loop() {
				<-tick.C
				began := time.Now()
				if err := s.Take(context.Background(), checks, &d); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/float64(time.Microsecond), "p50-µs")
		})
		b.Run(name+"/together", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(128)
			b.RunParallel(func(pb *testing.PB) {
				checks := []limiter.Check{check(l, strings.Repeat("x", int(time.Now().UnixNano()%16)), 1)}
				var d limiter.Decision
				for pb.Next() {
					if err := s.Take(context.Background(), checks, &d); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func argsOf(key []byte) redis.ZRangeArgs {
	return redis.ZRangeArgs{Key: string(key), Start: 0, Stop: -1}
}

// A connection whose deadline passed missed the budget, like a caller that stopped waiting.
func TestPassedDeadlineIsATimeout(t *testing.T) {
	read := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	require.Equal(t, "timeout", redisstore.ErrorKind(read))
	require.Equal(t, "connection", redisstore.ErrorKind(&net.OpError{Op: "read", Net: "tcp", Err: io.EOF}))
}
