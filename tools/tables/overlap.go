package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/tools/internal/report"
)

// overlap measures the benefit of several batches in flight on a long path to Redis. It compares
// one batch at a time with as many as the edge allows.
func overlap(ctx context.Context, server *server, d time.Duration) (*report.Table, error) {
	const callers = 64
	t := &report.Table{Name: "overlap", Title: fmt.Sprintf("One batch in flight, and up to %d: sliding_window, %d uniform clients, %d callers of one edge node", limiter.MaxBatchesInFlight, users, callers),
		Head: []string{"round trip longer by", "PING takes", "decisions per second: one", "overlapping", "p99 wait: one", "overlapping", "in a batch: one", "overlapping", "Redis CPU per decision: one", "overlapping"}}
	l := &limiter.Limit{Rule: "t", Algorithm: limiter.SlidingWindow, Limit: 100, Window: time.Minute}
	for _, by := range []time.Duration{0, 200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		w, err := lengthen(server.addr, by)
		if err != nil {
			return t, err
		}
		defer w.close()
		ping, err := pingTakes(ctx, w.addr)
		if err != nil {
			return t, err
		}
		var found [2]*loaded
		for i, flights := range []int{1, limiter.MaxBatchesInFlight} {
			store, err := openAt(redisstore.Config{Mode: server.mode, Addrs: []string{w.addr}, MaxBatchesInFlight: flights})
			if err != nil {
				return t, err
			}
			found[i], err = load(ctx, server, store, l, callers, false, d)
			store.close()
			if err != nil {
				return t, err
			}
		}
		row := []string{by.String(), micro(ping)}
		for _, cell := range []func(*loaded) string{
			func(l *loaded) string { return strconv.Itoa(int(l.decisions / l.seconds)) },
			func(l *loaded) string { return fmt.Sprintf("%.1f ms", 1e3*l.p99.Seconds()) },
			func(l *loaded) string { return fmt.Sprintf("%.1f", l.requested/l.batches) },
			func(l *loaded) string { return fmt.Sprintf("%.1f µs", 1e6*l.cpu/l.decisions) },
		} {
			row = append(row, cell(found[0]), cell(found[1]))
		}
		t.Add(row...)
	}
	return t, nil
}

// pingTakes returns the median round trip of an idle connection.
func pingTakes(ctx context.Context, addr string) (time.Duration, error) {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})
	defer c.Close()
	var took []time.Duration
	for range 101 {
		began := time.Now()
		if err := c.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return median(took), nil
}
