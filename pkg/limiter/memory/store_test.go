package memory

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func open(_ *testing.T, clock func() int64) limiter.FullStore { return New(Config{Clock: clock}) }

func TestTimelines(t *testing.T) { storetest.Run(t, open) }

func TestProperties(t *testing.T)  { storetest.RunProperties(t, 100, open) }
func TestLeases(t *testing.T)      { storetest.RunLeases(t, 50, open) }
func TestMerges(t *testing.T)      { storetest.RunMerges(t, 50, open) }
func TestMoves(t *testing.T)       { storetest.RunMoves(t, 100, open) }
func TestLeasedParts(t *testing.T) { storetest.RunLeasedParts(t, 100, open) }
func TestTerms(t *testing.T)       { storetest.RunTerms(t, 100, open) }
func TestOpened(t *testing.T)      { storetest.RunOpened(t, open) }
func TestSettled(t *testing.T)     { storetest.RunSettled(t, open) }

func check(t testing.TB, line, subject string) limiter.Check {
	t.Helper()
	l, err := storetest.ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	return limiter.Check{Limit: l, Key: storetest.Key(subject, l), Cost: 1}
}

func ask(t testing.TB, s *Store, checks ...limiter.Check) *limiter.Decision {
	t.Helper()
	var d limiter.Decision
	require.NoError(t, s.Take(context.Background(), checks, &d))
	return &d
}

// Evicting a key for one of a request's keys must not lose the charge of another.
func TestNewKeysOfOneRequestKeepTheirCharge(t *testing.T) {
	for _, maxKeys := range []int{1, DefaultMaxKeys} {
		s := New(Config{MaxKeys: maxKeys, Clock: func() int64 { return storetest.Epoch }})
		var checks []limiter.Check
		for i := range 4 * shardCount { // several in each shard, and past inline
			checks = append(checks, check(t, fmt.Sprintf("r%d fixed_window limit=2 window=1s", i), "a"))
		}
		ask(t, s, checks...)
		for _, c := range checks {
			c.Peek = true
			require.EqualValues(t, 1, ask(t, s, c).Results[0].Remaining)
		}
	}
}

func TestMaxKeys(t *testing.T) {
	var clock storetest.Clock
	clock.Set(0)
	s := New(Config{MaxKeys: 640, Clock: clock.Now})
	l := check(t, "r rolling_window limit=1 window=1h", "")
	for i := range 10_000 {
		l.Key = fmt.Appendf(nil, "client%d", i)
		require.True(t, ask(t, s, l).Allowed)
		require.LessOrEqual(t, s.Len(), 640)
	}
	require.Greater(t, s.Len(), 500)
}

// Expired keys are dropped before the store is full.
func TestExpiredKeysGo(t *testing.T) {
	var clock storetest.Clock
	s := New(Config{Clock: clock.Now})
	c := check(t, "r rolling_window limit=1 window=1s", "")
	for i := range 100_000 {
		clock.Set(time.Duration(i) * time.Millisecond)
		c.Key = fmt.Appendf(nil, "client%d", i)
		ask(t, s, c)
	}
	require.Less(t, s.Len(), 20_000, "a thousand are live at once")
}

func TestPeekAndRefusalKeepNoKey(t *testing.T) {
	s := New(Config{})
	c := check(t, "r rolling_window limit=1 window=1s", "a")
	c.Peek = true
	ask(t, s, c)
	require.Zero(t, s.Len())
}

// A request that costs more than can ever pass is refused and breaks nothing.
func TestCostAboveTheLimit(t *testing.T) {
	for _, line := range lines {
		s := New(Config{})
		c := check(t, line, "a")
		for _, used := range []int64{0, 1, c.Limit.MaxCost()} {
			c.Cost = used
			ask(t, s, c)
			c.Cost = c.Limit.MaxCost() + 1
			require.False(t, ask(t, s, c).Allowed, line)
		}
	}
}

var lines = []string{
	"fixed_window fixed_window limit=100 window=1h",
	"sliding_window sliding_window limit=100 window=1h",
	"token_bucket token_bucket limit=100 window=1h burst=100",
	"leaky_bucket leaky_bucket limit=100 window=1h burst=99",
	"rolling_window rolling_window limit=100 window=1h",
	"sorted_set rolling_window limit=100 window=1h storage=sorted_set",
	"concurrency concurrency limit=100 window=1h",
}

// A bucket that tiers share is forgotten only when it has drained for the slowest of them.
func TestSharedBucketLivesForItsSlowestTier(t *testing.T) {
	var clock storetest.Clock
	clock.Set(0)
	s := New(Config{Clock: clock.Now})
	large, small := check(t, "r token_bucket limit=100 window=10s burst=10", "a"), check(t, "r token_bucket limit=10 window=10s burst=10", "a")
	large.Limit.Slowest, small.Limit.Slowest = 10, 10
	large.Cost = 10
	require.True(t, ask(t, s, large).Allowed)
	for _, at := range []time.Duration{2 * time.Second, 10 * time.Second} { // it drained for the large one after 1s
		clock.Set(at)
		for range shardCount {
			s.Sweep()
		}
		small.Peek = true
		require.EqualValues(t, at/time.Second, ask(t, s, small).Results[0].Remaining)
	}
	require.Zero(t, s.Len())
}

func TestTakeAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	for _, line := range lines {
		s := New(Config{})
		checks := []limiter.Check{check(t, line, "a"), check(t, "other fixed_window limit=50 window=1h", "a")}
		var d limiter.Decision
		f := func() { // passes, is refused, is returned
			if err := s.Take(ctx, checks, &d); err != nil {
				t.Fatal(err)
			}
			if d.Allowed && checks[0].Limit.Algorithm == limiter.Concurrency {
				if err := s.Return(ctx, checks, &d); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 200 { // until the logs have grown
			f()
		}
		require.Zero(t, testing.AllocsPerRun(1000, f), line)
	}
}

// One key per algorithm; most requests pass.
func BenchmarkTake(b *testing.B) {
	for _, line := range lines {
		name, _, _ := strings.Cut(line, " ")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			s := New(Config{})
			c := check(b, strings.NewReplacer("window=1h", "window=1ms", "=100 ", "=10000 ", "=99", "=9999").Replace(line), "a")
			checks := []limiter.Check{c}
			var d limiter.Decision
			for b.Loop() {
				_ = s.Take(b.Context(), checks, &d)
			}
		})
	}
}

func BenchmarkTake100kKeys(b *testing.B) {
	const keys = 100_000
	s := New(Config{})
	c := check(b, "r sliding_window limit=100 window=1m", "203.0.000000")
	ask := func(checks []limiter.Check, d *limiter.Decision, i int) {
		k := i * 7919 % keys // no two neighbors in a row
		digits := checks[0].Key[len("weir:{203.0."):]
		for j := 5; j >= 0; j-- {
			digits[j], k = byte('0'+k%10), k/10
		}
		_ = s.Take(context.Background(), checks, d)
	}
	one := func() []limiter.Check {
		mine := c
		mine.Key = bytes.Clone(c.Key)
		return []limiter.Check{mine}
	}
	var d limiter.Decision
	checks := one()
	for i := range keys {
		ask(checks, &d, i)
	}
	require.Equal(b, keys, s.Len())
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			ask(checks, &d, i)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var d limiter.Decision
			checks := one()
			for i := 0; pb.Next(); i++ {
				ask(checks, &d, i)
			}
		})
	})
}
