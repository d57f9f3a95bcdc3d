package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// cost is what a fleet's traffic takes of its masters.
type cost struct {
	perDecision       float64 // µs of CPU
	calls             float64 // a decision
	allowed           float64 // share
	busiest           float64 // share of the calls that one master gets
	p99               time.Duration
	over, bound, cold float64 // see traffic
}

// cores returns how many full cores the target takes.
func (c *cost) cores() float64 { return target * c.perDecision / 1e6 }

// busy returns the CPU share of the busiest master.
func (c *cost) busy() float64 { return c.cores() * c.busiest }

// measure lets a fleet run in virtual time, then sends what reached its masters to a real
// server: the same calls in the same round trips, over a connection for each node, as fast
// as it answers. It is kept busy, as a server near its full load is.
func measure(t *testing.T, server *server, f fleet, times int) *cost {
	traffic := f.run(t)
	c := &cost{
		calls: float64(traffic.calls) / float64(traffic.decisions), allowed: float64(traffic.allowed) / float64(traffic.decisions), p99: traffic.p99,
		over: traffic.over, bound: traffic.bound, cold: traffic.cold,
	}
	for _, n := range traffic.byMaster {
		c.busiest = max(c.busiest, float64(n)/float64(max(1, traffic.calls)))
	}
	for range times {
		cpu, err := replay(t.Context(), server, &f, traffic)
		require.NoError(t, err)
		if us := 1e6 * cpu / float64(traffic.decisions); c.perDecision == 0 || us < c.perDecision {
			c.perDecision = us
		}
	}
	return c
}

// replay returns the CPU seconds that the server used.
func replay(ctx context.Context, server *server, f *fleet, traffic *traffic) (float64, error) {
	if err := server.client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	if err := f.warmUp(ctx, server); err != nil {
		return 0, err
	}
	before, err := server.stats(ctx)
	if err != nil {
		return 0, err
	}
	errs := make([]error, len(traffic.byNode))
	var all sync.WaitGroup
	for node, batches := range traffic.byNode {
		all.Go(func() { errs[node] = f.send(ctx, server, batches) })
	}
	all.Wait()
	after, err := server.stats(ctx)
	return after.cpu - before.cpu, errors.Join(append(errs, err)...)
}

// warmUp loads the scripts, and fills logs to nine tenths: a ring costs what it holds.
func (f *fleet) warmUp(ctx context.Context, server *server) error {
	if f.limit.Reported {
		return nil // plain commands
	}
	for _, kind := range []kind{take, grant, giveBack} {
		if kind != take && !f.limit.Leased {
			continue
		}
		one := f.call(op{times: 1, cost: 1, kind: kind})
		for _, calls := range [][]*limiter.Call{{one}, {one, one}} { // scripts for one slot, and for several
			_, sources := redisstore.ClusterCommands(nil, calls)
			for _, source := range sources {
				if err := server.client.ScriptLoad(ctx, source).Err(); err != nil {
					return err
				}
			}
		}
	}
	if f.limit.Algorithm != limiter.RollingWindow {
		return nil
	}
	pipe := server.client.Pipeline()
	for user := range f.users {
		command, _ := redisstore.Command(nil, []*limiter.Call{f.call(op{user: int32(user), times: 1, cost: f.limit.Limit * 9 / 10})})
		pipe.Do(ctx, command...)
		if pipe.Len() == 100 || user == f.users-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends a node's round trips one after another.
func (f *fleet) send(ctx context.Context, server *server, batches []batch) error {
	conn := server.client.Conn()
	defer conn.Close()
	for _, b := range batches {
		pipe := conn.Pipeline()
		for _, command := range f.commands(b) {
			pipe.Do(ctx, command...)
		}
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("a batch of %d: %w", len(b), err)
		}
	}
	return nil
}

// commands returns what a node sends in a round trip.
func (f *fleet) commands(b batch) (commands [][]any) {
	var calls []*limiter.Call
	for _, o := range b {
		switch {
		case o.kind == ask:
			commands = append(commands, []any{"time"})
		case o.kind == tally && o.cost == 0:
			commands = append(commands, []any{"get", o.name})
		case o.kind == tally:
			commands = append(commands, []any{"incrby", o.name, o.cost})
		default:
			calls = append(calls, f.call(o))
		}
	}
	packed, _ := redisstore.ClusterCommands(nil, calls)
	return append(commands, packed...)
}

func (f *fleet) call(o op) *limiter.Call {
	check := limiter.Check{Limit: f.limit, Key: key(int(o.user), f.limit), Cost: o.cost}
	c := &limiter.Call{Times: int(o.times)}
	switch o.kind {
	case grant:
		check.Nodes = f.nodes
	case giveBack:
		c.Return, c.TakenAt = true, []int64{time.Now().UnixMicro()}
	}
	c.Checks = []limiter.Check{check}
	return c
}
