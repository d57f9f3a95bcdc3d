package report

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// With many clients on 20 nodes, a node receives a client's requests seconds apart. Nodes that
// took their last counts for the present ones let two to nine times as much pass beyond the
// limit. The strict store decides the same requests for comparison.
func TestClientsOnManyNodes(t *testing.T) {
	const clients, nodes = 50, 20
	for _, plan := range []struct {
		line  string
		times float64 // the demand, in multiples of the limit
		over  float64 // the most that passes over a client's limit, on average of clients
	}{
		{"r fixed_window limit=217 window=60s", 1.1, 0.03},
		{"r fixed_window limit=217 window=60s", 2, 0.035},
		{"r sliding_window limit=217 window=60s", 1.1, 0.02},
		{"r sliding_window limit=217 window=60s", 2, 0.035},
		{"r token_bucket limit=217 window=60s burst=217", 1.1, 0.02},
		{"r token_bucket limit=217 window=60s burst=217", 2, 0.04},
	} {
		inWorld(t, nodes, 1, func(t *testing.T, w *world) {
			l := limit(t, plan.line)
			exact := limit(t, plan.line)
			exact.Reported = false
			strict, passes := memory.New(memory.Config{Clock: w.clock}), 0
			var mu sync.Mutex
			rate := plan.times * float64(l.Limit) / l.Window.Seconds() * clients / nodes
			var group sync.WaitGroup
			for _, n := range w.nodes {
				group.Go(func() {
					n.drive(rate, 4*time.Minute, func() []limiter.Check {
						client := fmt.Sprint(n.random.IntN(clients))
						var d limiter.Decision
						mu.Lock()
						defer mu.Unlock()
						require.NoError(t, strict.Take(t.Context(), []limiter.Check{{Limit: exact, Key: storetest.Key(client, exact), Cost: 1}}, &d))
						if d.Allowed {
							passes++
						}
						return []limiter.Check{{Limit: l, Key: storetest.Key(client, l), Cost: 1}}
					})
				})
			}
			group.Wait()
			sum, most := 0.0, 0.0
			for _, over := range w.excesses(l) {
				sum, most = sum+over/float64(l.Limit), max(most, over/float64(l.Limit))
			}
			share := float64(w.passed()) / float64(passes)
			t.Logf("%s, %.1f times the limit: over by %.2f%% on average of clients, %.2f%% at most; passed %.4f of what the strict store passes",
				l.Algorithm, plan.times, 100*sum/clients, 100*most, share)
			require.LessOrEqual(t, sum/clients, plan.over)
			require.InDelta(t, 1, share, 0.02)
		})
	}
}

// After a burst through other nodes, a node may refuse a request that the limit allows, as
// others may have continued. It has the count one report later, and does not expect as much
// again.
func TestABurstThatHasEnded(t *testing.T) {
	for _, line := range []string{"r fixed_window limit=100 window=10m", "r sliding_window limit=100 window=10m", "r token_bucket limit=100 window=1h burst=100"} {
		inWorld(t, 20, 1, func(t *testing.T, w *world) {
			l := limit(t, line)
			if l.Algorithm != limiter.TokenBucket {
				sleep(time.Until(time.Now().Truncate(l.Window).Add(l.Window+100*time.Millisecond)) - w.offset%l.Window)
			}
			for range 4 {
				for _, n := range w.nodes {
					require.True(t, n.request(check(l, 1)))
					sleep(50 * time.Millisecond)
				}
			}
			n := w.nodes[19] // the last one
			sleep(10 * time.Second)
			var d limiter.Decision
			require.NoError(t, n.store.Take(t.Context(), []limiter.Check{check(l, 1)}, &d))
			require.False(t, d.Allowed, "the others may have used the rest")
			require.Equal(t, limiter.ReportEvery, d.Results[0].RetryAfter)
			require.Zero(t, d.Results[0].Remaining)
			c := check(l, 1)
			c.Peek = true
			require.NoError(t, n.store.Take(t.Context(), []limiter.Check{c}, &d))
			require.True(t, d.Allowed)
			require.InDelta(t, 20, float64(d.Results[0].Remaining), 1, "an operator sees what all have counted")
			heard()
			for range 5 {
				require.True(t, n.request(check(l, 1)))
				sleep(time.Minute)
			}
		})
	}
}

// What a node expects of others makes it refuse more, never less, and no more than others did
// before. A recent answer is not added to.
func TestExpected(t *testing.T) {
	for _, line := range limits {
		for seed := range uint64(2000) {
			random := rand.New(rand.NewPCG(seed, 1))
			l := limit(t, fmt.Sprintf(line, 1+random.Int64N(300)))
			window := l.Window.Microseconds()
			e := &entry{limit: l, gained: 300 * random.Float64(), spanned: 1 + 3*float64(window)*random.Float64()}
			e.heard = window*1000 + random.Int64N(window)
			e.roll(l, e.heard)
			e.count, e.before, e.pending = random.Int64N(400), random.Int64N(400), random.Int64N(10)
			e.level, e.levelAt = 400*random.Float64(), e.heard
			require.Equal(t, e.room(l, e.heard+staleAfter), e.left(l, e.heard+staleAfter))
			at := e.roll(l, e.heard+staleAfter+1+random.Int64N(3*window))
			room, left := e.room(l, at), e.left(l, at)
			require.LessOrEqual(t, left, room)
			require.LessOrEqual(t, float64(room-left), extrapolateFor*e.gained+1+1e-6)
			e.gained = 0
			require.Equal(t, room, e.left(l, at))
		}
	}
}

// Others' rate is that of the last answers. Times in which nothing was left do not lower it, and
// a silence longer than all of those does at once.
func TestGain(t *testing.T) {
	l := limit(t, "r fixed_window limit=1000 window=1h")
	const second = 1e6
	e := &entry{limit: l, start: 1e9, heard: 1e9 + 1}
	for range 20 {
		e.observeOthers(l, 10, 5*second)
	}
	require.InDelta(t, 2, e.gained/e.spanned*second, 1e-9)
	require.InDelta(t, 25*second, e.spanned, second)
	e.observeOthers(l, 0, 5*second)
	require.InDelta(t, 1.6, e.gained/e.spanned*second, 0.01)
	e.count = 1000
	e.observeOthers(l, 10, 5*second)
	before := *e
	e.observeOthers(l, 0, 30*second)
	require.Equal(t, before, *e, "they could not admit any")
	e.count = 0
	e.observeOthers(l, 0, 5*second)
	require.Equal(t, before.spanned, e.spanned, "until now")
	e.observeOthers(l, 0, 600*second)
	require.Less(t, e.gained, 2.0)
}

// A node that restarts in the middle of a window finds what it admitted itself in the count. It
// does not expect that others continue to admit it.
func TestANodeThatRestarts(t *testing.T) {
	for _, line := range []string{"r fixed_window limit=1000 window=1h", "r sliding_window limit=1000 window=1h", "r token_bucket limit=1000 window=1h burst=1000"} {
		for _, left := range []int{20, 3} {
			inWorld(t, 1, 1, func(t *testing.T, w *world) {
				l, n := limit(t, line), w.nodes[0]
				sleep(time.Until(time.Now().Truncate(l.Window).Add(l.Window+time.Second)) - w.offset%l.Window)
				for range 1000 - left {
					require.True(t, n.request(check(l, 1)))
				}
				sleep(10 * time.Minute)
				n.store.Close()
				n.store = New(n.store.config)
				for range left {
					require.True(t, n.request(check(l, 1)), "%s with %d left", l.Algorithm, left)
					sleep(time.Minute)
				}
			})
		}
	}
}

// When others stop for good, a node refuses requests that fit while it expects them to continue.
// -v prints how many.
func TestOthersThatStopped(t *testing.T) {
	for _, line := range []string{"r fixed_window limit=300 window=1h", "r sliding_window limit=300 window=1h"} {
		for _, left := range []int{1, 5, 20} {
			inWorld(t, 2, 1, func(t *testing.T, w *world) {
				l, stopped, n := limit(t, line), w.nodes[0], w.nodes[1]
				sleep(time.Until(time.Now().Truncate(l.Window).Add(l.Window+time.Second)) - w.offset%l.Window)
				for passed := 0; passed < 300-left; {
					if passed%10 == 0 && n.request(check(l, 1)) {
						passed++
					}
					if stopped.request(check(l, 1)) {
						passed++
					}
					sleep(200 * time.Millisecond)
				}
				refused := 0
				for passed := 0; passed < left; {
					sleep(5 * time.Second)
					if n.request(check(l, 1)) {
						passed++
					} else {
						refused++
					}
					require.LessOrEqual(t, refused, 20, "%s with %d left", l.Algorithm, left)
				}
				t.Logf("%s, %d left, a request every 5 s: refused %d before all were used", l.Algorithm, left, refused)
			})
		}
	}
}
