package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func rule(t testing.TB, line string) *limiter.Limit {
	t.Helper()
	l, err := storetest.ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	return l
}

func check(l *limiter.Limit, subject string, cost int64) limiter.Check {
	return limiter.Check{Limit: l, Key: storetest.Key(subject, l), Cost: cost}
}

func peek(c limiter.Check) limiter.Check {
	c.Peek = true
	return c
}

func ask(t testing.TB, s limiter.Store, checks ...limiter.Check) *limiter.Decision {
	t.Helper()
	var d limiter.Decision
	require.NoError(t, s.Take(context.Background(), checks, &d))
	return &d
}

// every returns one limit of 500 for each way of counting; nothing becomes free while a test's
// clock stands still.
func every(t testing.TB) map[string]*limiter.Limit {
	limits := map[string]*limiter.Limit{}
	for _, line := range []string{
		"fixed_window limit=500 window=1h",
		"sliding_window limit=500 window=1h",
		"token_bucket limit=500 window=1h burst=500",
		"leaky_bucket limit=500 window=1h burst=499",
		"rolling_window limit=500 window=1h",
		"rolling_window limit=500 window=1h storage=sorted_set",
		"concurrency limit=500 window=1h",
	} {
		limits[line] = rule(t, fmt.Sprintf("rule%d %s", len(limits), line))
	}
	return limits
}

func stopped() int64 { return storetest.Epoch + 1 }

// flood takes 20 times from each of 64 goroutines and returns how many passed.
func flood(t *testing.T, s limiter.Store, l *limiter.Limit) int64 {
	var passed, slot atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			var d limiter.Decision
			for range 20 {
				c := check(l, "a", 1)
				c.Slot = uint64(slot.Add(1))
				if err := s.Take(context.Background(), []limiter.Check{c}, &d); err != nil {
					t.Error(err)
				}
				if d.Allowed {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return passed.Load()
}

func TestExactUnderConcurrency(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Clock: stopped})
	for name, l := range every(t) {
		t.Run(name, func(t *testing.T) {
			require.EqualValues(t, 500, flood(t, limiter.NewDenied(s, 1000, 0), l))
		})
	}
}

// A flush of the scripts, as during an upgrade, loses no request and no count.
func TestScriptFlushUnderLoad(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Clock: stopped})
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if server.Client().ScriptFlush(ctx).Err() == nil {
				n++
			}
		}
		flushed <- n
	}()
	for _, l := range every(t) {
		require.EqualValues(t, 500, flood(t, s, l))
	}
	cancel()
	require.Positive(t, <-flushed)
}

// news receives the store's reports about its shards.
type news chan bool

// hooks receives changes, not further causes while a shard is down.
func (n news) hooks() redisstore.Hooks {
	var down atomic.Bool
	return redisstore.Hooks{Shard: func(_ string, err error) {
		if down.Swap(err != nil) != (err != nil) {
			n <- err == nil
		}
	}}
}

func (n news) await(t *testing.T, up bool) {
	t.Helper()
	select {
	case got := <-n:
		require.Equal(t, up, got)
	case <-time.After(time.Minute):
		t.Fatal("no event from the shard")
	}
}

func TestRestartUnderLoad(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	heard := make(news, 100)
	const budget = time.Second // only a server that is down exceeds it
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: budget, Hooks: heard.hooks()})
	l := rule(t, "r rolling_window limit=10000 window=1h")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var slowest atomic.Int64
	for range 8 {
		wg.Go(func() {
			var d limiter.Decision
			pause := time.NewTicker(time.Millisecond)
			defer pause.Stop()
			for ctx.Err() == nil {
				begin := time.Now()
				err := s.Take(ctx, []limiter.Check{check(l, "a", 1)}, &d)
				slowest.Store(max(slowest.Load(), int64(time.Since(begin))))
				if err != nil { // it fails immediately while the server is down, and would use all CPU
					<-pause.C
				}
			}
		})
	}
	for range 3 {
		server.Kill()
		heard.await(t, false)
		require.ErrorIs(t, s.Take(ctx, []limiter.Check{check(l, "a", 1)}, &limiter.Decision{}), limiter.ErrBroken)
		server.Start()
		heard.await(t, true)
		require.Eventually(t, func() bool { // the event comes just before the breaker closes
			var d limiter.Decision
			return s.Take(ctx, []limiter.Check{check(l, "b", 1)}, &d) == nil && d.Allowed
		}, testenv.Patience, time.Millisecond)
	}
	cancel()
	wg.Wait()
	require.Less(t, time.Duration(slowest.Load()), 20*budget, "even on a busy machine, nothing waits for the server")
	require.Empty(t, heard)
}

func TestCloseLeavesNothing(t *testing.T) {
	f := func(name string, c redisstore.Config) {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			c.Timeout = patience
			s, err := redisstore.Open(c)
			require.NoError(t, err)
			awaitTopology(t, s)
			for i := range 20 { // every master of a cluster
				require.True(t, ask(t, s, check(rule(t, "r fixed_window limit=5 window=1h"), fmt.Sprint(i), 1)).Allowed)
			}
			require.NoError(t, s.Close())
			err = s.Take(context.Background(), []limiter.Check{check(rule(t, "r fixed_window limit=5 window=1h"), "a", 1)}, &limiter.Decision{})
			require.Error(t, err)
		})
	}
	f("single", redisstore.Config{Mode: redisstore.Single, Addrs: []string{testenv.Redis(t, testenv.Options{}).Addr}})
	f("cluster", redisstore.Config{Mode: redisstore.Cluster, Addrs: testenv.Cluster(t, testenv.Options{}).Addrs()})
}

// awaitTopology waits until a cluster store knows its masters; the others need no wait.
func awaitTopology(t *testing.T, s *redisstore.Store) {
	t.Helper()
	c := peek(check(rule(t, "probe fixed_window limit=1 window=1h"), "probe", 1))
	require.Eventually(t, func() bool {
		return s.Take(context.Background(), []limiter.Check{c}, &limiter.Decision{}) == nil
	}, time.Minute, time.Millisecond)
}
