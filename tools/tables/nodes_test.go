package main

import (
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/tools/internal/report"
	"github.com/weir-edge/weir/tools/internal/svg"
)

// These measure nodes in virtual time, for which a program needs a test.
var (
	full = flag.Bool("full", false, "measure 20 nodes of 20,000 requests per second, and what their cost grows with; about 30 minutes")
	doc  = flag.String("doc", "", "write the tables into this Markdown `FILE`, with -full")
	only = flag.String("table", "", "measure only this `TABLE`: nodes or growth")
	rows = flag.String("rows", "", "measure only the rows of the first table that contain this `TEXT`, and no second table")
)

// plan is a kind of traffic and a rule, with the share of requests that pass.
type plan struct {
	name      string
	zipf      bool
	algorithm limiter.Algorithm
	shares    consistency
	goal      int // nodes
	begin     int // masters to try first
	allowed   float64
	linger    time.Duration
}

// consistency of a plan's rule.
type consistency byte

const (
	strict consistency = iota
	leased
	reported
)

// plans are the rows of the table. A consistency that is new has its row here.
func plans() []plan {
	const wait = 2 * time.Millisecond
	return []plan{
		{"strict, uniform, rolling_window (ring)", false, limiter.RollingWindow, strict, 0, 7, 0.9, 0},
		{"strict, uniform, sliding_window", false, limiter.SlidingWindow, strict, 0, 7, 0.9, 0},
		{"strict, zipf(1.1), sliding_window", true, limiter.SlidingWindow, strict, 0, 7, 0.9, 0},
		{"leased, zipf(1.1), sliding_window", true, limiter.SlidingWindow, leased, 0, 3, 0.9, 0},
		{"strict, uniform, rolling_window (ring), linger 2ms", false, limiter.RollingWindow, strict, 7, 7, 0.9, wait},
		{"strict, uniform, sliding_window, linger 2ms", false, limiter.SlidingWindow, strict, 7, 7, 0.9, wait},
		{"strict, zipf(1.1), sliding_window, linger 2ms", true, limiter.SlidingWindow, strict, 0, 7, 0.9, wait},
		{"strict, zipf(1.1), token_bucket, linger 2ms", true, limiter.TokenBucket, strict, 0, 7, 0.9, wait},
		{"leased, zipf(1.1), sliding_window, linger 2ms", true, limiter.SlidingWindow, leased, 3, 3, 0.9, wait},
		{"leased, zipf(1.1), token_bucket, linger 2ms", true, limiter.TokenBucket, leased, 3, 3, 0.9, wait},
		{"leased, zipf(1.1), token_bucket, all allowed, linger 2ms", true, limiter.TokenBucket, leased, 0, 3, 1, wait},
		{"leased, uniform, sliding_window, linger 2ms", false, limiter.SlidingWindow, leased, 0, 7, 0.9, wait},
		{"reported, zipf(1.1), sliding_window", true, limiter.SlidingWindow, reported, 2, 1, 0.9, 0},
		{"reported, uniform, sliding_window", false, limiter.SlidingWindow, reported, 2, 1, 0.9, 0},
	}
}

// scale is the size of a measurement.
type scale struct {
	nodes, users   int
	rate           float64
	warm, measured time.Duration
	settle         time.Duration // warm of reported rules: nodes have learned, and the cold start is over
	times          int           // of each replay
}

var (
	whole = scale{nodes: 20, users: users, rate: target, warm: 1500 * time.Millisecond, measured: time.Second, settle: time.Minute, times: 3}
	small = scale{nodes: 3, users: 1000, rate: 6000, warm: 300 * time.Millisecond, measured: 200 * time.Millisecond, settle: 300 * time.Millisecond, times: 1}
)

// fleet returns the plan's fleet with so many masters.
func (p *plan) fleet(s scale, masters int) fleet {
	f := fleet{nodes: s.nodes, masters: masters, users: s.users, rate: s.rate, zipf: p.zipf,
		limit: &limiter.Limit{Rule: "t", Algorithm: p.algorithm, Window: time.Minute, Leased: p.shares == leased, Reported: p.shares == reported},
		trip:  200 * time.Microsecond, linger: p.linger, warm: s.warm, measured: s.measured}
	if p.shares == reported {
		f.warm = s.settle
	}
	f.limit.Limit = f.limitFor(p.allowed)
	if p.allowed >= 1 {
		f.limit.Limit *= 2
	}
	if f.limit.Algorithm == limiter.TokenBucket { // a second's worth, which leases need
		f.limit.Burst = max(2, f.limit.Limit/60)
	}
	return f
}

// TestNodes measures how many masters 400,000 decisions per second take, and what the cost of a
// decision grows with. make tables runs it in full.
func TestNodes(t *testing.T) {
	server, err := startRedis(t.Context(), redisstore.Cluster)
	require.NoError(t, err)
	t.Cleanup(server.stop)
	s := small
	if *full {
		s = whole
	}
	save := func(table *report.Table) { // at once: the next one takes half an hour
		fmt.Println(table.Text())
		if *doc != "" && *full && *rows == "" {
			require.NoError(t, report.Save(*doc, "tables", []*report.Table{table}))
		}
	}
	if *only != "growth" {
		save(nodesTable(t, server, s))
	}
	if *rows == "" && *only != "nodes" {
		save(growthTable(t, server, s))
	}
}

func nodesTable(t *testing.T, server *server, s scale) *report.Table {
	table := &report.Table{
		Name: "nodes", Title: fmt.Sprintf("Redis nodes for %d decisions per second: %d nodes of %.0f per second in virtual time, %d clients, 90%% allowed, 0.2 ms to Redis; their calls replayed to a real server", target, s.nodes, s.rate/float64(s.nodes), s.users),
		Head: []string{"rule and traffic", "masters tried", "allowed", "sent to Redis per decision", "the least", "Redis CPU per decision", "cores", "busiest master", fmt.Sprintf("nodes at %.0f%%", 100*busy), "goal", "p99 of a decision", "over the limit"},
	}
	var bars []svg.Row
	cpu := svg.Panel{Title: "Redis CPU per decision, µs"}
	nodes := svg.Panel{Title: fmt.Sprintf("nodes at %.0f%% of a core", 100*busy)}
	for _, p := range plans() {
		if !strings.Contains(p.name, *rows) {
			continue
		}
		var c *cost
		var f fleet
		masters, need := p.begin, 0
		for range 3 { // batches depend on the number of masters
			f = p.fleet(s, masters)
			c = measure(t, server, f, s.times)
			need = max(1, int(math.Ceil(c.cores()/busy)))
			t.Logf("%s, %d masters, limit %d: %.2f µs, %.3f calls, allowed %.3f, busiest %.3f, need %d", p.name, masters, f.limit.Limit, c.perDecision, c.calls, c.allowed, c.busiest, need)
			if need == masters || !*full {
				break
			}
			masters = need
		}
		if p.shares == leased && p.zipf && p.allowed >= 1 {
			require.Less(t, c.calls, 0.9, "leases spare calls")
		}
		goal, over := "", ""
		if p.shares == reported {
			require.LessOrEqual(t, c.over, c.bound)
			over = fmt.Sprintf("%.2f%%, bound %.2f%%; cold start %.2f%%", 100*c.over, 100*c.bound, 100*c.cold)
		}
		if p.goal > 0 {
			goal = fmt.Sprintf("≤ %d %s", p.goal, mark(need <= p.goal))
		}
		table.Add(p.name, strconv.Itoa(masters), fmt.Sprintf("%.0f%%", 100*c.allowed), fmt.Sprintf("%.3f", c.calls), least(&f), fmt.Sprintf("%.2f µs", c.perDecision),
			fmt.Sprintf("%.2f", c.cores()), fmt.Sprintf("%.0f%%", 100*c.busy()), strconv.Itoa(need), goal, micro(c.p99), over)
		bars = append(bars, svg.Row{Label: p.name, Anchor: p.shares == strict})
		cpu.Values = append(cpu.Values, c.perDecision)
		nodes.Values = append(nodes.Values, float64(need))
		if p.goal > 0 {
			nodes.Texts = append(nodes.Texts, fmt.Sprintf("%d (goal ≤ %d)", need, p.goal))
		} else {
			nodes.Texts = append(nodes.Texts, strconv.Itoa(need))
		}
	}
	table.Charts = []report.Chart{{Alt: "Redis CPU per decision and nodes for 400,000 per second, by consistency", Picture: &svg.Bars{Title: table.Title, Rows: bars, Panels: []svg.Panel{cpu, nodes}}}}
	return table
}

// least returns the fewest commands that a decision can cost under the fleet's consistency: one a
// request; one a lease time of a node in which the key is asked for at all, if leased; one
// an interval between reports, if reported. Requests come at random times.
func least(f *fleet) string {
	each := f.limit.LeaseTime().Seconds()
	if f.limit.Reported {
		each = limiter.ReportEvery.Seconds()
	}
	if each == 0 {
		return ""
	}
	sum := 0.0
	for _, rate := range f.rates() {
		sum += -math.Expm1(-rate/float64(f.nodes)*each) / each * float64(f.nodes)
	}
	return fmt.Sprintf("%.3f", sum/f.rate)
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

// growing is one thing that varies while the others stay.
type growing struct {
	name   string
	values []int
	text   func(int) string
	set    func(*fleet, int)
}

// growthTable varies users, nodes and the way to Redis.
func growthTable(t *testing.T, server *server, s scale) *report.Table {
	s.times = 1
	s.measured = min(s.measured, 500*time.Millisecond)
	dimensions := []growing{
		{"clients", []int{1000, 10_000, 100_000, 1_000_000}, count, func(f *fleet, n int) { f.users = n }},
		{"edge nodes", []int{5, 10, 20, 40}, strconv.Itoa, func(f *fleet, n int) { f.nodes = n }},
		{"µs to Redis and back", []int{200, 1000, 5000}, strconv.Itoa, func(f *fleet, n int) { f.trip = time.Duration(n) * time.Microsecond }},
	}
	if !*full {
		dimensions[0].values, dimensions[1].values, dimensions[2].values = []int{100, 1000}, []int{2}, []int{1000}
	}
	all := plans()
	curves := []plan{all[1], all[2], all[3]}
	table := &report.Table{
		Name: "growth", Title: fmt.Sprintf("What a decision costs as clients, edge nodes and latency to Redis grow: %.0f decisions per second, 90%% allowed; otherwise %d clients, %d nodes, 200 µs, %d masters (leased: %d)", s.rate, s.users, s.nodes, curves[0].begin, curves[2].begin),
		Head: []string{"", "", "rule and traffic", "sent to Redis per decision", "Redis CPU per decision", "p99 of a decision"},
	}
	costs := &svg.Lines{Title: "Redis CPU per decision as clients, edge nodes and latency to Redis grow"}
	waits := &svg.Lines{Title: "99th percentile of a decision's time as clients, edge nodes and latency to Redis grow"}
	for _, d := range dimensions {
		cpu, p99 := svg.Plane{Title: "Redis CPU per decision, µs", Under: d.name}, svg.Plane{Title: "p99 of a decision, ms", Under: d.name}
		for _, v := range d.values {
			cpu.Places = append(cpu.Places, d.text(v))
		}
		p99.Places = cpu.Places
		for _, p := range curves {
			perDecision, times := svg.Curve{Name: p.name}, svg.Curve{Name: p.name}
			for _, v := range d.values {
				f := p.fleet(s, p.begin)
				d.set(&f, v)
				f.limit.Limit = f.limitFor(p.allowed)
				c := measure(t, server, f, s.times)
				t.Logf("%s, %s %s: %.2f µs, %.3f calls, p99 %s", p.name, d.text(v), d.name, c.perDecision, c.calls, micro(c.p99))
				table.Add(d.name, d.text(v), p.name, fmt.Sprintf("%.3f", c.calls), fmt.Sprintf("%.2f µs", c.perDecision), micro(c.p99))
				perDecision.Values = append(perDecision.Values, c.perDecision)
				times.Values = append(times.Values, c.p99.Seconds()*1e3)
			}
			cpu.Curves, p99.Curves = append(cpu.Curves, perDecision), append(p99.Curves, times)
		}
		costs.Panels, waits.Panels = append(costs.Panels, cpu), append(waits.Panels, p99)
	}
	table.Charts = []report.Chart{{Suffix: "cpu", Alt: costs.Title, Picture: costs}, {Suffix: "p99", Alt: waits.Title, Picture: waits}}
	return table
}

func count(n int) string { return svg.Number(float64(n)) }
