package report

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

const generous = "r fixed_window limit=1000000 window=24h"

// heard lets two reports pass, so that each node knows what all have admitted.
func heard() { sleep(2*limiter.ReportEvery + 2*longestTrip) }

func (w *world) counted(l *limiter.Limit) (sum int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.counts {
		sum += n
	}
	if b := w.buckets[string(storetest.Key("a", l))]; b != nil {
		sum += whole(b.level)
	}
	return sum
}

// No request waits for the store; within a report it has what all nodes admitted.
func TestReports(t *testing.T) {
	for _, line := range []string{generous, "r sliding_window limit=1000 window=1h", "r token_bucket limit=1000 window=24h burst=1000"} {
		inWorld(t, 2, 1, func(t *testing.T, w *world) {
			l := limit(t, line)
			for range 100 {
				for _, n := range w.nodes {
					require.True(t, n.request(check(l, 2)))
				}
			}
			require.Zero(t, w.nodes[0].calls.Load())
			heard()
			require.InDelta(t, 400, float64(w.counted(l)), 1)
			require.LessOrEqual(t, w.nodes[0].calls.Load(), int64(2))
			for _, n := range w.nodes {
				require.True(t, n.request(check(l, 1))) // asks again
			}
			heard()
			var d limiter.Decision
			require.NoError(t, w.nodes[0].store.Take(t.Context(), []limiter.Check{check(l, 1)}, &d))
			require.Equal(t, limiter.SourceReported, d.Results[0].Source)
			require.InDelta(t, float64(l.Limit-403), float64(d.Results[0].Remaining), 1)
			c := check(l, 1)
			c.Peek = true
			heard()
			require.NoError(t, w.nodes[1].store.Take(t.Context(), []limiter.Check{c}, &d))
			require.InDelta(t, float64(l.Limit-403), float64(d.Results[0].Remaining), 1, "an operator sees what all have counted")
		})
	}
}

// A node that stops reports what it has admitted.
func TestCloseReports(t *testing.T) {
	inWorld(t, 1, 1, func(t *testing.T, w *world) {
		l := limit(t, generous)
		for range 7 {
			require.True(t, w.nodes[0].request(check(l, 1)))
		}
		w.nodes[0].store.Close()
		require.EqualValues(t, 7, w.counted(l))
	})
}

// A request counts under all its limits or under none, whichever of them are reported.
func TestAllOrNothing(t *testing.T) {
	inWorld(t, 1, 1, func(t *testing.T, w *world) {
		n, l := w.nodes[0], limit(t, generous)
		strict := &limiter.Limit{Rule: "strict", Algorithm: limiter.FixedWindow, Limit: 3, Window: 24 * time.Hour}
		few := limit(t, "few sliding_window limit=5 window=24h")
		denied := &limiter.Limit{Rule: "denied", Algorithm: limiter.FixedWindow, Limit: 100, Window: 24 * time.Hour, CountDenied: true}
		for i := range 10 {
			require.Equal(t, i < 3, n.request(check(l, 1), check(strict, 1)))
			sleep(70 * time.Millisecond)
		}
		for i := range 10 {
			require.Equal(t, i < 5, n.request(check(denied, 1), check(l, 1), check(few, 1)))
			sleep(70 * time.Millisecond)
		}
		heard()
		require.EqualValues(t, 3+5+5, w.counted(l))
		used := func(l *limiter.Limit) int64 {
			c := check(l, 1)
			c.Peek = true
			var d limiter.Decision
			require.NoError(t, n.local.Take(t.Context(), []limiter.Check{c}, &d))
			return l.Limit - d.Results[0].Remaining
		}
		require.EqualValues(t, 3, used(strict))
		require.EqualValues(t, 5, used(denied), "it refused none")

		var d limiter.Decision
		both := []limiter.Check{check(l, 1), check(few, 1)}
		require.NoError(t, n.store.Take(t.Context(), both[:1], &d))
		require.NoError(t, n.store.Return(t.Context(), both[:1], &d))
		heard()
		require.EqualValues(t, 13, w.counted(l), "returned")
	})
}

// A reset reaches the resetting node immediately, and others with their next report.
func TestReset(t *testing.T) {
	for _, line := range []string{"r fixed_window limit=100 window=24h", "r sliding_window limit=100 window=24h", "r token_bucket limit=100 window=24h burst=100"} {
		inWorld(t, 2, 1, func(t *testing.T, w *world) {
			l := limit(t, line)
			for _, n := range w.nodes {
				for range 200 {
					n.request(check(l, 1))
				}
			}
			heard()
			for _, n := range w.nodes {
				require.False(t, n.request(check(l, 1)))
			}
			require.NoError(t, w.nodes[0].store.Reset(t.Context(), []limiter.Check{check(l, 1)}))
			require.True(t, w.nodes[0].request(check(l, 1)))
			require.False(t, w.nodes[1].request(check(l, 1)))
			heard()
			require.True(t, w.nodes[1].request(check(l, 1)))
		})
	}
}

// A changed limit applies from the next request, and earlier use is not overshoot.
func TestAChangedLimit(t *testing.T) {
	inWorld(t, 1, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		for range 50 {
			require.True(t, n.request(check(limit(t, "r fixed_window limit=100 window=24h"), 1)))
		}
		lower := limit(t, "r fixed_window limit=10 window=24h")
		require.False(t, n.request(check(lower, 1)))
		heard()
		require.Zero(t, n.store.Usages()[0].Overshoot)
		require.True(t, n.request(check(limit(t, "r fixed_window limit=51 window=24h"), 1)))
	})
}

// The second failure in a row hands a key to its rule's failure policy; the next answer takes
// it back. Earlier admissions are not forgotten.
func TestTheStoreIsUnreachable(t *testing.T) {
	for policy, passes := range map[limiter.OnFailure]int{limiter.Local: 50, limiter.Open: 100, limiter.Closed: 0} {
		inWorld(t, 2, 1, func(t *testing.T, w *world) {
			n, l := w.nodes[0], limit(t, "r fixed_window limit=100 window=24h")
			l.OnFailure = policy
			n.request(check(l, 1))
			heard()
			n.mu.Lock()
			n.cut = time.Now().Add(time.Hour)
			n.mu.Unlock()
			for range 9 {
				require.True(t, n.request(check(l, 1)))
			}
			heard()
			heard()
			passed := 0
			for range 100 {
				if n.request(check(l, 1)) {
					passed++
				}
			}
			require.Equal(t, passes, passed)
			other := limiter.Check{Limit: l, Key: storetest.Key("new", l), Cost: 1}
			require.Equal(t, policy != limiter.Closed, n.request(other), "keys that come later, too")
			n.mu.Lock()
			n.cut = time.Time{}
			n.mu.Unlock()
			heard()
			require.True(t, n.request(check(l, 1)))
			heard()
			require.EqualValues(t, 11, w.counted(l), "what was decided locally is not reported")
			var d limiter.Decision
			require.NoError(t, n.store.Take(t.Context(), []limiter.Check{check(l, 1)}, &d))
			require.Equal(t, limiter.SourceReported, d.Results[0].Source)
		})
	}
}

func TestWhatCannotBeReported(t *testing.T) {
	for line, want := range map[string]string{
		"r leaky_bucket limit=10 window=1m burst=5":      "leaky_bucket",
		"r concurrency limit=10 window=1m":               "in flight",
		"r rolling_window limit=10 window=1m":            "use sliding_window, or consistency: leased",
		"r fixed_window limit=10 window=1m count_denied": "count_denied",
		"r fixed_window limit=10 window=9s":              "a window of at least 10s",
		"r token_bucket limit=60000 window=1m burst=499": "a burst of at least 500",
		"r token_bucket limit=60000 window=1m burst=500": "",
		"r sliding_window limit=10 window=10s":           "",
	} {
		errs := limit(t, line).Validate()
		if want == "" {
			require.Empty(t, errs, line)
			continue
		}
		require.Len(t, errs, 1, line)
		require.Equal(t, "consistency", errs[0].Path)
		require.Contains(t, errs[0].Msg, want)
	}
}

// silent is a store that answers only zeros, immediately.
type silent struct{}

// Report implements limiter.Reporter.
func (silent) Report(_ context.Context, reports []limiter.Report) {
	for i := range reports {
		reports[i].Now = time.Now().UnixMicro()
	}
}

// Forget implements limiter.Reporter.
func (silent) Forget(context.Context, [][]byte) error { return nil }

func open(t testing.TB, maxKeys int) *Store {
	m := memory.New(memory.Config{})
	f := limiter.NewFallback(m, m, func() int { return 1 }, nil)
	s := New(Config{Next: m, Reporter: silent{}, Local: f, Nodes: func() int { return 1 }, Trip: time.Millisecond, MaxKeys: maxKeys})
	t.Cleanup(f.Close)
	t.Cleanup(s.Close)
	return s
}

func TestDecidingAllocatesNothing(t *testing.T) {
	s := open(t, 0)
	strict := check(&limiter.Limit{Rule: "strict", Algorithm: limiter.FixedWindow, Limit: 1e9, Window: time.Hour}, 1)
	var d limiter.Decision
	for _, line := range []string{"r fixed_window limit=1000000000 window=24h", "r sliding_window limit=1000000 window=24h", "r token_bucket limit=1000000 window=24h burst=1000000", "r fixed_window limit=1 window=24h"} {
		for _, checks := range [][]limiter.Check{{check(limit(t, line), 1)}, {check(limit(t, line), 1), strict}} {
			require.NoError(t, s.Take(t.Context(), checks, &d))
			require.Zero(t, testing.AllocsPerRun(1000, func() { _ = s.Take(context.Background(), checks, &d) }), line)
			require.Equal(t, limiter.SourceReported, d.Results[0].Source)
		}
	}
}

// Evicted keys stay in the list of changed ones until they are reported: it is bounded, too.
func TestChangedKeysAreBounded(t *testing.T) {
	s := open(t, 64*shardCount)
	l := limit(t, generous)
	var d limiter.Decision
	for i := range 40_000 {
		c := limiter.Check{Limit: l, Key: fmt.Appendf(nil, "weir:{%d}:r:fr", i), Cost: 1}
		require.NoError(t, s.Take(t.Context(), []limiter.Check{c, c}, &d))
	}
	for i := range s.shards {
		s.shards[i].Lock()
		require.LessOrEqual(t, len(s.shards[i].changed), 2*s.perShard)
		require.LessOrEqual(t, len(s.shards[i].urgent), 2*s.perShard)
		s.shards[i].Unlock()
	}
}

// Keys that no longer matter are dropped.
func TestColdKeysGo(t *testing.T) {
	inWorld(t, 1, 1, func(t *testing.T, w *world) {
		l := limit(t, "r fixed_window limit=100 window=10s")
		w.nodes[0].request(check(l, 1))
		require.EqualValues(t, 1, w.nodes[0].store.Usages()[0].Keys)
		sleep(10*time.Second + (shardCount+1)*limiter.ReportEvery)
		require.Zero(t, w.nodes[0].store.Usages()[0].Keys)
	})
}

func BenchmarkDecide(b *testing.B) {
	s := open(b, 0)
	l := limit(b, "r sliding_window limit=1000000 window=24h")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		checks := []limiter.Check{check(l, 1)}
		var d limiter.Decision
		for pb.Next() {
			_ = s.Take(context.Background(), checks, &d)
		}
	})
}

// BenchmarkMemory reports a key's bytes.
func BenchmarkMemory(b *testing.B) {
	l := limit(b, generous)
	for b.Loop() {
		s := open(b, 0)
		const keys = 200_000
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range keys {
			c := limiter.Check{Limit: l, Key: fmt.Appendf(nil, "weir:{203.0.113.%d}:per-client:fr", i), Cost: 1}
			sh := s.shard(c.Key)
			sh.Lock()
			s.begin(sh, &c)
			sh.Unlock()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
		runtime.KeepAlive(s)
	}
}
