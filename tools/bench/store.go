package main

import (
	"context"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/lease"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/tools/internal/paired"
)

// decider decides once for one of the users.
type decider func(ctx context.Context, user int) error

// store measures decisions alone, without HTTP, against the best-known Go library.
func (b *bench) store(ctx context.Context) error {
	addr, err := b.startRedis()
	if err != nil {
		return err
	}
	for _, keys := range []struct {
		name, title string
		goal        float64 // of 64 callers
	}{{"uniform", "uniform", 2.5}, {"zipf", "zipf(1.1)", 8}} {
		for _, callers := range []int{64, 512} {
			library, closeLibrary := redisRate(addr, 100)
			defer closeLibrary()
			all := []*contender{b.callers("redis_rate", addr, library, keys.name, callers)}
			for _, l := range []*limiter.Limit{
				{Rule: "rr", Algorithm: limiter.RollingWindow, Limit: 100, Window: time.Minute},
				{Rule: "lb", Algorithm: limiter.LeakyBucket, Limit: 100, Burst: 99, Window: time.Minute},
				{Rule: "rs", Algorithm: limiter.RollingWindow, Storage: limiter.SortedSet, Limit: 100, Window: time.Minute},
			} {
				weir, closeWeir, err := openWeir(addr, l)
				if err != nil {
					return err
				}
				defer closeWeir()
				c := b.callers("weir, "+describe(l), addr, weir, keys.name, callers)
				c.ours = true
				if callers == 64 && l.Storage != limiter.SortedSet {
					c.goal = keys.goal
				}
				all = append(all, c)
			}
			title := fmt.Sprintf("The store alone, strict, %d callers, %s keys of %d, 100 per minute each", callers, keys.title, users)
			if err := b.compare(ctx, fmt.Sprintf("store-%s-%d", keys.name, callers), title, "decisions", all...); err != nil {
				return err
			}
		}
	}
	return nil
}

// hot measures one key far below its limit.
func (b *bench) hot(ctx context.Context) error {
	addr, err := b.startRedis()
	if err != nil {
		return err
	}
	const limit, callers = limiter.MaxCount, 64
	library, closeLibrary := redisRate(addr, limit)
	defer closeLibrary()
	all := []*contender{b.callers("redis_rate", addr, library, "one", callers)}
	for _, l := range []*limiter.Limit{
		{Rule: "ts", Algorithm: limiter.TokenBucket, Limit: limit, Burst: limit, Window: time.Minute},
		{Rule: "tl", Algorithm: limiter.TokenBucket, Limit: limit, Burst: limit, Window: time.Minute, Leased: true},
		{Rule: "sl", Algorithm: limiter.SlidingWindow, Limit: limit, Window: time.Minute, Leased: true},
	} {
		weir, closeWeir, err := openWeir(addr, l)
		if err != nil {
			return err
		}
		defer closeWeir()
		name := "weir, " + l.Algorithm.String() + ", strict"
		if l.Leased {
			name = "weir, " + l.Algorithm.String() + ", leased"
		}
		c := b.callers(name, addr, weir, "one", callers)
		c.ours = true
		if l.Leased {
			c.goal = 50
		}
		all = append(all, c)
	}
	return b.compare(ctx, "hot", fmt.Sprintf("The store alone, one hot key that is always allowed, %d callers", callers), "decisions", all...)
}

// redisRate returns the library's limiter with this limit per minute for each user.
func redisRate(addr string, limit int) (decider, func()) {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 512})
	lib, allowed := redis_rate.NewLimiter(client), redis_rate.PerMinute(limit)
	names := make([]string, users)
	for i := range names {
		names[i] = "user-" + strconv.Itoa(i)
	}
	return func(ctx context.Context, user int) error {
		_, err := lib.Allow(ctx, names[user], allowed)
		return err
	}, func() { _ = client.Close() }
}

func describe(l *limiter.Limit) string {
	if l.Algorithm == limiter.RollingWindow {
		return l.Algorithm.String() + ", " + l.Storage.String()
	}
	return l.Algorithm.String()
}

// openWeir composes the layers as the edge does.
func openWeir(addr string, l *limiter.Limit) (decider, func(), error) {
	shared, err := redisstore.Open(redisstore.Config{Mode: redisstore.Single, Addrs: []string{addr}, Timeout: time.Second})
	if err != nil {
		return nil, nil, err
	}
	var failed atomic.Int64
	local := memory.New(memory.Config{})
	one := func() int { return 1 }
	leases := lease.New(lease.Config{Next: limiter.NewFallback(shared, local, one, func(error) { failed.Add(1) }), Grants: shared, Nodes: one})
	decide := decideBy(limiter.NewDenied(leases, 100_000, 0), l)
	return func(ctx context.Context, user int) error {
			if failed.Load() > 0 {
				return fmt.Errorf("%d decisions fell back", failed.Load())
			}
			return decide(ctx, user)
		}, func() {
			leases.Close()
			_ = shared.Close()
		}, nil
}

func decideBy(store limiter.Store, l *limiter.Limit) decider {
	keys := make([][]byte, users)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "weir:{user-%d}:%s:%s", i, l.Rule, l.Tag())
	}
	pool := sync.Pool{New: func() any { return &question{checks: []limiter.Check{{Limit: l, Cost: 1}}} }}
	return func(ctx context.Context, user int) error {
		q := pool.Get().(*question)
		defer pool.Put(q)
		q.checks[0].Key = keys[user]
		return store.Take(ctx, q.checks, &q.decision)
	}
}

type question struct {
	checks   []limiter.Check
	decision limiter.Decision
}

// callers measures n goroutines that decide repeatedly. Counters persist between rounds, so in
// later ones clients have used up their limits.
func (b *bench) callers(name, addr string, decide decider, keys string, n int) *contender {
	return &contender{Contender: paired.Contender{Name: name, Measure: func(ctx context.Context, round int) (paired.Sample, error) {
		if round == 0 {
			if err := flush(ctx, addr); err != nil {
				return paired.Sample{}, err
			}
		}
		runtime.GC()
		var total atomic.Int64
		var failure atomic.Pointer[error]
		latencies := make([][]time.Duration, n)
		deadline := time.Now().Add(b.duration)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				r := rand.New(rand.NewSource(int64(i)))
				next := func() int { return r.Intn(users) }
				switch keys {
				case "one":
					next = func() int { return 0 }
				case "zipf":
					z := rand.NewZipf(r, 1.1, 1, users-1)
					next = func() int { return int(z.Uint64()) }
				}
				count := int64(0)
				for {
					start := time.Now()
					if start.After(deadline) {
						break
					}
					if err := decide(ctx, next()); err != nil {
						failure.Store(&err)
						break
					}
					if count++; count%16 == 0 {
						latencies[i] = append(latencies[i], time.Since(start))
					}
				}
				total.Add(count)
			})
		}
		wg.Wait()
		if err := failure.Load(); err != nil {
			return paired.Sample{}, *err
		}
		all := slices.Concat(latencies...)
		slices.Sort(all)
		return paired.Sample{Rate: float64(total.Load()) / time.Since(began).Seconds(), P99: all[len(all)*99/100]}, nil
	}}}
}

func flush(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	return client.FlushDB(ctx).Err()
}

// memory measures the in-process store on one core.
func (b *bench) memory(ctx context.Context) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var contenders []*contender
	for _, a := range limiter.Algorithms() {
		l := &limiter.Limit{Rule: "m", Algorithm: a, Limit: 100, Window: time.Minute}
		if a == limiter.TokenBucket {
			l.Burst = 100
		}
		decide := decideBy(memory.New(memory.Config{}), l)
		contenders = append(contenders, &contender{ours: true, Contender: paired.Contender{Name: a.String(), Measure: func(ctx context.Context, _ int) (paired.Sample, error) {
			r := rand.New(rand.NewSource(1))
			n, began := 0, time.Now()
			for time.Since(began) < b.duration {
				for range 1000 {
					if err := decide(ctx, r.Intn(1000)); err != nil {
						return paired.Sample{}, err
					}
				}
				n += 1000
			}
			return paired.Sample{Rate: float64(n) / time.Since(began).Seconds()}, nil
		}}})
	}
	return b.compare(ctx, "memory", "The memory store, one core, 1,000 keys", "decisions", contenders...)
}
