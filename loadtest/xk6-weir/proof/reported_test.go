package proof

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/loadtest/xk6-weir/oracle"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/report"
)

// counters is a Redis that nodes report to. It forgets a part of what they say.
type counters struct {
	sync.Mutex
	forgets float64
	trip    time.Duration
	counts  map[string]float64
	at      map[string]int64 // of buckets
}

// Report implements limiter.Reporter.
func (c *counters) Report(_ context.Context, reports []limiter.Report) {
	time.Sleep(c.trip / 2)
	c.Lock()
	now := time.Now().UnixMicro()
	for i := range reports {
		r := &reports[i]
		key, units := string(r.Key), float64(r.Units)*(1-c.forgets)
		r.Err, r.Now = nil, now
		if l := r.Limit; l.Algorithm == limiter.TokenBucket {
			drained := float64(now-c.at[key]) * float64(l.Limit) / float64(l.Window.Microseconds())
			r.Level = max(0, c.counts[key]-drained) + units
			c.counts[key], c.at[key] = r.Level, now
			continue
		}
		c.counts[key] += units
		r.Count = int64(c.counts[key])
		if r.Earlier != nil {
			c.counts[string(r.Earlier)] += float64(r.Late) * (1 - c.forgets)
			r.Before = int64(c.counts[string(r.Earlier)])
		}
	}
	c.Unlock()
	time.Sleep(c.trip / 2)
}

// Forget implements limiter.Reporter.
func (c *counters) Forget(context.Context, [][]byte) error { return nil }

// reporting plays nodes that decide one key by reports, at several times its limit, and
// returns the oracle's only line.
func reporting(t *testing.T, l *limiter.Limit, seed uint64, nodes int, forgets float64) (line oracle.Line) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 1))
		redis := &counters{forgets: forgets, trip: time.Duration(random.IntN(20)) * time.Millisecond, counts: map[string]float64{}, at: map[string]int64{}}
		start := time.Now()
		judge := oracle.New(oracle.Options{Fresh: true, Now: func() (int64, int64) { return time.Now().UnixMicro(), time.Since(start).Microseconds() }})
		rule := told(l)
		rule.Delay, rule.Nodes = limiter.ReportDelay(20*time.Millisecond), int64(nodes)
		require.NoError(t, judge.Declare(rule, 0))
		var stores []*report.Store
		for range nodes {
			local := memory.New(memory.Config{})
			fallback := limiter.NewFallback(local, local, func() int { return nodes }, nil)
			defer fallback.Close()
			s := report.New(report.Config{Next: local, Reporter: redis, Local: fallback, Nodes: func() int { return nodes }, Trip: 20 * time.Millisecond})
			defer s.Close()
			stores = append(stores, s)
			time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
		}
		var clients sync.WaitGroup
		pause := l.Window / time.Duration(4*l.Limit)
		for range 4 * 4 * l.Limit { // four windows
			time.Sleep(time.Duration(random.ExpFloat64() * float64(pause)))
			s, there, back := stores[random.IntN(nodes)], time.Duration(random.IntN(5)), time.Duration(random.IntN(5))
			clients.Go(func() {
				ticket, err := judge.Begin("", "r", "k", 1)
				require.NoError(t, err)
				time.Sleep(there * time.Millisecond)
				var d limiter.Decision
				require.NoError(t, s.Take(t.Context(), []limiter.Check{{Limit: l, Key: []byte("weir:{k}:r:" + l.Tag()), Cost: 1}}, &d))
				time.Sleep(back * time.Millisecond)
				answer := oracle.Answer{Outcome: oracle.Admitted, RetryAfter: -1}
				if !d.Allowed {
					answer.Outcome = oracle.Refused
				}
				ticket.End(answer)
			})
		}
		clients.Wait()
		judge.Finish()
		require.Len(t, judge.Report(), 1)
		line = judge.Report()[0]
	})
	return line
}

// Nodes that report may exceed a limit by what they are asked for in the delay: the oracle
// accuses them only if they forget what they admitted.
func TestReported(t *testing.T) {
	t.Parallel()
	for _, l := range []*limiter.Limit{
		{Rule: "r", Algorithm: limiter.FixedWindow, Limit: 300, Window: 10 * time.Second, Reported: true},
		{Rule: "r", Algorithm: limiter.SlidingWindow, Limit: 300, Window: 10 * time.Second, Reported: true},
		{Rule: "r", Algorithm: limiter.TokenBucket, Limit: 300, Window: 10 * time.Second, Burst: 300, Reported: true},
	} {
		require.Empty(t, l.Validate())
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			for seed := range uint64(4) {
				for _, nodes := range []int{1, 3, 8} {
					line := reporting(t, l, seed, nodes, 0)
					clean(t, line)
					require.NotZero(t, line.Refused)
					require.Equal(t, line.Refused, line.Unjudged)
				}
			}
			require.NotZero(t, reporting(t, l, 1, 3, 0.5).Overadmitted)
		})
	}
}
