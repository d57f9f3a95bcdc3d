package lease

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/boottime"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// When a master dies, the excess is at most what it charged and had not replicated, whatever
// nodes hold at that moment.
func TestAMasterDies(t *testing.T) {
	for _, nodes := range []int{1, 3, 20} {
		for seed := range uint64(5) {
			inWorld(t, nodes, seed, func(t *testing.T, w *world) {
				l := limit(t, "r fixed_window limit=3000 window=24h")
				w.replica = memory.New(memory.Config{Clock: w.clock})
				var group sync.WaitGroup
				for _, n := range w.nodes {
					group.Go(func() {
						n.drive(1500/float64(nodes), 8*time.Second, func() []limiter.Check { return []limiter.Check{check(l, 1)} })
					})
				}
				sleep(time.Duration(w.draw() * float64(time.Second)))
				w.replicate(false)
				sleep(50*time.Millisecond + time.Duration(w.draw()*float64(100*time.Millisecond)))
				w.promote()
				group.Wait()
				passed := int64(len(w.passed[string(storetest.Key("a", l))]))
				t.Logf("%d nodes: %d passed of %d; %d were not replicated", nodes, passed, l.Limit, w.lost)
				require.LessOrEqual(t, passed, l.Limit+w.lost)
				require.Greater(t, passed, l.Limit*9/10)
			})
		}
	}
}

// A lease that yields to a hotter one returns its units.
func TestEvictionReturnsUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Config{})
		s := New(Config{Next: m, Grants: m, Nodes: func() int { return 1 }, MaxKeys: shardCount}) // one in each shard
		defer s.Close()
		l := limit(t, generous)
		of := func(i int) limiter.Check {
			return limiter.Check{Limit: l, Key: fmt.Appendf(nil, "weir:{%d}:r:fw", i), Cost: 1}
		}
		ask := func(c limiter.Check, times int) {
			var d limiter.Decision
			for range times {
				require.NoError(t, s.Take(context.Background(), []limiter.Check{c}, &d))
				require.True(t, d.Allowed)
				synctest.Wait()
			}
		}
		first, second := of(0), limiter.Check{}
		for i := 1; s.shard(second.Key) != s.shard(first.Key) || i == 1; i++ {
			second = of(i)
		}
		const spent = 20
		ask(first, spent)
		units, _ := s.Held(first.Key)
		require.Positive(t, units)
		time.Sleep(l.LeaseTime() / 2) // before its lease ends
		ask(second, 10*spent)
		synctest.Wait()
		units, _ = s.Held(first.Key)
		require.Zero(t, units)
		units, _ = s.Held(second.Key)
		require.Positive(t, units)
		first.Peek = true
		var d limiter.Decision
		require.NoError(t, m.Take(context.Background(), []limiter.Check{first}, &d))
		require.EqualValues(t, l.Limit-spent, d.Results[0].Remaining)
	})
}

// unreachable fails.
type unreachable struct{ limiter.FullStore }

func (unreachable) Take(context.Context, []limiter.Check, *limiter.Decision) error { return errLost }

// DefaultMaxKeys says how much memory a lease takes.
func TestMemoryOfALease(t *testing.T) {
	l := limit(t, generous)
	still := boottime.New(func(time.Time) (monotonic, wall time.Duration) { return 0, 0 }) // no lease cools
	s := New(Config{Next: unreachable{}, Grants: unreachable{}, Nodes: func() int { return 1 }, Clock: still})
	defer s.Close()
	keys := 100_000
	if os.Getenv("WEIR_SOAK") != "" {
		keys = DefaultMaxKeys
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range keys {
		c := limiter.Check{Limit: l, Key: fmt.Appendf(nil, "weir:{203.0.113.%d}:per-client:fw", i), Cost: 1}
		sh := s.shard(c.Key)
		sh.Lock()
		s.begin(sh, &c, 1000, s.clock.Now())
		sh.Unlock()
	}
	require.InEpsilon(t, keys, s.leases.Load(), 0.02) // a shard may be full
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / uint64(keys)
	t.Logf("%d keys, %d bytes each", keys, each)
	require.LessOrEqual(t, each, uint64(400))
	runtime.KeepAlive(s)
}
