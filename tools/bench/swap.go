package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/tools/internal/paired"
)

// swapRate is the node's load in requests a second. It is far below the maximum, because the
// question is whether a swap delays requests, not how much work it is.
const swapRate = 2_000

// swap replaces 10,000 rules under a steady load, once and then every second.
func (b *bench) swap(ctx context.Context) error {
	origin := freeAddr()
	if err := b.self(origin, "origin"); err != nil {
		return err
	}
	edge, err := b.startEdge("swap", origin, "", string(manyRules(0)), "")
	if err != nil {
		return err
	}
	node := b.started[len(b.started)-1].Process
	documents := []string{"rules:\n" + string(manyRules(1)), "rules:\n" + string(manyRules(2))}
	version := 0
	exchanging := func(name string, first, every time.Duration) *contender {
		return &contender{ours: true, Contender: paired.Contender{Name: name, Measure: func(ctx context.Context, _ int) (paired.Sample, error) {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			done := make(chan error, 1)
			go func() {
				next := time.NewTimer(first)
				defer next.Stop()
				for {
					select {
					case <-ctx.Done():
						done <- nil
						return
					case <-next.C:
					}
					version++
					b.write("swap-rules.yaml", documents[version%2])
					if err := node.Signal(syscall.SIGHUP); err != nil {
						done <- err
						return
					}
					next.Reset(every)
				}
			}()
			s, err := b.steady(ctx, edge)
			stop()
			if serr := <-done; err == nil {
				err = serr
			}
			return s, err
		}}}
	}
	return b.compare(ctx, "swap", fmt.Sprintf("10,000 rules, %d requests a second, time from the intended send", swapRate), "requests",
		exchanging("rules unchanged", time.Hour, time.Hour),
		exchanging("all rules replaced once", b.duration/2, time.Hour),
		exchanging("all rules replaced each second", 0, time.Second),
	)
}

// manyRules returns a document of 10,000 rules; each version has different limits.
func manyRules(version int) []byte {
	var b bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintf(&b, "  - {id: r%d, match: {paths: [/p%d/*]}, key: [client_ip], algorithm: leaky_bucket, limit: %d, window: 1s}\n", i, i, 100_000+version)
	}
	return b.Bytes()
}

// steady sends requests to the edge at swapRate for the duration. It measures each from when it
// was due, so a pause counts for every request that it delayed.
func (b *bench) steady(ctx context.Context, addr string) (paired.Sample, error) {
	const callers = 64
	client := &fasthttp.HostClient{Addr: addr, MaxConns: callers}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	var wg sync.WaitGroup
	begin := time.Now()
	for caller := range callers {
		wg.Go(func() {
			req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			defer fasthttp.ReleaseRequest(req)
			defer fasthttp.ReleaseResponse(resp)
			var own []time.Duration
			for i := caller; ctx.Err() == nil; i += callers {
				due := begin.Add(time.Duration(i) * time.Second / swapRate)
				if due.Sub(begin) > b.duration {
					break
				}
				time.Sleep(time.Until(due))
				req.SetRequestURI(fmt.Sprintf("http://%s/p%d/x", addr, i%10_000))
				err := client.Do(req, resp)
				if err == nil && resp.StatusCode() != fasthttp.StatusOK {
					err = fmt.Errorf("status %d", resp.StatusCode())
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				own = append(own, time.Since(due))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
		})
	}
	wg.Wait()
	if failed != nil || len(times) == 0 {
		return paired.Sample{}, fmt.Errorf("%d answers, then %w", len(times), failed)
	}
	slices.Sort(times)
	return paired.Sample{Rate: float64(len(times)) / time.Since(begin).Seconds(), P99: times[len(times)*99/100]}, nil
}
