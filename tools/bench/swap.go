package main

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/tools/internal/paired"
)

// swapRate is the node's load in requests per second. It is far below the maximum, because the
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
			s, err := b.openLoop(ctx, swapRate, func() call {
				client := &fasthttp.Client{MaxConnsPerHost: 1}
				req, resp := &fasthttp.Request{}, &fasthttp.Response{}
				return func(i int) error {
					req.SetRequestURI(fmt.Sprintf("http://%s/p%d/x", edge, i%10_000))
					if err := client.Do(req, resp); err != nil {
						return err
					}
					return wanted(resp.StatusCode())
				}
			})
			stop()
			if serr := <-done; err == nil {
				err = serr
			}
			return s, err
		}}}
	}
	return b.compare(ctx, "swap", fmt.Sprintf("10,000 rules, %d requests per second, time from the intended send", swapRate), "requests",
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
