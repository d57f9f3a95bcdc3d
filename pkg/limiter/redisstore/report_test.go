package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/report"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func reportedRule(t testing.TB, line string) *limiter.Limit {
	l := rule(t, line)
	l.Reported = true
	require.Empty(t, l.Validate())
	return l
}

// counterOf returns a report of a window's counter.
func counterOf(l *limiter.Limit, subject string, start, units int64) limiter.Report {
	return limiter.Report{Limit: l, Key: limiter.AppendWindow(nil, storetest.Key(subject, l), start), Units: units, Expire: 2 * l.Window}
}

// Random reports of several nodes to a single server and to a cluster add up like integers;
// buckets drain and go into debt.
func TestReportsAddUp(t *testing.T) {
	fixed := reportedRule(t, "fixed fixed_window limit=10 window=1m")
	bucket := reportedRule(t, "bucket token_bucket limit=6000 window=1m burst=6000")
	now := storetest.Epoch
	var mu sync.Mutex
	clock := func() int64 { mu.Lock(); defer mu.Unlock(); return now }
	for name, c := range stores(t) {
		t.Run(name, func(t *testing.T) {
			c.Clock = clock
			s := open(t, c)
			awaitTopology(t, s)
			random := rand.New(rand.NewPCG(1, 1))
			sums, levels := map[string]int64{}, map[string]float64{}
			for range 200 {
				var list []limiter.Report
				asked := map[string]bool{}
				for range 1 + random.IntN(50) {
					subject := fmt.Sprint(random.IntN(100))
					if asked[subject] {
						continue
					}
					asked[subject] = true
					units := random.Int64N(20)
					if random.IntN(2) == 0 {
						r := counterOf(fixed, subject, 120_000_000, units)
						r.Earlier, r.Late = limiter.AppendWindow(nil, storetest.Key(subject, fixed), 60_000_000), random.Int64N(2)
						list = append(list, r)
					} else {
						list = append(list, limiter.Report{Limit: bucket, Key: storetest.Key(subject, bucket), Units: 100 * units})
					}
				}
				s.Report(t.Context(), list)
				for _, r := range list {
					require.NoError(t, r.Err)
					require.Equal(t, now, r.Now)
					key := string(r.Key)
					if r.Limit == bucket {
						levels[key] += float64(r.Units)
						require.InDelta(t, levels[key], r.Level, 1e-6, "more than the burst, too")
						continue
					}
					sums[key] += r.Units
					sums[string(r.Earlier)] += r.Late
					require.Equal(t, sums[key], r.Count)
					require.Equal(t, sums[string(r.Earlier)], r.Before)
				}
				passed := random.Int64N(1000)
				mu.Lock()
				now += passed * 1000
				mu.Unlock()
				for key, level := range levels { // 100 per second
					levels[key] = max(0, level-float64(passed)/10)
				}
			}
		})
	}
}

func stores(t *testing.T) map[string]redisstore.Config {
	server, cluster := testenv.Redis(t, testenv.Options{}), testenv.Cluster(t, testenv.Options{})
	return map[string]redisstore.Config{
		"single":  {Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience},
		"cluster": {Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: patience},
	}
}

func TestUsualReportDelay(t *testing.T) {
	require.Equal(t, limiter.UsualReportDelay, limiter.ReportDelay(redisstore.DefaultTimeout))
}

// Every counter expires; a lost script is loaded again; counts that may have been lost are
// distinguished from those that were.
func TestReportsWhenPartsFail(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	hasty := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: time.Second})
	awaitTopology(t, s)
	awaitTopology(t, hasty)
	admin := server.Client()
	fixed := reportedRule(t, "fixed fixed_window limit=10 window=1m")
	bucket := reportedRule(t, "bucket token_bucket limit=6000 window=24h burst=6000") // it drains, and expires, in minutes
	ask := func(list ...limiter.Report) []limiter.Report {
		s.Report(t.Context(), list)
		return list
	}

	one := counterOf(fixed, "a", 0, 1)
	one.Earlier, one.Late = []byte("weir:{a}:earlier"), 1
	require.NoError(t, ask(one)[0].Err)
	require.InDelta(t, 2*time.Minute, admin.PTTL(t.Context(), string(one.Key)).Val(), float64(time.Minute))
	require.Positive(t, admin.PTTL(t.Context(), string(one.Earlier)).Val())
	read := counterOf(fixed, "nobody", 0, 0)
	require.NoError(t, ask(read)[0].Err)
	require.Zero(t, admin.Exists(t.Context(), string(read.Key)).Val(), "reading leaves no trace")

	require.NoError(t, admin.ScriptFlush(t.Context()).Err())
	level := limiter.Report{Limit: bucket, Key: storetest.Key("a", bucket), Units: 7}
	answers := ask(level, counterOf(fixed, "a", 0, 1))
	require.NoError(t, answers[0].Err)
	require.InDelta(t, 7, answers[0].Level, 1)
	require.NoError(t, answers[1].Err)
	require.EqualValues(t, 2, answers[1].Count, "not counted twice")
	require.Positive(t, admin.PTTL(t.Context(), string(level.Key)).Val())

	foreign := storetest.Key("foreign", bucket)
	require.NoError(t, admin.LPush(t.Context(), string(foreign), 1).Err())
	answers = ask(limiter.Report{Limit: bucket, Key: foreign, Units: 1}, counterOf(fixed, "a", 0, 1))
	require.ErrorIs(t, answers[0].Err, limiter.ErrReply)
	require.False(t, answers[0].Lost)
	require.NoError(t, answers[1].Err, "one key's fault is not another's")

	server.Suspend()
	answers = []limiter.Report{counterOf(fixed, "a", 0, 1), level}
	hasty.Report(t.Context(), answers)
	for _, a := range answers {
		require.Error(t, a.Err)
		require.True(t, a.Lost, "Redis may yet run it")
	}
	server.Resume()
	server.Kill()
	require.Eventually(t, func() bool { // when the old connections are gone
		a := ask(counterOf(fixed, "a", 0, 1))[0]
		return a.Err != nil && !a.Lost
	}, time.Minute, time.Millisecond)
}

// Three nodes over one store count together: after they stop, the store has everything they
// admitted, and an exhausted limit refuses on all of them.
func TestThreeNodesReport(t *testing.T) {
	for name, c := range stores(t) {
		for _, line := range []string{
			"fixed fixed_window limit=3000 window=" + testenv.LongWindow(),
			"sliding sliding_window limit=3000 window=" + testenv.LongWindow(),
			"token token_bucket limit=3000 window=24h burst=3000",
		} {
			l := reportedRule(t, line)
			t.Run(name+" "+l.Rule, func(t *testing.T) {
				var nodes []*report.Store
				var backends []*redisstore.Store
				for range 3 {
					s := open(t, c)
					awaitTopology(t, s)
					local := memory.New(memory.Config{})
					fallback := limiter.NewFallback(s, local, func() int { return 3 }, nil)
					t.Cleanup(fallback.Close)
					n := report.New(report.Config{Next: fallback, Reporter: s, Local: fallback, Nodes: func() int { return 3 }, Trip: 5 * time.Second})
					t.Cleanup(n.Close)
					nodes, backends = append(nodes, n), append(backends, s)
				}
				admitted := exhaust(t, nodes, check(l, "tenant", 1))
				for _, n := range nodes {
					n.Close()
				}
				q := limiter.Report{Limit: l, Key: storetest.Key("tenant", l)}
				if l.Algorithm != limiter.TokenBucket {
					now := time.Now().UnixMicro()
					q.Key = limiter.AppendWindow(nil, q.Key, now-now%l.Window.Microseconds())
				}
				list := []limiter.Report{q}
				backends[0].Report(t.Context(), list)
				require.NoError(t, list[0].Err)
				if l.Algorithm == limiter.TokenBucket {
					require.InDelta(t, float64(admitted), list[0].Level, 10)
				} else {
					require.EqualValues(t, admitted, list[0].Count)
				}
				require.GreaterOrEqual(t, admitted, int(l.Limit))
				t.Logf("%d of %d", admitted, l.Limit)
			})
		}
	}
}

// exhaust asks each node until it refuses for longer than an early refusal lasts. It returns
// how many requests passed.
func exhaust(t *testing.T, nodes []*report.Store, c limiter.Check) int {
	var mu sync.Mutex
	admitted := 0
	var group sync.WaitGroup
	for _, n := range nodes {
		group.Go(func() {
			var d limiter.Decision
			deadline := time.Now().Add(testenv.Patience)
			for time.Now().Before(deadline) {
				if err := n.Take(context.Background(), []limiter.Check{c}, &d); err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					mu.Lock()
					admitted++
					mu.Unlock()
				} else if d.Results[0].Remaining == 0 && d.RetryAfter([]limiter.Check{c}) > 2*limiter.ReportEvery {
					return
				}
			}
			t.Error("it never refuses")
		})
	}
	group.Wait()
	return admitted
}

// BenchmarkReport measures a report's cost by Redis's own account: for a window's known
// counter, a new one, and a bucket.
func BenchmarkReport(b *testing.B) {
	server := testenv.Redis(b, testenv.Options{})
	s := open(b, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	fixed := reportedRule(b, "fixed fixed_window limit=10 window=1m")
	bucket := reportedRule(b, "bucket token_bucket limit=6000 window=1m burst=6000")
	for name, one := range map[string]func(i int) limiter.Report{
		"window": func(i int) limiter.Report {
			r := counterOf(fixed, fmt.Sprint(i), 0, 1)
			r.Expire = 0
			return r
		},
		"new window": func(i int) limiter.Report { return counterOf(fixed, fmt.Sprint(i), 0, 1) },
		"bucket": func(i int) limiter.Report {
			return limiter.Report{Limit: bucket, Key: storetest.Key(fmt.Sprint(i), bucket), Units: 1}
		},
	} {
		b.Run(name, func(b *testing.B) {
			const batch = 2000
			list := make([]limiter.Report, batch)
			for i := range list {
				list[i] = one(i)
			}
			before := cpu(b, server.Client())
			for b.Loop() {
				s.Report(b.Context(), list)
				if list[0].Err != nil {
					b.Fatal(list[0].Err)
				}
			}
			spent := cpu(b, server.Client()) - before
			b.ReportMetric(spent.Seconds()*1e6/float64(b.N)/batch, "redis-µs/report")
		})
	}
}

// cpu returns a server's processor time.
func cpu(b *testing.B, c *redis.Client) (sum time.Duration) {
	text, err := c.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		spent, err := time.ParseDuration(value + "s")
		require.NoError(b, err)
		sum += spent
	}
	return sum
}
