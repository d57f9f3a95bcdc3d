// Command tables measures rate limiters: how far each algorithm lets
// a client exceed a limit, how much memory a client takes, how long an operation lasts, and
// how often Redis is called. All contenders get the same load. docs/TABLES.md records a run;
// make tables updates it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/tools/internal/report"
	"github.com/weir-edge/weir/tools/internal/svg"
)

func main() {
	doc := flag.String("doc", "", "write the tables into this Markdown `FILE`, between its comments")
	rounds := flag.Int("rounds", 5, "floods against each limit, for the worst")
	only := flag.String("only", "", "measure only the table of this `NAME`: overshoot, memory, times, decisions, calls or overlap")
	duration := flag.Duration("duration", 4*time.Second, "of each measurement of time and calls")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *doc, *only, *rounds, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, doc, only string, rounds int, duration time.Duration) error {
	server, err := startRedis(ctx, redisstore.Single)
	if err != nil {
		return err
	}
	defer server.stop()
	cluster, err := startRedis(ctx, redisstore.Cluster)
	if err != nil {
		return err
	}
	defer cluster.stop()
	var tables []*report.Table
	for _, m := range []struct {
		name    string
		measure func() (*report.Table, error)
	}{
		{"overshoot", func() (*report.Table, error) { return overshoot(ctx, server, rounds) }},
		{"memory", func() (*report.Table, error) { return memoryTable(ctx, server) }},
		{"times", func() (*report.Table, error) { return times(ctx, server, duration) }},
		{"decisions", func() (*report.Table, error) { return decisions(ctx, server, duration) }},
		{"calls", func() (*report.Table, error) { return calls(ctx, server, cluster, duration) }},
		{"overlap", func() (*report.Table, error) { return overlap(ctx, server, duration) }},
	} {
		if only != "" && only != m.name {
			continue
		}
		t, err := m.measure()
		if err != nil {
			return err
		}
		fmt.Println(t.Text())
		tables = append(tables, t)
	}
	if doc == "" {
		return nil
	}
	return report.Save(doc, "tables", tables)
}

// contender is an algorithm and its options.
type contender struct {
	name  string
	limit limiter.Limit
}

// contenders returns the algorithms for a limit.
func contenders(limit int64, window time.Duration) []*contender {
	l := func(a limiter.Algorithm, burst int64, s limiter.Storage) limiter.Limit {
		return limiter.Limit{Rule: "t", Algorithm: a, Limit: limit, Window: window, Burst: burst, Storage: s}
	}
	return []*contender{
		{"fixed_window", l(limiter.FixedWindow, 0, limiter.Ring)},
		{"token_bucket, burst half the limit", l(limiter.TokenBucket, limit/2, limiter.Ring)},
		{"token_bucket, burst the limit (default)", l(limiter.TokenBucket, limit, limiter.Ring)},
		{"sliding_window", l(limiter.SlidingWindow, 0, limiter.Ring)},
		{"rolling_window, ring", l(limiter.RollingWindow, 0, limiter.Ring)},
		{"rolling_window, sorted_set", l(limiter.RollingWindow, 0, limiter.SortedSet)},
	}
}

// admitted is when an admitted request was sent and answered.
type admitted struct{ sent, answered time.Time }

// overshoot floods every contender simultaneously. It pauses until buckets are full, then sends
// without pause for two windows around a boundary of the clock.
func overshoot(ctx context.Context, server *server, rounds int) (*report.Table, error) {
	const limit, window = 100, 2 * time.Second
	t := &report.Table{Name: "overshoot", Title: fmt.Sprintf("Worst overshoot: %d in %v, a client that asks every millisecond for 4 s after a pause, %d times", limit, window, rounds),
		Head: []string{"algorithm", "most in one window", "overshoot"}}
	all := contenders(limit, window)
	worst := make([]int, len(all))
	store, err := open(server)
	if err != nil {
		return t, err
	}
	defer store.close()
	for round := range rounds {
		// From half a window before a boundary.
		begin := time.Now().Truncate(window).Add(2*window + window/2)
		errs := make([]error, len(all))
		var wg sync.WaitGroup
		for i, c := range all {
			wg.Go(func() {
				key := fmt.Appendf(nil, "weir:{%d-%d}:t:%s", i, round, c.limit.Tag())
				var passed []admitted
				passed, errs[i] = flood(ctx, store, &c.limit, key, begin, 2*window)
				worst[i] = max(worst[i], most(passed, window))
			})
		}
		wg.Wait()
		if err := errors.Join(append(errs, store.failure())...); err != nil {
			return t, err
		}
	}
	over := svg.Panel{Title: "worst overshoot, % of the limit"}
	for i, c := range all {
		percent := 100 * (worst[i] - limit) / limit
		t.Add(c.name, strconv.Itoa(worst[i]), fmt.Sprintf("%d%%", percent))
		over.Values, over.Texts = append(over.Values, float64(percent)), append(over.Texts, fmt.Sprintf("%d%%", percent))
	}
	draw(t, names(all), over)
	return t, nil
}

func flood(ctx context.Context, store limiter.Store, l *limiter.Limit, key []byte, begin time.Time, d time.Duration) ([]admitted, error) {
	var passed []admitted
	var decision limiter.Decision
	checks := []limiter.Check{{Limit: l, Key: key, Cost: 1}}
	time.Sleep(time.Until(begin))
	for at := begin; at.Before(begin.Add(d)); at = at.Add(time.Millisecond) {
		time.Sleep(time.Until(at))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		sent := time.Now()
		if err := store.Take(ctx, checks, &decision); err != nil {
			return nil, err
		}
		if decision.Allowed {
			passed = append(passed, admitted{sent, time.Now()})
		}
	}
	return passed, nil
}

// most returns the largest number of requests sent and answered within less than a window. At
// least that many were decided in one window, whatever the network delay.
func most(passed []admitted, window time.Duration) int {
	best := 0
	for i := range passed {
		n := 0
		for _, p := range passed[i:] {
			if p.answered.Sub(passed[i].sent) >= window {
				break
			}
			n++
		}
		best = max(best, n)
	}
	return best
}

// memoryTable uses up one client's limit and asks Redis how much memory the client takes.
func memoryTable(ctx context.Context, server *server) (*report.Table, error) {
	t := &report.Table{Name: "memory", Title: "Memory of one client in Redis, its limit used up: in all (MEMORY USAGE), and without the key, its entry and its object",
		Head: []string{"algorithm", "limit", "all, B", "payload, B", "payload per request, B"}}
	store, err := open(server)
	if err != nil {
		return t, err
	}
	defer store.close()
	bytesOf := map[int64]*svg.Panel{100: {Title: "B a client, limit 100"}, 1000: {Title: "B a client, limit 1,000"}}
	for i := range contenders(1, time.Second) {
		for _, limit := range []int64{100, 1000} {
			c := contenders(limit, time.Hour)[i]
			key := "weir:{203.0.113.7}:per-client:" + c.limit.Tag()
			if err := server.client.Del(ctx, key).Err(); err != nil {
				return t, err
			}
			// The same key with an empty value, and a time to live as the counters have.
			if err := server.client.Set(ctx, key, "", time.Hour).Err(); err != nil {
				return t, err
			}
			empty, err := server.client.MemoryUsage(ctx, key, 0).Result()
			if err != nil {
				return t, err
			}
			if err := server.client.Del(ctx, key).Err(); err != nil {
				return t, err
			}
			var d limiter.Decision
			for range limit {
				if err := store.Take(ctx, []limiter.Check{{Limit: &c.limit, Key: []byte(key), Cost: 1}}, &d); err != nil {
					return t, err
				}
			}
			bytes, err := server.client.MemoryUsage(ctx, key, 0).Result()
			if err != nil {
				return t, err
			}
			t.Add(c.name, strconv.FormatInt(limit, 10), strconv.FormatInt(bytes, 10), strconv.FormatInt(bytes-empty, 10), fmt.Sprintf("%.1f", float64(bytes-empty)/float64(limit)))
			bytesOf[limit].Values = append(bytesOf[limit].Values, float64(bytes))
		}
	}
	draw(t, names(contenders(1, time.Second)), *bytesOf[100], *bytesOf[1000])
	return t, errors.Join(store.failure())
}

// users are distinguished by their keys.
const users = 100_000

// times measures one caller that waits for each answer, and 64 callers.
func times(ctx context.Context, server *server, d time.Duration) (*report.Table, error) {
	t := &report.Table{Name: "times", Title: fmt.Sprintf("Time of one operation: %d uniform clients, 100 per minute each, over loopback", users),
		Head: []string{"algorithm", "one caller: median", "p99", "script in Redis", "64 callers: Redis CPU per decision"}}
	one, cpu := svg.Panel{Title: "one caller: p99, µs"}, svg.Panel{Title: "64 callers: Redis CPU per decision, µs"}
	for _, c := range contenders(100, time.Minute) {
		store, err := open(server)
		if err != nil {
			return t, err
		}
		alone, err := load(ctx, server, store, &c.limit, 1, false, d)
		if err != nil {
			return t, err
		}
		many, err := load(ctx, server, store, &c.limit, 64, false, d)
		if err != nil {
			return t, err
		}
		store.close()
		t.Add(c.name, micro(alone.median), micro(alone.p99), fmt.Sprintf("%.1f µs", alone.script), fmt.Sprintf("%.1f µs", 1e6*many.cpu/many.decisions))
		one.Values, one.Texts = append(one.Values, float64(alone.p99.Microseconds())), append(one.Texts, micro(alone.p99))
		cpu.Values = append(cpu.Values, 1e6*many.cpu/many.decisions)
	}
	draw(t, names(contenders(100, time.Minute)), one, cpu)
	return t, nil
}

func micro(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/1e3) }

func names(all []*contender) (labels []string) {
	for _, c := range all {
		labels = append(labels, c.name)
	}
	return labels
}

// draw gives a table a chart with a bar for each label.
func draw(t *report.Table, labels []string, panels ...svg.Panel) {
	var rows []svg.Row
	for _, l := range labels {
		rows = append(rows, svg.Row{Label: l})
	}
	t.Charts = []report.Chart{{Alt: t.Title + ", as bars", Picture: &svg.Bars{Title: t.Title, Rows: rows, Panels: panels}}}
}

// target is the required rate of decisions, and busy the share of a core that a Redis node should
// spend on them.
const (
	target = 400_000
	busy   = 0.7
)

// calls counts what reaches Redis, and its CPU time.
func calls(ctx context.Context, single, cluster *server, d time.Duration) (*report.Table, error) {
	t := &report.Table{Name: "calls", Title: fmt.Sprintf("Calls to Redis and Redis nodes for %d decisions per second: %d clients, 256 callers of one edge node, 100 per minute each", target, users),
		Head: []string{"algorithm", "load", "Redis", "decisions per second here", "refused", "sent to Redis per decision", "script calls per decision", "Redis CPU per decision", "nodes at a full core", fmt.Sprintf("nodes at %.0f%%", 100*busy)}}
	for _, c := range contenders(100, time.Minute) {
		for _, load := range []struct {
			zipf   bool
			server *server
		}{{true, cluster}, {false, cluster}, {true, single}, {false, single}} {
			if c.limit.Algorithm != limiter.RollingWindow && (!load.zipf || load.server == single) {
				continue
			}
			if err := addCalls(ctx, t, c, load.server, load.zipf, d); err != nil {
				return t, err
			}
		}
	}
	var labels []string
	cpu, nodes := svg.Panel{Title: "Redis CPU per decision, µs"}, svg.Panel{Title: t.Head[len(t.Head)-1]}
	for _, row := range t.Rows {
		labels = append(labels, strings.Join(row[:3], ", "))
		cpu.Values = append(cpu.Values, number(strings.TrimSuffix(row[7], " µs")))
		nodes.Values = append(nodes.Values, number(row[9]))
	}
	draw(t, labels, cpu, nodes)
	return t, nil
}

func addCalls(ctx context.Context, t *report.Table, c *contender, server *server, zipf bool, d time.Duration) error {
	store, err := open(server)
	if err != nil {
		return err
	}
	defer store.close()
	l, err := load(ctx, server, store, &c.limit, 256, zipf, d)
	if err != nil {
		return err
	}
	traffic, mode := "uniform", "Cluster"
	if zipf {
		traffic = "zipf(1.1)"
	}
	if server.mode == redisstore.Single {
		mode = "single"
	}
	cores := target * l.cpu / l.decisions
	t.Add(c.name, traffic, mode, strconv.Itoa(int(l.decisions/l.seconds)), fmt.Sprintf("%.0f%%", 100*l.refused/l.decisions),
		fmt.Sprintf("%.3f", l.requested/l.decisions), fmt.Sprintf("%.3f", l.calls/l.decisions), fmt.Sprintf("%.2f µs", 1e6*l.cpu/l.decisions),
		fmt.Sprintf("%.0f (%.1f)", math.Ceil(cores), cores), fmt.Sprintf("%.0f", math.Ceil(cores/busy)))
	return nil
}
