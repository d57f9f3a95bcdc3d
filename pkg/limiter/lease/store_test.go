package lease

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

const generous = "r fixed_window limit=1000000 window=1h"

// hot makes a key hot on a node: it then holds a lease.
func (n *node) hot(c limiter.Check) {
	for range 200 {
		n.request(c)
		sleep(5 * time.Millisecond)
	}
}

func (n *node) held(c limiter.Check) int64 {
	units, _ := n.lease.Held(c.Key)
	return units
}

func (w *world) used(c limiter.Check) int64 {
	c.Peek = true
	var d limiter.Decision
	require.NoError(w, w.store.Take(context.Background(), []limiter.Check{c}, &d))
	return c.Limit.Limit - d.Results[0].Remaining
}

func TestAColdKeyStaysStrict(t *testing.T) {
	inWorld(t, 1, 1, func(t *testing.T, w *world) {
		n, c := w.nodes[0], check(limit(t, generous), 1)
		for range 30 {
			sleep(600 * time.Millisecond) // under two in a lease time of a second
			require.True(t, n.request(c))
		}
		require.EqualValues(t, 30, n.calls.Load())
		require.Zero(t, n.held(c))
	})
}

// A key that cools returns what it has left within two lease times, and so does a node
// that stops.
func TestUnspentUnitsGoBack(t *testing.T) {
	for _, stop := range []bool{false, true} {
		inWorld(t, 2, 1, func(t *testing.T, w *world) {
			n, c := w.nodes[0], check(limit(t, generous), 1)
			n.hot(c)
			require.Positive(t, n.held(c))
			require.Less(t, n.calls.Load(), int64(60))
			if stop {
				n.lease.Close()
			} else {
				sleep(2 * c.Limit.LeaseTime())
			}
			require.EqualValues(t, 200, w.used(c))
			sleep(20 * c.Limit.LeaseTime())
			require.Zero(t, n.lease.leases.Load(), "a cold key has no lease")
		})
	}
}

// A request takes from all its limits or from none, whichever of them are leased.
func TestAllOrNothing(t *testing.T) {
	inWorld(t, 1, 1, func(t *testing.T, w *world) {
		n, c := w.nodes[0], check(limit(t, generous), 1)
		second := limit(t, "second sliding_window limit=1000000 window=1h")
		strict := &limiter.Limit{Rule: "strict", Algorithm: limiter.FixedWindow, Limit: 3, Window: time.Hour}
		all := []limiter.Check{c, check(strict, 1), check(second, 1)}
		n.hot(c)
		n.hot(all[2])
		passed := 0
		for range 100 {
			if n.request(all...) {
				passed++
			}
			n.request(c) // keeps it hot
			sleep(5 * time.Millisecond)
		}
		require.Equal(t, 3, passed)
		n.lease.Close()
		require.EqualValues(t, 303, w.used(c))
		require.EqualValues(t, 203, w.used(all[2]))
	})
}

// A reset reaches what other nodes hold within a lease time, and the node that resets at
// once.
func TestReset(t *testing.T) {
	inWorld(t, 2, 1, func(t *testing.T, w *world) {
		c := check(limit(t, "r fixed_window limit=10000 window=1h"), 1)
		for _, n := range w.nodes {
			n.hot(c)
		}
		require.NoError(t, w.nodes[0].denied.Reset(context.Background(), []limiter.Check{c}))
		require.Zero(t, w.nodes[0].held(c))
		require.Zero(t, w.used(c))
		sleep(c.Limit.LeaseTime())
		require.Zero(t, w.nodes[1].held(c))
		sleep(20 * c.Limit.LeaseTime())
		require.Zero(t, w.used(c), "what was granted before does not come back as more")
	})
}

// When a limit is lowered, what passes beyond it is at most what nodes held at that moment,
// and only within a lease time.
func TestALoweredLimit(t *testing.T) {
	inWorld(t, 3, 1, func(t *testing.T, w *world) {
		before := limit(t, "r fixed_window limit=100000 window=1h")
		after := limit(t, "r fixed_window limit=100 window=1h")
		c := check(before, 1)
		var group sync.WaitGroup
		for _, n := range w.nodes {
			group.Go(func() { n.hot(c) })
		}
		group.Wait()
		passed := func() int { return len(w.passed[string(c.Key)]) }
		was := passed()
		w.nodes[0].lease.ForgetInactive(func(l *limiter.Limit) bool { return l.Equal(after) })
		require.Zero(t, w.nodes[0].held(c), "a node that has the new rule holds nothing under the old one")
		held := int(w.nodes[1].held(c) + w.nodes[2].held(c))
		require.Positive(t, held)
		for end := time.Now().Add(before.LeaseTime()); time.Now().Before(end); sleep(time.Millisecond) {
			for _, n := range w.nodes {
				n.request(check(after, 1)) // a lease under the old limit is not spent by these
			}
		}
		require.Equal(t, was, passed())
	})
}

// What is held passes while the store is unreachable, and no longer than it lasts.
func TestTheStoreIsUnreachable(t *testing.T) {
	inWorld(t, 1, 1, func(t *testing.T, w *world) {
		n, c := w.nodes[0], check(limit(t, generous), 1)
		n.hot(c)
		held := n.held(c)
		n.set(func() { n.cut = time.Now().Add(time.Hour) })
		passed := int64(0)
		for range 1000 {
			if n.request(c) {
				passed++
			}
		}
		require.LessOrEqual(t, passed, held)
		require.Positive(t, passed)
		sleep(c.Limit.LeaseTime())
		require.False(t, n.request(c))
	})
}

// Refusals under a leased limit are remembered for a lease time at most, because other
// nodes return units.
func TestRefusalsAreRememberedForALeaseTime(t *testing.T) {
	inWorld(t, 1, 1, func(t *testing.T, w *world) {
		n, c := w.nodes[0], check(limit(t, "r fixed_window limit=10 window=1h"), 10)
		require.True(t, n.request(c))
		require.False(t, n.request(c))
		w.store.Reset(t.Context(), []limiter.Check{c}) //nolint:errcheck // never fails
		require.False(t, n.request(c), "remembered")
		sleep(c.Limit.LeaseTime())
		require.True(t, n.request(c))
	})
}

func TestWhatCannotBeLeased(t *testing.T) {
	for line, want := range map[string]string{
		"r leaky_bucket limit=10 window=1m burst=5":              "leaky_bucket",
		"r concurrency limit=10 window=1m":                       "in flight",
		"r rolling_window limit=10 window=1m min_interval=1s":    "min_interval",
		"r fixed_window limit=10 window=1m count_denied":         "count_denied",
		"r fixed_window limit=10 window=9s":                      "a window of at least 10s",
		"r token_bucket limit=60000 window=1m burst=599":         "a burst of at least 600",
		"r rolling_window limit=10 window=1m storage=sorted_set": "",
		"r token_bucket limit=60000 window=1m burst=600":         "",
	} {
		l := limitOf(t, line)
		l.Leased = true
		errs := l.Validate()
		if want == "" {
			require.Empty(t, errs, line)
			continue
		}
		require.Len(t, errs, 1, line)
		require.Equal(t, "consistency", errs[0].Path)
		require.Contains(t, errs[0].Msg, want)
	}
}

// open returns a Store over memory, without delays.
func open(t testing.TB, maxKeys int) *Store {
	m := memory.New(memory.Config{})
	s := New(Config{Next: m, Grants: m, Nodes: func() int { return 1 }, MaxKeys: maxKeys})
	t.Cleanup(s.Close)
	return s
}

func TestSpendingAllocatesNothing(t *testing.T) {
	s := open(t, 0)
	l := limit(t, "r fixed_window limit=1000000000 window=24h")
	checks := []limiter.Check{check(l, 1), check(&limiter.Limit{Rule: "strict", Algorithm: limiter.FixedWindow, Limit: 1e9, Window: time.Hour}, 1)}
	ctx := context.Background()
	var d limiter.Decision
	for units := int64(0); units < 10_000; units, _ = s.Held(checks[0].Key) {
		require.NoError(t, s.Take(ctx, checks[:1], &d))
	}
	for _, n := range []int{1, 2} { // also with a check that the store decides
		require.Zero(t, testing.AllocsPerRun(1000, func() { _ = s.Take(ctx, checks[:n], &d) }))
		require.Equal(t, limiter.SourceLease, d.Results[0].Source)
	}
}

func BenchmarkSpend(b *testing.B) {
	s := open(b, 0)
	l := limit(b, "r fixed_window limit=1000000000 window=24h")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		checks := []limiter.Check{check(l, 1)}
		var d limiter.Decision
		for pb.Next() {
			_ = s.Take(context.Background(), checks, &d)
		}
	})
}
