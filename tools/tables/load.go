package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

type loaded struct {
	decisions, refused, seconds   float64
	requested, calls, script, cpu float64 // decisions asked for; scripts; µs of each; s of CPU
	batches                       float64 // round trips
	median, p99                   time.Duration
}

// load flushes Redis, then makes decisions as fast as it can with this many callers.
func load(ctx context.Context, server *server, store *layers, l *limiter.Limit, callers int, zipf bool, d time.Duration) (*loaded, error) {
	if err := server.client.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	keys := make([][]byte, users)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "weir:{user-%d}:%s:%s", i, l.Rule, l.Tag())
	}
	runtime.GC()
	before, err := server.stats(ctx)
	if err != nil {
		return nil, err
	}
	var total, refused atomic.Int64
	requested, batches := store.requested.Load(), store.batches.Load()
	took, errs := make([][]time.Duration, callers), make([]error, callers)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewSource(int64(i)))
			next := func() int { return r.Intn(users) }
			if zipf {
				z := rand.NewZipf(r, 1.1, 1, users-1)
				next = func() int { return int(z.Uint64()) }
			}
			checks := []limiter.Check{{Limit: l, Cost: 1}}
			var decision limiter.Decision
			n, no := int64(0), int64(0)
			for errs[i] == nil && time.Since(began) < d {
				checks[0].Key = keys[next()]
				start := time.Now()
				errs[i] = store.Take(ctx, checks, &decision)
				if n++; callers == 1 || n%64 == 0 {
					took[i] = append(took[i], time.Since(start))
				}
				if !decision.Allowed {
					no++
				}
			}
			total.Add(n)
			refused.Add(no)
		})
	}
	wg.Wait()
	out := &loaded{decisions: float64(total.Load()), refused: float64(refused.Load()), seconds: time.Since(began).Seconds()}
	after, err := server.stats(ctx)
	if err := errors.Join(append(errs, err, ctx.Err(), store.failure())...); err != nil {
		return nil, err
	}
	out.requested, out.batches = float64(store.requested.Load()-requested), float64(store.batches.Load()-batches)
	out.calls, out.cpu = after.calls-before.calls, after.cpu-before.cpu
	out.script = (after.usec - before.usec) / max(1, out.calls)
	all := slices.Concat(took...)
	if len(all) > 0 {
		out.median = median(all)
		out.p99 = all[len(all)*99/100]
	}
	return out, nil
}

// median sorts.
func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}

// layers are those that an edge puts in front of Redis.
type layers struct {
	limiter.Store
	shared    *redisstore.Store
	failed    atomic.Int64
	requested atomic.Int64 // decisions that reached Redis
	batches   atomic.Int64
}

func open(server *server) (*layers, error) {
	return openAt(redisstore.Config{Mode: server.mode, Addrs: []string{server.addr}})
}

func openAt(c redisstore.Config) (*layers, error) {
	l := &layers{}
	c.Timeout = 5 * time.Second
	c.Hooks.Batch = func(n int) { l.requested.Add(int64(n)); l.batches.Add(1) }
	shared, err := redisstore.Open(c)
	if err != nil {
		return nil, err
	}
	l.shared = shared
	for deadline := time.Now().Add(5 * time.Second); shared.Ping(context.Background()) != nil || time.Now().Before(deadline.Add(-4500*time.Millisecond)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return nil, errors.New("redis does not answer")
		}
	}
	l.Store = limiter.NewDenied(limiter.NewFallback(shared, memory.New(memory.Config{}), func() int { return 1 }, func(error) { l.failed.Add(1) }), 100_000, 0)
	return l, nil
}

func (l *layers) failure() error {
	if n := l.failed.Load(); n > 0 {
		return fmt.Errorf("%d decisions were made without Redis", n)
	}
	return nil
}

func (l *layers) close() { _ = l.shared.Close() }
