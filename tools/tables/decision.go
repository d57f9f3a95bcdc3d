package main

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/tools/internal/report"
	"github.com/weir-edge/weir/tools/internal/svg"
)

// together is how many decisions share a script call: one in a Cluster, where each slot needs its
// own call; a dozen and many on a single server.
var together = []int{1, 12, 64}

// decisions measures the cost of an admitted decision inside Redis, from commandstats: the time
// in the script, without network and protocol.
func decisions(ctx context.Context, server *server, d time.Duration) (*report.Table, error) {
	t := &report.Table{Name: "decisions", Title: fmt.Sprintf("Redis time in the script for a decision that passes: %d uniform clients, 100 per minute each; the quickest twentieth of rounds of %d calls", users, roundCalls),
		Head: []string{"algorithm"}}
	panels := make([]svg.Panel, len(together))
	for i, n := range together {
		panels[i].Title = fmt.Sprintf("µs, %d in a call", n)
		t.Head = append(t.Head, fmt.Sprintf("%d in a call", n))
	}
	all := contenders(100, time.Minute)
	for _, limit := range []int64{100, limiter.WholeLog, limiter.WholeLog + 1, 1000, limiter.MaxRingLimit} {
		all = append(all, &contender{name: fmt.Sprintf("rolling_window, ring of %d, full", limit),
			limit: limiter.Limit{Rule: "t", Algorithm: limiter.RollingWindow, Limit: limit, Window: time.Minute, CountDenied: true}})
	}
	for _, c := range all {
		row := []string{c.name}
		clients := users
		if c.limit.CountDenied {
			clients = 100
		}
		if err := fill(ctx, server, c, clients); err != nil {
			return t, err
		}
		for i, n := range together {
			us, err := decide(ctx, server, c, clients, n, d/time.Duration(len(together)))
			if err != nil {
				return t, err
			}
			row = append(row, fmt.Sprintf("%.1f µs", us))
			panels[i].Values = append(panels[i].Values, us)
		}
		t.Add(row...)
	}
	draw(t, names(all), panels...)
	return t, nil
}

// fill makes some requests of each client, or spends the whole limit of a full ring.
func fill(ctx context.Context, server *server, c *contender, clients int) error {
	if err := server.client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	times := 3
	if c.limit.CountDenied {
		times = 512
	}
	rounds := 1
	if c.limit.CountDenied {
		rounds += int(c.limit.Limit) / times
	}
	for range rounds {
		for from := 0; from < clients; from += 50 {
			var calls []*limiter.Call
			for i := from; i < from+50; i++ {
				calls = append(calls, call(c, i, times))
			}
			if err := runScript(ctx, server, calls); err != nil {
				return err
			}
		}
	}
	return nil
}

func call(c *contender, client, times int) *limiter.Call {
	return &limiter.Call{Times: times, Checks: []limiter.Check{{
		Limit: &c.limit, Key: fmt.Appendf(nil, "weir:{user-%d}:t:%s", client, c.limit.Tag()), Cost: 1,
	}}}
}

func runScript(ctx context.Context, server *server, calls []*limiter.Call) error {
	command, source := redisstore.Command(nil, calls)
	if err := server.client.Do(ctx, command...).Err(); err == nil {
		return nil
	}
	if err := server.client.ScriptLoad(ctx, source).Err(); err != nil {
		return err
	}
	return server.client.Do(ctx, command...).Err()
}

// roundCalls keeps rounds so short that some of them run undisturbed.
const roundCalls = 20

// decide returns the time per decision in the fastest twentieth of the rounds.
func decide(ctx context.Context, server *server, c *contender, clients, n int, d time.Duration) (float64, error) {
	r := rand.New(rand.NewSource(1))
	var took []float64
	for began := time.Now(); time.Since(began) < d; {
		before, err := server.stats(ctx)
		if err != nil {
			return 0, err
		}
		for range roundCalls {
			var batch []*limiter.Call
			for range n {
				batch = append(batch, call(c, r.Intn(clients), 1))
			}
			if err := runScript(ctx, server, batch); err != nil {
				return 0, err
			}
		}
		after, err := server.stats(ctx)
		if err != nil {
			return 0, err
		}
		took = append(took, (after.usec-before.usec)/(after.calls-before.calls)/float64(n))
	}
	slices.Sort(took)
	return took[len(took)/20], nil
}
