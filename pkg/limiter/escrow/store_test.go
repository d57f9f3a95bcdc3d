package escrow

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func checkOf(t *testing.T, line string) []limiter.Check {
	l, err := storetest.ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	return []limiter.Check{{Limit: l, Key: storetest.Key("k", l), Cost: 1}}
}

func clock() int64 { return storetest.Epoch }

func newStore() *Store {
	store := memory.New(memory.Config{Clock: clock})
	_ = store.Open(context.Background()) // always succeeds
	return New(limiter.NoDenied{FullStore: store}, clock)
}

// hold gives a region its own part of all windows.
func (s *Store) hold(region, regions int) {
	s.Hold(global.Held{{Span: global.Always, Part: region, Regions: regions}})
}

// What is known to be refused reaches no store, but other regions are asked for it.
func TestKnownRefusalsAreDemand(t *testing.T) {
	store := memory.New(memory.Config{Clock: clock})
	require.NoError(t, store.Open(context.Background()))
	s := New(limiter.NewDenied(store, 1000, 0), clock)
	s.hold(0, 2)
	checks := checkOf(t, "r fixed_window limit=2 window=10s escrow")
	now := time.Now() // what is remembered of a part soon ends
	for want, source := range []limiter.Source{limiter.SourceMemory, limiter.SourceMemory, limiter.SourceDenied, limiter.SourceDenied} {
		var d limiter.Decision
		look := s.Precheck(checks, &d, now)
		require.Equal(t, source == limiter.SourceDenied, look.Refused)
		if !look.Refused {
			require.NoError(t, s.TakeAfter(context.Background(), checks, &d, look))
		}
		require.Equal(t, want == 0, d.Allowed)
		require.Equal(t, source, d.Results[0].Source)
		require.EqualValues(t, 2, d.Results[0].Limit, "the whole limit is shown")
	}
	list := s.Drain()
	require.Len(t, list, 1)
	require.EqualValues(t, 3, list[0].Refused, "each once")
	require.Same(t, checks[0].Limit, list[0].Limit)
}

// The regions' parts add up to the limit, and a client sees the limit.
func TestParts(t *testing.T) {
	for _, limit := range []string{"1", "2", "10", "300"} {
		checks := checkOf(t, "r fixed_window limit="+limit+" window=10s escrow")
		passed := int64(0)
		for region := range 3 {
			s := newStore()
			s.hold(region, 3)
			var d limiter.Decision
			for d.Allowed = true; d.Allowed; {
				require.NoError(t, s.Take(context.Background(), checks, &d))
				require.Equal(t, checks[0].Limit.Limit, d.Results[0].Limit)
				if d.Allowed {
					passed++
				}
			}
			list := s.Drain()
			require.Len(t, list, 1)
			require.EqualValues(t, 1, list[0].Refused)
			require.Same(t, checks[0].Limit, list[0].Limit)
			require.Empty(t, s.Drain())
		}
		require.Equal(t, checks[0].Limit.Limit, passed)
	}
}

// Until the regions are known, no part is, and enforced rules refuse.
func TestUnknownRegions(t *testing.T) {
	s := newStore()
	var d limiter.Decision
	f := func(line string, want bool) {
		t.Helper()
		require.NoError(t, s.Take(context.Background(), checkOf(t, line), &d))
		require.Equal(t, want, d.Allowed)
	}
	f("r fixed_window limit=10 window=10s escrow", false)
	require.True(t, d.StoreUnavailable)
	f("r fixed_window limit=10 window=10s escrow shadow", true)
	f("r fixed_window limit=10 window=10s global", true)
	s.hold(1, 2)
	f("r fixed_window limit=10 window=10s escrow", true)
	s.Hold(nil)
	f("r fixed_window limit=10 window=10s escrow", false)
}

func TestReturnAndReset(t *testing.T) {
	s := newStore()
	s.hold(0, 1)
	checks := checkOf(t, "r fixed_window limit=1 window=10s escrow")
	var d, again limiter.Decision
	take := func(d *limiter.Decision) bool {
		require.NoError(t, s.Take(context.Background(), checks, d))
		return d.Allowed
	}
	require.True(t, take(&d))
	require.False(t, take(&again))
	require.NoError(t, s.Return(context.Background(), checks, &d))
	require.True(t, take(&d))
	require.NoError(t, s.Reset(context.Background(), checks))
	require.True(t, take(&d))
}

func TestTakeAllocatesNothing(t *testing.T) {
	s := newStore()
	s.hold(0, 3)
	checks := checkOf(t, "r fixed_window limit=100 window=10s escrow")
	var d limiter.Decision
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = s.Take(context.Background(), checks, &d) }), float64(dropped))
}

// Requests that need the same part first at the same time get the same one.
func TestPartIsOne(t *testing.T) {
	whole := checkOf(t, "r fixed_window limit=100 window=10s escrow")[0].Limit
	for range 2000 {
		s := newStore()
		var got [4]*limiter.Limit
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range got {
			all.Go(func() {
				<-begin
				got[i] = s.Part(whole, 5)
			})
		}
		close(begin)
		all.Wait()
		for _, l := range got {
			require.Same(t, got[0], l)
		}
	}
}

// A region that inherited a part has both, in the windows for which it has promises.
func TestTwoParts(t *testing.T) {
	now := storetest.Epoch
	store := memory.New(memory.Config{Clock: func() int64 { return now }})
	require.NoError(t, store.Open(context.Background()))
	s := New(limiter.NoDenied{FullStore: store}, func() int64 { return now })
	checks := checkOf(t, "r fixed_window limit=9 window=10s escrow")
	window := checks[0].Limit.Window.Microseconds()
	s.Hold(global.Held{
		{Span: global.Span{From: 0, To: now + window}, Part: 0, Regions: 3},
		{Span: global.Span{From: now + window, To: now + 3*window}, Part: 2, Regions: 3},
	})
	for i, want := range []int{3, 6, 3, 3, 0} {
		passed := 0
		var d limiter.Decision
		for d.Allowed = true; d.Allowed; {
			require.NoError(t, s.Take(context.Background(), checks, &d))
			if d.Allowed {
				passed++
			}
		}
		require.Equal(t, want, passed, "window %d", i)
		require.Equal(t, want == 0, d.StoreUnavailable)
		now += window
	}
}

// The store's clock determines the window. If a node's clock is ahead or behind, no more passes
// than the region holds by the store's.
func TestTheStoresClockCounts(t *testing.T) {
	for _, skew := range []int64{-5e6, 5e6} {
		now := storetest.Epoch
		store := memory.New(memory.Config{Clock: func() int64 { return now }})
		require.NoError(t, store.Open(context.Background()))
		s := New(limiter.NoDenied{FullStore: store}, func() int64 { return now + skew })
		checks := checkOf(t, "r fixed_window limit=9 window=10s escrow")
		window := checks[0].Limit.Window.Microseconds()
		s.Hold(global.Held{
			{Span: global.Span{From: now, To: now + window}, Part: 0, Regions: 3},
			{Span: global.Span{From: now + window, To: now + window}, Part: 2, Regions: 3},
		})
		passed := map[int64]int{}
		for ; now < storetest.Epoch+4*window; now += 100_000 {
			var d limiter.Decision
			require.NoError(t, s.Take(context.Background(), checks, &d))
			if d.Allowed {
				passed[now/window-storetest.Epoch/window]++
			}
		}
		require.LessOrEqual(t, passed[0], 3)
		require.LessOrEqual(t, passed[1], 6)
		require.GreaterOrEqual(t, passed[1], 3)
		require.Zero(t, passed[2]+passed[3])
	}
}
