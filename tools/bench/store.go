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
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// decider decides once for one of the users.
type decider func(ctx context.Context, user int) error

// store: decisions alone, without HTTP, next to the best-known Go library.
func (b *bench) store(ctx context.Context) error {
	addr, err := b.startRedis()
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 512})
	defer client.Close()
	lib := redis_rate.NewLimiter(client)
	limit := redis_rate.PerMinute(100)
	names := make([]string, users)
	for i := range names {
		names[i] = "user-" + strconv.Itoa(i)
	}
	library := func(ctx context.Context, user int) error {
		_, err := lib.Allow(ctx, names[user], limit)
		return err
	}
	for _, keys := range []string{"uniform", "zipf(1.1)"} {
		for _, callers := range []int{64, 512} {
			contenders := []*contender{{name: "redis_rate", measure: b.callers(client, library, keys, callers)}}
			for _, l := range []*limiter.Limit{
				{Rule: "lb", Algorithm: limiter.LeakyBucket, Limit: 100, Burst: 99, Window: time.Minute},
				{Rule: "rr", Algorithm: limiter.RollingWindow, Limit: 100, Window: time.Minute},
				{Rule: "rs", Algorithm: limiter.RollingWindow, Storage: limiter.SortedSet, Limit: 100, Window: time.Minute},
			} {
				weir, closeWeir, err := openWeir(addr, l)
				if err != nil {
					return err
				}
				defer closeWeir()
				contenders = append(contenders, &contender{name: "weir, " + describe(l), measure: b.callers(client, weir, keys, callers)})
			}
			if err := b.compare(ctx, fmt.Sprintf("The store alone, %d callers, %s keys of %d, 100 a minute each", callers, keys, users), contenders...); err != nil {
				return err
			}
		}
	}
	return nil
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
	store := limiter.NewDenied(limiter.NewFallback(shared, local, func() int { return 1 }, func(error) { failed.Add(1) }), 100_000, 0)
	decide := decideBy(store, l)
	return func(ctx context.Context, user int) error {
			if failed.Load() > 0 {
				return fmt.Errorf("%d decisions fell back", failed.Load())
			}
			return decide(ctx, user)
		}, func() {
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

// callers measures n goroutines that each decide repeatedly, after a flush.
func (b *bench) callers(client *redis.Client, decide decider, keys string, n int) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		if err := client.FlushDB(ctx).Err(); err != nil {
			return sample{}, err
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
				if keys != "uniform" {
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
			return sample{}, *err
		}
		all := slices.Concat(latencies...)
		slices.Sort(all)
		return sample{rate: float64(total.Load()) / time.Since(began).Seconds(), p99: all[len(all)*99/100]}, nil
	}
}

// memory: the store in this process, on one core.
func (b *bench) memory(ctx context.Context) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var contenders []*contender
	for _, a := range limiter.Algorithms() {
		l := &limiter.Limit{Rule: "m", Algorithm: a, Limit: 100, Window: time.Minute}
		if a == limiter.TokenBucket {
			l.Burst = 100
		}
		decide := decideBy(memory.New(memory.Config{}), l)
		contenders = append(contenders, &contender{name: a.String(), measure: func(ctx context.Context) (sample, error) {
			r := rand.New(rand.NewSource(1))
			n, began := 0, time.Now()
			for time.Since(began) < b.duration {
				for range 1000 {
					if err := decide(ctx, r.Intn(1000)); err != nil {
						return sample{}, err
					}
				}
				n += 1000
			}
			return sample{rate: float64(n) / time.Since(began).Seconds()}, nil
		}})
	}
	return b.compare(ctx, "The memory store, one core, 1000 keys", contenders...)
}
